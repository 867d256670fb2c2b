"""Asking systemd about a unit, and to start, stop or signal it: `systemctl` with deadlines (systemctl(1)).

Nothing is ever asked for on a terminal (--no-ask-password): an unprivileged agent is allowed by a polkit rule
or it is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

from agent.errors import ParseError, SourceUnavailable
from agent.sources.command import Commands, Output

SHOW_DEADLINE_S = 5.0
#: Starting a service of Type=exec ends when its program runs; a busy systemd may take its time over that.
START_DEADLINE_S = 30.0
_PROPERTIES = (
    "LoadState",
    "ActiveState",
    "SubState",
    "MainPID",
    "InvocationID",
    "ControlGroup",
    "Result",
    "ExecMainStatus",
)
_GONE = ("inactive", "failed")
_REFUSED = re.compile(r"access denied|authentication is required|authentication required", re.IGNORECASE)
_MISSING = re.compile(r"not found|not loaded", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class UnitNow:
    """A service unit as it is now; `invocation_id` names this one run of it for good."""

    name: str
    load_state: str
    active_state: str
    sub_state: str
    main_pid: int = 0
    invocation_id: str = ""
    control_group: str = ""
    result: str = ""
    exit_status: int = 0

    @property
    def ended(self) -> bool:
        """Whether systemd has nothing more to do with it; processes that SIGKILL did not end may be left."""
        return self.active_state in _GONE

    @property
    def words(self) -> str:
        """Its state in words, with the result where it is a bad one."""
        state = f"{self.active_state} ({self.sub_state})"
        if not self.ended or self.result in ("", "success"):
            return state
        status = f", exit status {self.exit_status}" if self.result == "exit-code" else ""
        return f"{state}, result {self.result}{status}"


class Systemd(Protocol):
    """What the agent asks of systemd. Every call may block up to its deadline and raise SourceError."""

    def show(self, unit: str) -> UnitNow:
        """The unit now; `load_state` is `not-found` for one that is not installed."""

    def start(self, unit: str) -> None:
        """Start it; returns when its program has been executed."""

    def stop(self, unit: str) -> None:
        """Ask for its stop, and withdraw a start that is waiting; returns at once."""

    def kill_all(self, unit: str) -> None:
        """SIGKILL for every process of its control group."""

    def reset_failed(self, unit: str) -> None:
        """Forget that it failed."""


class Systemctl:
    """`Systemd` through the command systemctl."""

    def __init__(self, program: str = "systemctl") -> None:
        """Nothing is asked yet."""
        self._program = program
        self._commands = Commands()

    def show(self, unit: str) -> UnitNow:
        """See Systemd."""
        output = self._ask(["show", f"--property={','.join(_PROPERTIES)}", "--", unit], SHOW_DEADLINE_S)
        return parse_unit_now(unit, output.text)

    def start(self, unit: str) -> None:
        """See Systemd."""
        self._ask(["start", "--", unit], START_DEADLINE_S)

    def stop(self, unit: str) -> None:
        """See Systemd."""
        self._ask(["stop", "--no-block", "--", unit], SHOW_DEADLINE_S)

    def kill_all(self, unit: str) -> None:
        """See Systemd."""
        self._ask(["kill", "--signal=SIGKILL", "--", unit], SHOW_DEADLINE_S)

    def reset_failed(self, unit: str) -> None:
        """See Systemd."""
        self._ask(["reset-failed", "--", unit], SHOW_DEADLINE_S)

    def _ask(self, words: list[str], deadline_s: float) -> Output:
        argv = [self._program, "--system", "--no-ask-password", "--no-pager", *words]
        what = f"systemctl {words[0]} {words[-1]}"
        output = self._commands.run(argv, deadline_s=deadline_s, key=what)
        if output.status != 0:
            raise SourceUnavailable(f"{what}: {_reason(output)}")
        return output


def _reason(output: Output) -> str:
    """The first line of what went wrong, and what to do about the two that an operator can mend."""
    lines = [line.strip() for line in output.errors.splitlines() if line.strip()]
    reason = lines[0][:200] if lines else f"exit status {output.status}"
    if any(_REFUSED.search(line) for line in lines):
        return f"{reason}; install the polkit rule 50-nodegate.rules and run the agent as user nodegate"
    if any(_MISSING.search(line) for line in lines):
        return f"{reason}; install the unit file and run systemctl daemon-reload"
    return reason


def parse_unit_now(unit: str, text: str) -> UnitNow:
    """The state in the output of `systemctl show`. Raises ParseError."""
    values = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    for key in ("LoadState", "ActiveState", "SubState"):
        if not values.get(key):
            raise ParseError(f"systemctl show {unit} says nothing of {key}")
    return UnitNow(
        name=unit,
        load_state=values["LoadState"],
        active_state=values["ActiveState"],
        sub_state=values["SubState"],
        main_pid=_number(unit, values, "MainPID"),
        invocation_id=values.get("InvocationID", ""),
        control_group=values.get("ControlGroup", ""),
        result=values.get("Result", ""),
        exit_status=_number(unit, values, "ExecMainStatus"),
    )


def _number(unit: str, values: dict[str, str], key: str) -> int:
    text = values.get(key) or "0"
    if not (text.isascii() and text.isdigit() and len(text) <= 10):
        raise ParseError(f"systemctl show {unit}: {key} is {text[:40]!r}, not a number")
    return int(text)
