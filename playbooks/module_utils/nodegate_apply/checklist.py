"""Running a checklist on this node by its own nodegate, and saying in one line what came of it."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import stat
from collections.abc import Mapping, Sequence
from typing import Any

from .host import Host, HostError

PROGRAM = "/opt/nodegate/bin/nodegate"
#: Reports lie here, where only root can write, until they are fetched; a reboot takes them away.
REPORTS = "/run/nodegate-reports"
FILES = ("report.json", "report.xml", "report.html")
_BAD = ("FAIL", "UNKNOWN")


@dataclasses.dataclass(frozen=True)
class Wanted:
    """What to run."""

    name: str
    who: str
    reason: str = ""
    answers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    settings: Mapping[str, float] = dataclasses.field(default_factory=dict)
    resume: bool = False
    more: Sequence[str] = ()

    def words(self, report: str) -> list[str]:
        """The words for the program."""
        words = ["checklist", "run", self.name, "--who", self.who, "--report", report, *self.more]
        words += ["--reason", self.reason] if self.reason else []
        words += ["--resume"] if self.resume else []
        for step, answer in self.answers.items():
            words += ["--answer", f"{step}={answer}"]
        for setting, number in self.settings.items():
            words += ["--set", f"{setting}={number:g}"]
        return words


@dataclasses.dataclass(frozen=True)
class Ended:
    """How it ended: whether it passed, in one line, and the reports that there are."""

    passed: bool
    line: str
    step: str = ""
    reports: tuple[str, ...] = ()


def run_checklist(
    host: Host, wanted: Wanted, timeout_s: float, *, program: str = PROGRAM, folder: str = REPORTS
) -> Ended:
    """Run it to its end. Raises HostError when it cannot be started, or does not end in time."""
    report = _own_folder(folder, wanted.name)
    for name in FILES:
        (report / name).unlink(missing_ok=True)  # no report of an earlier run is taken for this one's
    done = host.run([program, *wanted.words(str(report))], timeout_s)
    reports = tuple(str(report / name) for name in FILES if (report / name).is_file())
    found = _read(report / FILES[0])
    if done.status == 0:
        return Ended(True, f"{wanted.name} passed", reports=reports)
    step = bad_step(found)
    if done.status in (1, 2) and step is not None:
        hint = f"; {step['hint']}" if step.get("hint") else ""
        line = f"{wanted.name}: step {step['id']} is {step['verdict']}: {step['summary']}{hint}"
        return Ended(False, line, str(step["id"]), reports)
    said = (done.err.strip() or done.out.strip()).splitlines()
    why = " ".join(said[-1].split())[:600] if said else f"exit status {done.status}"
    return Ended(False, f"{wanted.name}: {why.removeprefix('nodegate: ')}", reports=reports)


def bad_step(report: Any) -> dict[str, Any] | None:
    """The step that ended the run: the last bad one, for an answer may stand in for an earlier one."""
    return next((step for step in reversed(_steps(report)) if step.get("verdict") in _BAD), None)


def _steps(report: Any) -> list[dict[str, Any]]:
    record = report.get("run") if isinstance(report, dict) else {}
    steps = record.get("steps") if isinstance(record, dict) else None
    return [step for step in steps if isinstance(step, dict)] if isinstance(steps, list) else []


def _own_folder(folder: str, name: str) -> pathlib.Path:
    """A folder that nobody else could have put anything into."""
    top, own = pathlib.Path(folder), pathlib.Path(folder, name)
    try:
        top.mkdir(mode=0o700, exist_ok=True)
        status = top.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
            raise HostError(f"{folder}: is not a folder of this user; remove it and run again")
        top.chmod(0o700)
        own.mkdir(mode=0o700, exist_ok=True)
    except OSError as cause:
        raise HostError(f"{own}: cannot be made: {cause.strerror}") from cause
    return own


def _read(file: pathlib.Path) -> Any:
    try:
        return json.loads(file.read_text())
    except (OSError, ValueError):
        return None


def nothing_to_do(status: Mapping[str, Any] | None) -> bool:
    """Whether a node serves and is held by nobody; without an answer it is not."""
    if status is None or not status.get("gates") or (status.get("holds") or {}).get("maintenance"):
        return False
    return all(gate["ready"] or gate["state"] == "member" for gate in status["gates"])
