"""Gatekeeper and operator desk on a loop of their own, with engines that are always warm."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from fake_h200 import h200_node
from server_kit import profile

from agent.admin import Office
from agent.checklist.office import ChecklistOffice
from agent.checks.registry import Check, load_all
from agent.gatekeeper import Gatekeeper, Ports
from agent.holds import HoldStore
from agent.model import EnginePhase, EngineStatus, Finding, Result, ServingClass, Snapshot, Verdict
from agent.operator_desk import OperatorDesk
from agent.profile_loader import LoadedProfile
from agent.publisher import NodeFacts, Publication, Publisher, answers_of, boottime_s
from agent.sources.clock import LiveClock

CHECKS: dict[str, Check] = {id_: load_all()[id_] for id_ in ("gpu.lost", "gpu.ecc")}


class Hands:
    """A controller whose engine is always warm."""

    def __init__(self, name: str) -> None:
        self.status = EngineStatus(name, EnginePhase.WARM, 0.0)
        self.asked: list[str] = []

    def start_engine(self) -> None:
        self.asked.append("start")

    def stop_engine(self, grace_s: float = 0) -> None:
        self.asked.append("stop")

    def reset_crashes(self) -> None:
        self.asked.append("reset")

    def set_taking_traffic(self, taking: bool) -> None:
        self.asked.append(f"traffic {taking}")


class Notes:
    """A journal that remembers."""

    def __init__(self) -> None:
        self.operator: list[tuple[str, str, str]] = []

    def record_gate(self, *args: Any, **kwargs: Any) -> None:
        """Not looked at here."""

    def record_operator(self, command: str, reason: str, who: str, *, boot_id: str = "") -> None:
        self.operator.append((command, reason, who))

    def history(
        self, since_wall_s: float, limit: int = 1000, part: str | None = None
    ) -> list[dict[str, Any]]:
        return [{"kind": "mark", "since": round(time.time() - since_wall_s), "limit": limit, "part": part}]


class Desk:
    """Gatekeeper and desk on a loop of their own, behind a real operator socket."""

    def __init__(self, folder: Path, loop: asyncio.AbstractEventLoop) -> None:
        self.folder, self.loop = folder, loop
        self.notes = Notes()
        self.publisher = Publisher()
        self.forgotten: list[tuple[str, str]] = []
        self.store = HoldStore(folder)
        self.profile = profile(("glm", "kimi"), mode="gate", gate={"drain_grace_s": 60})
        ports = Ports(
            journal=self.notes,
            forget=lambda check, subject: self.forgotten.append((check, subject)),
            clear_log=lambda _up_to: None,
            on_change=self._publish,
            on_serving=lambda _serving: None,
        )
        hands = {name: Hands(name) for name in self.profile.engines}
        self.gates = Gatekeeper(self.profile, CHECKS, LiveClock(), self.store, ports, hands=hands)
        self.desk = OperatorDesk(self.gates, self.notes)
        loaded = LoadedProfile(self.profile, "h", (), ())
        sources = replace(h200_node().sources, clock=LiveClock(), simulated=True)
        self.checklists = ChecklistOffice(folder, sources, lambda: loaded, self.gates, self.desk)
        self.say(Verdict.PASS)

    def say(self, verdict: Verdict) -> None:
        """All results have this verdict."""
        clock = self.gates.clock
        results = {
            (check, "node"): Result(
                check, Finding("node", verdict, "said so"), verdict, verdict, ServingClass.HARD,
                clock.mono_s(), clock.wall_s(), 600.0,
            )
            for check in CHECKS
        }  # fmt: skip
        snapshot = Snapshot("bench", "h", True, "b", clock.mono_s(), clock.wall_s(), results)
        self.on_loop(lambda: self.gates.evaluate(snapshot))

    def on_loop(self, action: Any) -> None:
        """Do something on the main loop's thread."""
        done = threading.Event()

        def run() -> None:
            action()
            done.set()

        self.loop.call_soon_threadsafe(run)
        assert done.wait(30)

    def state(self, engine: str) -> str:
        return self.gates.records[engine].state.value

    def office(self) -> Office:
        return Office(
            publisher=self.publisher,
            desk=self.desk,
            journal=self.notes,
            log_tail=lambda engine, lines: ["a line"][:lines] if engine == "glm" else None,
            main_loop=self.loop,
            wall_s=time.time,
            checklists=self.checklists,
        )

    def _publish(self) -> None:
        records = dict(self.gates.records)
        facts = NodeFacts("bench", "b", True, self.profile.mode, "h", 5.0)
        now_s = boottime_s()
        answers = answers_of(records, self.profile)
        self.publisher.publish(Publication(now_s, now_s, facts, answers, records, self.gates.holds))
