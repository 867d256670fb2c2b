"""Captures at faults: when a gate that let traffic in closes on a fault, the readings are kept.

A thread reads the node once, as `nodegate capture` does, through the agent's own sources: no further process
touches a GPU that is in trouble, and what hangs there answers the capture as it answers the checks. Nothing
waits for it, and that it fails moves no gate. BMCs are left out: they take a session and a second a document.
"""

from __future__ import annotations

import dataclasses
import logging
import re
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

from agent.errors import AgentError
from agent.gatekeeper import GateLog
from agent.model import GateState
from agent.node_profile import NodeProfile
from agent.sources import Sources

log = logging.getLogger("nodegate.captures")
FOLDER = "captures"
#: An eight-GPU node takes one to three MB.
MOST_KEPT = 5
#: A gate that flaps must not turn over the captures of the first fault.
LEAST_BETWEEN_S = 600.0
#: All of NVML together, in seconds.
NVML_S = 15.0
_OPEN = frozenset({GateState.SERVING, GateState.DEGRADED, GateState.MEMBER})
_BY_FAULT = frozenset({GateState.FAILED, GateState.QUARANTINED})
_ODD = re.compile(r"[^A-Za-z0-9_.-]")


class FaultCaptures:
    """Writes gates' changes to the journal, and begins a capture where one closes on a fault."""

    def __init__(
        self,
        journal: GateLog,
        state_dir: Path,
        sources: Sources,
        profile: Callable[[], NodeProfile],
        *,
        mono_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Keep captures in `state_dir`/captures. `mono_s` counts the time between two of them."""
        self.folder = state_dir / FOLDER
        self._journal = journal
        self._sources = sources
        self._profile = profile
        self._mono_s = mono_s
        self._begun_mono_s = float("-inf")
        self._thread: threading.Thread | None = None

    def record_gate(
        self, engine: str, old: str, new: str, reason: str, evidence: object = None, *, boot_id: str = ""
    ) -> None:
        """Record a change of state; never waits, never raises for the capture's sake."""
        self._journal.record_gate(engine, old, new, reason, evidence, boot_id=boot_id)
        under_way = self._thread is not None and self._thread.is_alive()
        too_soon = self._mono_s() - self._begun_mono_s < LEAST_BETWEEN_S
        if old not in _OPEN or new not in _BY_FAULT or under_way or too_soon:
            return
        self._begun_mono_s = self._mono_s()
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(self._sources.clock.wall_s()))
        name = f"{stamp}-{_ODD.sub('_', engine)}"
        self._thread = threading.Thread(target=self._work, args=(name,), name="fault-capture", daemon=True)
        self._thread.start()

    def wait(self, timeout_s: float) -> bool:
        """Wait for a capture that is under way; whether none is."""
        if self._thread is not None:
            self._thread.join(timeout_s)
        return self._thread is None or not self._thread.is_alive()

    def _work(self, name: str) -> None:
        try:
            self._capture(name)
        except (AgentError, OSError) as cause:
            log.warning("no capture of the fault: %s", cause)
        # The edge of a thread that nobody awaits: a gate has closed rightly, whatever broke here.
        except Exception:
            log.exception("no capture of the fault")

    def _capture(self, name: str) -> None:
        from agent.bmc_profile import Bmc
        from agent.sources import capture as recorder
        from agent.sources.bounded_nvml import BoundedNvml

        self._make_room()
        sources = dataclasses.replace(self._sources, nvml=BoundedNvml(self._sources.nvml, NVML_S))
        profile = self._profile().model_copy(update={"bmc": Bmc()})
        about = {"simulated": self._sources.simulated}
        recording = recorder.record(sources, about=about, profile=profile)
        recorder.write(recording, self.folder / name)
        log.info("captured the node as it was when its gate closed: %s", self.folder / name)

    def _make_room(self) -> None:
        """Take away the oldest captures, and what a capture left that was cut short."""
        self.folder.mkdir(mode=0o750, parents=True, exist_ok=True)
        names = sorted(path.name for path in self.folder.iterdir())
        whole = [name for name in names if not name.startswith(".")]
        for name in [*(set(names) - set(whole)), *whole[: max(0, len(whole) - MOST_KEPT + 1)]]:
            shutil.rmtree(self.folder / name, ignore_errors=True)
