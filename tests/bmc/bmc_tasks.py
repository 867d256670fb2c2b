"""Tasks of a BMC (TaskService, DSP0266 13.6): progress is a function of the clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from bmc_clock import BmcClock
from bmc_reply import Document, message

ROOT = "/redfish/v1/TaskService"
ENDED = ("Completed", "Exception", "Killed", "Cancelled")
#: Share of a task for which it is still New.
NEW_SHARE = 0.02


@dataclass
class Task:
    """A task that takes `lasts_s`; one without a duration (None) waits until somebody calls finish()."""

    id: str
    name: str
    began_s: float
    lasts_s: float | None
    on_end: Callable[[], list[Document]] = list
    fails_at: float | None = None
    failure: Document | None = None
    stalls_at: float | None = None
    ended_s: float | None = None
    state: str = "New"
    percent: int = 0
    messages: list[Document] = field(default_factory=list)

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    def tick(self, now_s: float) -> None:
        if self.ended or self.lasts_s is None:
            return
        share = min(1.0, (now_s - self.began_s) / max(self.lasts_s, 1e-9))
        if self.stalls_at is not None:
            share = min(share, self.stalls_at)
        if self.fails_at is not None and share >= self.fails_at:
            self.percent = int(self.fails_at * 100)
            self.finish(now_s, self.failure)
            return
        self.percent = int(share * 100)
        if share >= NEW_SHARE and self.state == "New":
            self.state = "Running"
        if share >= 1.0:
            self.finish(now_s, None)

    def finish(self, now_s: float, failure: Document | None) -> None:
        """End it, well or with a failure."""
        self.ended_s = now_s
        if failure is not None:
            self.state = "Exception"
            self.messages.append(failure)
            return
        self.state, self.percent = "Completed", 100
        self.messages += self.on_end()

    def cancel(self, now_s: float) -> None:
        self.ended_s, self.state = now_s, "Cancelled"

    def document(self, clock: BmcClock) -> Document:
        bad = self.state == "Exception"
        found: Document = {
            "@odata.id": f"{ROOT}/Tasks/{self.id}",
            "@odata.type": "#Task.v1_7_4.Task",
            "Id": self.id,
            "Name": self.name,
            "TaskState": self.state,
            "TaskStatus": "Critical" if bad else "OK",
            "StartTime": clock.timestamp(self.began_s),
            "PercentComplete": self.percent,
            "Messages": list(self.messages),
            "TaskMonitor": f"{ROOT}/TaskMonitors/{self.id}",
        }
        if self.ended_s is not None:
            found["EndTime"] = clock.timestamp(self.ended_s)
        return found


def job_document(task: Task, path: str) -> Document:
    """The same as Dell's job queue shows it."""
    states = {"New": "Scheduled", "Running": "Running", "Completed": "Completed", "Exception": "Failed"}
    return {
        "@odata.id": path,
        "@odata.type": "#DellJob.v1_6_0.DellJob",
        "Id": task.id,
        "Name": task.name,
        "JobType": "BIOSConfiguration" if task.lasts_s is None else "FirmwareUpdate",
        "JobState": states.get(task.state, "Failed"),
        "PercentComplete": task.percent,
        "Message": task.messages[-1]["Message"] if task.messages else "Task successfully scheduled.",
    }


class Tasks:
    """All tasks, also those that have ended."""

    def __init__(self, clock: BmcClock, prefix: str) -> None:
        self.all: dict[str, Task] = {}
        self._clock = clock
        self._prefix = prefix
        self._next = 1

    def start(self, name: str, lasts_s: float | None, **more: object) -> Task:
        id_ = f"{self._prefix}{self._next}"
        self._next += 1
        task = Task(id_, name, self._clock.now_s(), lasts_s, **more)  # type: ignore[arg-type]
        self.all[id_] = task
        return task

    def tick(self) -> None:
        for task in self.all.values():
            task.tick(self._clock.now_s())

    def running(self, name: str) -> Task | None:
        return next((each for each in self.all.values() if each.name == name and not each.ended), None)


def update_message(id_: str, words: str, *arguments: str, severity: str = "OK") -> Document:
    return message(id_, words, *arguments, severity=severity, registry="Update.1.3")
