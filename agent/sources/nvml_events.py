"""NvmlEvents: a thread and a process that wait for NVML events, so that checks look at once.

They only make checks run earlier: the kernel log tells of the same faults, and every check also runs by the
clock. So whatever fails here (no permission, no support, a reloaded driver, a call that hangs) is tried again
after a rest, and nobody else waits for it. A GPU in whose registration a process hung or crashed is left out
of it; while a process cannot be killed no other is started.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from agent.sources.nvml_pipe import ChildGarbled, ChildGone, ChildLate, NvmlChild, Process, Reaper, reap

EVENT_NVML = "nvml"
EVENTS_ARGV = (sys.executable, "-P", "-m", "agent.sources.nvml_events_child")
#: The longest rest before another try, and how long GPUs stay left out.
MAX_REST_S, LEFT_OUT_S = 300.0, 600.0
#: NVML's answers that another try soon will not change.
LASTING = frozenset(
    {"LIBRARY_NOT_FOUND", "NOT_SUPPORTED", "NO_EVENTS", "NO_PERMISSION", "FUNCTION_NOT_FOUND"}
)
#: How long a killed process may take to go.
REAP_S = 0.5
#: How long close() waits for the thread: the pipe of a process that cannot be killed stays open.
CLOSE_S = 2.0
#: Only a process that followed for so long makes up for failures before it.
STEADY_S = 60.0
_AGAIN = "the GPUs left out are tried again"
_log = logging.getLogger("nodegate.nvml")


@dataclass(frozen=True, slots=True)
class EventTimes:
    """Seconds: the start with nvmlInit, a GPU's registration, how often the process says that it waits (it is
    taken for hung after three times that), the first rest after a failure."""

    start_s: float = 30.0
    gpu_s: float = 5.0
    beat_s: float = 5.0
    rest_s: float = 2.0


class NvmlEvents:
    """Calls `on_event("nvml")` from its thread when NVML tells of an event, or stops telling."""

    def __init__(
        self,
        on_event: Callable[[str], None],
        *,
        library: str | None = None,
        env: Mapping[str, str] | None = None,
        argv: Sequence[str] = EVENTS_ARGV,
        times: EventTimes | None = None,
        reaper: Reaper = reap,
    ) -> None:
        """Follow nothing before start()."""
        self._on_event = on_event
        self._times = times or EventTimes()
        self._argv = (*argv, library or "", str(self._times.beat_s))
        self._env = {**os.environ, **(env or {})}
        self._reaper = reaper
        self._closing = threading.Event()
        self._waiting = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._child: NvmlChild | None = None
        self._stuck: Process | None = None
        self._touching: int | None = None
        self._left_out: set[int] = set()
        self._failures = 0
        #: What it does or why it does not, in words.
        self.state = "not started"

    def start(self) -> None:
        """Start following; returns at once."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="nvml-events", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """End the process and the thread."""
        self._closing.set()
        with self._lock:
            if self._child is not None:
                self._child.kill()
        if self._thread is not None:
            self._thread.join(CLOSE_S)
        if self._stuck is not None:
            self._reaper(self._stuck, 0.0)

    def wait_following(self, seconds: float) -> bool:
        """Wait until events are followed, so that none after this call can be missed."""
        return self._waiting.wait(seconds)

    def _run(self) -> None:
        while not self._closing.is_set():
            self._closing.wait(self._once())
        self.state = "closed"

    def _once(self) -> float:
        """Follow with one process until it fails; how long to rest then."""
        if self._stuck is not None and not self._reaper(self._stuck, 0.0):
            self._say(f"NVML events are not followed: process {self._stuck.pid} is stuck, unkillable")
            return MAX_REST_S
        self._stuck, self._touching = None, None
        began_s = time.monotonic()
        try:
            why = self._follow(self._start_child())
        except (OSError, ChildLate, ChildGone, ChildGarbled) as failure:
            why = str(failure) or "it gives no sign of life"
        followed = self._waiting.is_set()
        self._waiting.clear()
        self._end_child()
        if self._closing.is_set():
            return 0.0
        if followed:
            if time.monotonic() - began_s >= STEADY_S:
                self._failures = 0
            self._on_event(EVENT_NVML)  # what ended it may be news
        return self._rest(why)

    def _rest(self, why: str) -> float:
        """Take note of why it ended; how long to rest."""
        if why == _AGAIN:
            self._left_out.clear()
            return 0.0
        if self._touching is not None and self._touching not in self._left_out:
            self._left_out.add(self._touching)
            self._say(f"NVML events leave out GPU {self._touching}: {why}")
            return 0.0
        self._failures += 1
        rest_s = self._times.rest_s * 2.0 ** min(self._failures - 1, 16)
        rest_s = MAX_REST_S if why in LASTING else min(rest_s, MAX_REST_S)
        self._say(f"NVML events are not followed: {why}; next try in {rest_s:g} s")
        return rest_s

    def _start_child(self) -> NvmlChild:
        left_out = [str(index) for index in sorted(self._left_out)]
        with self._lock:
            if self._closing.is_set():
                raise ChildGone("closed")
            self._child = NvmlChild([*self._argv, *left_out], self._env)
            return self._child

    def _follow(self, child: NvmlChild) -> str:
        """Read what the process says; returns why it stopped. Raises ChildLate, ChildGone, ChildGarbled."""
        again_s = time.monotonic() + LEFT_OUT_S
        deadline_s = self._times.start_s
        while not self._left_out or time.monotonic() < again_s:
            said = child.line(deadline_s)
            what, gpu = said.get("say"), said.get("gpu")
            if what == "touch" and isinstance(gpu, int):
                self._touching, deadline_s = gpu, self._times.gpu_s
            elif what == "refused":
                self._touching = None
                self._say(f"GPU {gpu} has no events: {said.get('name')}")
            elif what == "wait":
                self._touching, deadline_s = None, 3 * self._times.beat_s
                self._say("NVML events are followed")
                self._waiting.set()
            elif what == "event":
                self._on_event(EVENT_NVML)
            elif what == "error":
                return str(said.get("name"))
            elif what != "beat":
                raise ChildGarbled(f"{said!r}"[:200])
        return _AGAIN

    def _end_child(self) -> None:
        with self._lock:
            child, self._child = self._child, None
        if child is None:
            return
        child.kill()
        child.close_pipes()
        if not self._reaper(child.process, REAP_S):
            self._stuck = child.process

    def _say(self, state: str) -> None:
        if state != self.state:
            _log.info("%s", state)
        self.state = state
