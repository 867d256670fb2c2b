"""Waiting for a Redfish task (DSP0266, Task schema): by its monitor, or by the Task document itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from agent.checks.redfish_tree import said
from agent.provision.redfish_words import NotThere, TaskFailed, TaskLate, TaskLost, messages_of

#: TaskState values that end a task without success.
FAILED_STATES = frozenset({"Exception", "Killed", "Cancelled", "Interrupted"})
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 10.0


@dataclass(frozen=True, slots=True)
class TaskProgress:
    """How far a task is; `percent` is None where the service does not say."""

    state: str
    percent: int | None
    message: str


class _Looked(Protocol):
    @property
    def status(self) -> int: ...
    @property
    def document(self) -> dict[str, Any]: ...


class _Looker(Protocol):
    origin: str
    mono_s: Callable[[], float]
    sleep: Callable[[float], None]

    def look(self, path: str, *, patience_s: float | None = None) -> _Looked: ...


def wait_for_task(
    bmc: _Looker, uri: str, deadline_s: float, on_progress: Callable[[TaskProgress], None] | None
) -> dict[str, Any]:
    """The final document. Raises TaskFailed, TaskLost, TaskLate, or what the service answers."""
    where, end_s, pause_s = f"task {bmc.origin}{uri}", bmc.mono_s() + deadline_s, FIRST_PAUSE_S
    told: TaskProgress | None = None
    while True:
        left_s = end_s - bmc.mono_s()
        try:
            looked = bmc.look(uri, patience_s=max(left_s, 1.0))
        except NotThere:
            remedy = "the BMC may have restarted: read what it has now and run the play again"
            raise TaskLost("the BMC no longer knows this task", where=where, remedy=remedy) from None
        progress = _progress(looked.document)
        if on_progress is not None and progress != told:
            on_progress(progress)
            told = progress
        if _ended(where, looked, progress):
            return looked.document
        if bmc.mono_s() >= end_s:
            done = "" if progress.percent is None else f" at {progress.percent} %"
            raise TaskLate(
                f"still {progress.state or 'running'}{done} after {deadline_s:.0f} s",
                where=where,
                remedy="look at the task on the BMC, or allow more time",
                state=progress.state,
            )
        bmc.sleep(max(0.0, min(pause_s, end_s - bmc.mono_s())))
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


def _ended(where: str, looked: _Looked, progress: TaskProgress) -> bool:
    """Whether it ended well. Raises TaskFailed if it ended otherwise."""
    health = looked.document.get("TaskStatus")
    if progress.state in FAILED_STATES or (progress.state == "Completed" and health == "Critical"):
        words = progress.message or "no reason is given"
        raise TaskFailed(
            f"ended as {progress.state}: {words}", where=where, state=progress.state,
            remedy="look at the BMC's log, correct what it names and run the play again",
        )  # fmt: skip
    # A monitor says by its status that the task runs; a Task document by its state.
    return progress.state == "Completed" or (not progress.state and looked.status != 202)


def _progress(document: Mapping[str, Any]) -> TaskProgress:
    state, percent = document.get("TaskState"), document.get("PercentComplete")
    number = percent if isinstance(percent, int) and not isinstance(percent, bool) else None
    return TaskProgress(said(state, 30) if isinstance(state, str) else "", number, _message(document))


def _message(document: Mapping[str, Any]) -> str:
    """The newest message of a task, else those of its error."""
    listed = document.get("Messages")
    for each in reversed(listed) if isinstance(listed, list) else ():
        words = each.get("Message") or each.get("MessageId") if isinstance(each, Mapping) else None
        if isinstance(words, str) and words.strip():
            return said(words, 200)
    return "; ".join(messages_of(document))
