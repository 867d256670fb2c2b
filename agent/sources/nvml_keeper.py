"""Keeps one NVML child running: starts it, asks it in turn, kills it when a call hangs, remembers what hung.

Callers take turns, so a deadline measures one call and never the wait behind another. One caller may have
several asks in the pipe at once: they are answered in order, each within its own deadline, and after a hang
those behind it are sent again. After a hang the caller gets its error, the process is killed, and a fresh one
serves everybody else; what hung rests (Cooldown). A process that survives SIGKILL is stuck in the kernel:
what it was asked is left out until it is gone, and while there are two of them no third is risked and nothing
is asked at all.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agent.errors import ParseError, SourceError, SourceTimeout, SourceUnavailable
from agent.sources.gpu_reading import NvmlRefusal
from agent.sources.nvml_ask import NODE, START, Answer, Ask, Fault, fault
from agent.sources.nvml_cooldown import Cooldown
from agent.sources.nvml_pipe import ChildGarbled, ChildGone, ChildLate, NvmlChild, Process, Reaper

#: First rest after a hang, after the process ended or garbled its reply, and after a failed start.
HANG_REST_S, CRASH_REST_S, START_REST_S = 10.0, 1.0, 2.0
#: How long a killed process may take to go.
REAP_S = 0.5
MAX_STUCK = 2
#: How long close() waits for the call in progress: it ends at once, unless its process cannot be killed.
CLOSE_S = 2.0
#: Asks in the pipe at once: all of them must fit into its 64 KiB.
MAX_BATCH = 64
#: NVML keeps saying these until it is started anew (driver reloaded, GPU reset), so a process that has heard
#: one is replaced once it is this old.
STALE = frozenset(
    {"GPU_IS_LOST", "RESET_REQUIRED", "UNINITIALIZED", "DRIVER_NOT_LOADED", "LIB_RM_VERSION_MISMATCH"}
)
RENEW_S = 60.0

_START_ADVICE = {
    "LIBRARY_NOT_FOUND": "libnvidia-ml.so.1 is not there: install the NVIDIA driver",
    "DRIVER_NOT_LOADED": "the NVIDIA kernel driver is not loaded: load it, or see the kernel log for why not",
    "LIB_RM_VERSION_MISMATCH": "library and kernel driver are of different versions: reboot",
    "NO_PERMISSION": "no permission for /dev/nvidia*: give this user access to them",
}


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
        self._argv, self._env = argv, env
        self._start = Ask("init", "its start", {"library": library}, (START,), (START,))
        self._deadline_s, self._start_deadline_s = deadlines_s
        self._reaper, self._mono_s = reaper, mono_s
        self._lock = threading.Lock()
        self._child: NvmlChild | None = None
        self._started_s = 0.0
        self._distrusted = False
        self._stale = False
        self._closed = False
        self._cooldown = Cooldown(mono_s)
        self._stuck: list[tuple[tuple[str, ...], Process]] = []

    def ask_many(self, asks: Sequence[Ask]) -> list[Answer]:
        """An answer to each, its error included."""
        answers: list[Answer] = []
        with self._lock:
            while len(answers) < len(asks):
                answers += self._some(asks[len(answers) :])
        return answers

    def left_alone(self, ask: Ask) -> Fault | SourceError | None:
        """Why this would not be sent now; None if it would."""
        with self._lock:
            return self._why_not(ask)

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
        if not self._lock.acquire(timeout=CLOSE_S):
            return  # whoever holds it waits for a process that is stuck, and ends it after its deadline
        try:
            self._end_child((NODE,))
            self._collect_stuck()
        finally:
            self._lock.release()

    def _some(self, asks: Sequence[Ask]) -> list[Answer]:
        """Answers to the first of these, at least one: as many as one process gives until it fails."""
        no = self._why_not(asks[0])
        if no is not None:
            return [Answer(self._mono_s(), error=no)]
        try:
            child = self._ready_child()
        except SourceError as error:
            return [Answer(self._mono_s(), error=error)] * len(asks)
        batch = itertools.takewhile(lambda ask: self._why_not(ask) is None, asks[:MAX_BATCH])
        return self._exchange(child, list(batch), self._deadline_s)

    def _exchange(self, child: NvmlChild, asks: Sequence[Ask], deadline_s: float) -> list[Answer]:
        """Answers in order until one fails; that failure is the last."""
        answers: list[Answer] = []
        # The child may begin an ask before the reply to the one before it is read here.
        at_s = self._mono_s()
        self._distrusted = True  # until all replies are in: an interrupted exchange leaves some in the pipe
        try:
            child.send([(ask.op, ask.args) for ask in asks])
            for ask in asks:
                answers.append(self._answer(ask, child.receive(deadline_s), at_s))
        except (ChildLate, ChildGone, ChildGarbled) as failure:
            error = self._failed(asks[len(answers)], failure, deadline_s)
            return [*answers, Answer(at_s, error=error)]
        self._distrusted = False
        return answers

    def _answer(self, ask: Ask, reply: Mapping[str, Any], at_s: float) -> Answer:
        if "ok" in reply or ask is not self._start:  # a refusal is an answer too, save that of the start
            for name in ask.rests:
                self._cooldown.worked(name)
        if "ok" in reply:
            return Answer(at_s, reply["ok"])
        refused = str(reply.get("refused"))
        self.heard({refused})
        return Answer(at_s, error=Fault(refused, NvmlRefusal(refused).error(ask.what)))

    def _failed(self, ask: Ask, failure: Exception, deadline_s: float) -> Fault:
        """End the child over what happened to this ask, and leave alone what it concerned."""
        if isinstance(failure, ChildLate):
            error: SourceError = SourceTimeout(f"NVML gave no answer for {ask.what} within {deadline_s:g} s")
        elif isinstance(failure, ChildGone):
            how = "was closed" if self._closed else str(failure)
            error = SourceUnavailable(f"the NVML process {how} during {ask.what}")
        else:
            error = ParseError(f"the NVML process garbled {ask.what}: {failure}")
        self._end_child(ask.touches)
        rest_s = HANG_REST_S if isinstance(failure, ChildLate) else CRASH_REST_S
        for name in ask.rests:
            self._cooldown.failed(name, error, rest_s)
        return fault(error)

    def _ready_child(self) -> NvmlChild:
        """The running child, or a fresh one. Raises SourceError when there can be none."""
        if self._closed:
            raise SourceUnavailable("the NVML source is closed")
        child = self._child
        renew = self._distrusted or (self._stale and self._mono_s() - self._started_s >= RENEW_S)
        if child is not None and child.alive and not renew:
            return child
        self._end_child((NODE,))
        try:
            no = self._why_not(self._start)
            if no is not None:
                raise no
            return self._start_child()
        except Fault as failure:
            raise failure.error from None

    def _start_child(self) -> NvmlChild:
        try:
            child = NvmlChild(self._argv, self._env)
        except OSError as failure:
            raise self._no_start(f"cannot start the NVML process: {failure}") from None
        self._child = child
        if self._closed:
            child.kill()
        self._started_s = self._mono_s()
        error = self._exchange(child, [self._start], self._start_deadline_s)[0].error
        if error is not None and self._child is child:  # it answered, and refused
            self._end_child((START,))
            name = error.name if isinstance(error, Fault) else "UNKNOWN"
            raise self._no_start(f"NVML does not start: {_START_ADVICE.get(name, f'it answers {name}')}")
        if error is not None:
            raise error
        self._stale = False
        return child

    def _no_start(self, text: str) -> SourceUnavailable:
        error = SourceUnavailable(text)
        self._cooldown.failed(START, error, START_REST_S)
        return error

    def _end_child(self, touched: tuple[str, ...]) -> None:
        """Kill and collect the child; one that does not go is kept in mind as stuck in what it touched."""
        child, self._child = self._child, None
        if child is None:
            return
        child.kill()
        child.close_pipes()
        if not self._reaper(child.process, REAP_S):
            self._stuck.append((touched, child.process))

    def _collect_stuck(self) -> None:
        self._stuck = [(names, process) for names, process in self._stuck if not self._reaper(process, 0.0)]

    def _why_not(self, ask: Ask) -> Fault | SourceError | None:
        """Why this must not be sent: a process is stuck in what it touches, or two are, or it rests."""
        if self._stuck:
            self._collect_stuck()
        if len(self._stuck) >= MAX_STUCK:
            pids = ", ".join(str(process.pid) for _, process in self._stuck)
            return SourceUnavailable(
                f"NVML processes {pids} are stuck in the kernel, unkillable: reboot the node"
            )
        for names, process in self._stuck:
            for name in ask.touches:
                if name in names:
                    text = (
                        f"{name} is left out: process {process.pid} hung in it, unkillable; reboot the node"
                    )
                    return Fault("TIMEOUT", SourceUnavailable(text), asked=False)
        for name in dict.fromkeys((*ask.touches, *ask.rests)):
            rest = self._cooldown.why_not(name)
            if rest is not None:
                return fault(rest, asked=False)
        return None
