"""Keeps one NVML child running: starts it, asks it in turn, kills it when a call hangs, remembers what hung.

Calls take turns, so a deadline measures one call and never the wait behind another. After a hang the caller
gets its error, the process is killed, and a fresh one serves everybody else; what hung rests (Cooldown). A
process that survives SIGKILL is stuck in the kernel: what it was asked is left out until it is gone, and
while there are two of them no third is risked and nothing is asked at all.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agent.errors import ParseError, SourceError, SourceTimeout, SourceUnavailable
from agent.sources.gpu_reading import NvmlRefusal
from agent.sources.nvml_cooldown import Cooldown
from agent.sources.nvml_pipe import ChildGarbled, ChildGone, ChildLate, NvmlChild, Process, Reaper

#: First rest after a hang, after the process ended or garbled its reply, and after a failed start.
HANG_REST_S, CRASH_REST_S, START_REST_S = 10.0, 1.0, 2.0
#: How long a killed process may take to go.
REAP_S = 0.5
MAX_STUCK = 2
#: NVML keeps saying these until it is started anew (driver reloaded, GPU reset), so a process that has heard
#: one is replaced once it is this old.
STALE = frozenset(
    {"GPU_IS_LOST", "RESET_REQUIRED", "UNINITIALIZED", "DRIVER_NOT_LOADED", "LIB_RM_VERSION_MISMATCH"}
)
RENEW_S = 60.0
#: Names of what is asked besides GPUs.
NODE, START = "node", "start"

_START_ADVICE = {
    "LIBRARY_NOT_FOUND": "libnvidia-ml.so.1 is not there: install the NVIDIA driver",
    "DRIVER_NOT_LOADED": "the NVIDIA kernel driver is not loaded: load it, or see the kernel log for why not",
    "LIB_RM_VERSION_MISMATCH": "library and kernel driver are of different versions: reboot",
    "NO_PERMISSION": "no permission for /dev/nvidia*: give this user access to them",
}


class Fault(Exception):
    """A call about one GPU failed, while NVML as a whole may be fine; `name` is NVML's error or the like."""

    def __init__(self, name: str, error: SourceError) -> None:
        super().__init__(str(error))
        self.name = name
        self.error = error


class NvmlKeeper:
    """The child, its replacements and its dead; safe to use from many threads."""

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        library: str | None,
        deadlines_s: tuple[float, float],
        reaper: Reaper,
        mono_s: Callable[[], float],
    ) -> None:
        """Start nothing yet. `deadlines_s` are that of a call and that of the start with nvmlInit."""
        self._argv, self._env, self._library = argv, env, library
        self._deadline_s, self._start_deadline_s = deadlines_s
        self._reaper, self._mono_s = reaper, mono_s
        self._lock = threading.Lock()
        self._child: NvmlChild | None = None
        self._started_s = 0.0
        self._distrusted = False
        self._stale = False
        self._closed = False
        self._cooldown = Cooldown(mono_s)
        self._stuck: list[tuple[str, Process]] = []

    def ask(self, name: str, op: str, what: str, args: Mapping[str, object]) -> Any:
        """One call about `name`, answered by the child's `ok` value.

        Raises Fault when it failed for `name`, a SourceError when NVML as a whole cannot be used.
        """
        during = str(args.get("group", op))
        with self._lock:
            self._leave_out_stuck(name)
            rest = self._cooldown.why_not(name)
            if rest is not None:
                raise _fault(rest)
            reply = self._exchange(self._ready_child(), name, op, args, what)
            self._cooldown.worked(name, during)
            if "ok" in reply:
                return reply["ok"]
            refused = str(reply.get("refused"))
            self._stale = self._stale or refused in STALE
            raise Fault(refused, NvmlRefusal(refused).error(what))

    def distrust(self) -> None:
        """Replace the child before its next call: what it sent made no sense."""
        self._distrusted = True

    def heard(self, refusals: set[str]) -> None:
        """Take note of NVML errors among values."""
        self._stale = self._stale or bool(refusals & STALE)

    def close(self) -> None:
        """End the child; the call in progress and all later ones fail."""
        self._closed = True
        child = self._child
        if child is not None:
            child.kill()
        with self._lock:
            self._end_child(NODE)
            self._collect_stuck()

    def _exchange(
        self, child: NvmlChild, name: str, op: str, args: Mapping[str, object], what: str
    ) -> dict[str, Any]:
        deadline_s = self._start_deadline_s if name == START else self._deadline_s
        during = str(args.get("group", op))
        self._distrusted = True  # until the reply is in: an interrupted exchange leaves one in the pipe
        try:
            reply = child.ask(op, args, deadline_s)
        except ChildLate:
            error: SourceError = SourceTimeout(f"NVML gave no answer for {what} within {deadline_s:g} s")
            rest_s = HANG_REST_S
        except ChildGone as gone:
            how = "was closed" if self._closed else str(gone)
            error, rest_s = SourceUnavailable(f"the NVML process {how} during {what}"), CRASH_REST_S
        except ChildGarbled as garbled:
            error, rest_s = ParseError(f"the NVML process garbled {what}: {garbled}"), CRASH_REST_S
        else:
            self._distrusted = False
            return reply
        self._end_child(name)
        self._cooldown.failed(name, during, error, rest_s)
        raise _fault(error)

    def _ready_child(self) -> NvmlChild:
        """The running child, or a fresh one. Raises SourceError when there can be none."""
        if self._closed:
            raise SourceUnavailable("the NVML source is closed")
        child = self._child
        renew = self._distrusted or (self._stale and self._mono_s() - self._started_s >= RENEW_S)
        if child is not None and child.alive and not renew:
            return child
        self._end_child(NODE)
        try:
            self._leave_out_stuck(START)
            rest = self._cooldown.why_not(START)
            if rest is not None:
                raise rest
            return self._start_child()
        except Fault as fault:
            raise fault.error from None

    def _start_child(self) -> NvmlChild:
        try:
            child = NvmlChild(self._argv, self._env)
        except OSError as failure:
            raise self._no_start(f"cannot start the NVML process: {failure}") from None
        self._child = child
        if self._closed:
            child.kill()
        self._started_s = self._mono_s()
        reply = self._exchange(child, START, "init", {"library": self._library}, "its start")
        if "ok" not in reply:
            self._end_child(START)
            name = str(reply.get("refused"))
            raise self._no_start(f"NVML does not start: {_START_ADVICE.get(name, f'it answers {name}')}")
        self._cooldown.worked(START, "init")
        self._stale = False
        return child

    def _no_start(self, text: str) -> SourceUnavailable:
        error = SourceUnavailable(text)
        self._cooldown.failed(START, "init", error, START_REST_S)
        return error

    def _end_child(self, name: str) -> None:
        """Kill and collect the child; one that does not go is kept in mind as stuck in `name`."""
        child, self._child = self._child, None
        if child is None:
            return
        child.kill()
        child.close_pipes()
        if not self._reaper(child.process, REAP_S):
            self._stuck.append((name, child.process))

    def _collect_stuck(self) -> None:
        self._stuck = [(name, process) for name, process in self._stuck if not self._reaper(process, 0.0)]

    def _leave_out_stuck(self, name: str) -> None:
        """Refuse what a process is stuck in, and everything once there are two."""
        self._collect_stuck()
        if len(self._stuck) >= MAX_STUCK:
            pids = ", ".join(str(process.pid) for _, process in self._stuck)
            raise SourceUnavailable(
                f"NVML processes {pids} are stuck in the kernel, unkillable: reboot the node"
            )
        for stuck, process in self._stuck:
            if stuck == name:
                text = f"{name} is left out: process {process.pid} hung in it, unkillable; reboot the node"
                raise Fault("TIMEOUT", SourceUnavailable(text))


def _fault(error: SourceError) -> Fault:
    return Fault("TIMEOUT" if isinstance(error, SourceTimeout) else "UNKNOWN", error)
