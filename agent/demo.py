"""The demo's run: the whole daemon in this process on a replayed node; it begins at the open gate."""

from __future__ import annotations

import asyncio
import logging
import shlex
import sys
import tempfile
import time
from pathlib import Path

import httpx

from agent.checklist.office import Replayed
from agent.checks.registry import load_all
from agent.console import Out
from agent.daemon import Daemon
from agent.daemon_parts import EventRelay, Surroundings
from agent.demo_node import HOST, NODE_DIR, demo_profile
from agent.demo_story import Story
from agent.premises import Folders, take_premises
from agent.profile_loader import LoadedProfile
from agent.publisher import Publication
from agent.sources.replay import ReplaySources, replay_sources
from agent.sources.scenario import EngineStep

#: The scenario begins when the gate opens, and at the latest after this long.
LATEST_BEGIN_S = 60.0
#: What is left to watch after the scenario's last step.
AFTERWARDS_S = 10.0
FAULT_DEADLINE_S = 5.0


def run_demo(scenario: Path, seconds: float | None, out: Out) -> bool:
    """Run until the scenario, or the time, is over; whether the gate has been open."""
    logging.basicConfig(level=logging.ERROR, format="%(levelname)s %(name)s: %(message)s")
    with tempfile.TemporaryDirectory(prefix="nodegate-demo-") as name:
        folder = Path(name)
        relay = EventRelay()
        loaded = demo_profile(folder)
        opened = replay_sources(NODE_DIR, scenario, on_event=relay)
        demo = Demo(out, loaded, opened, seconds, scenario)
        try:
            asyncio.run(demo.run(relay, folder))
        finally:
            opened.close()
    demo.sum_up()
    return demo.story.opened


class Demo:
    """One run of the demo."""

    def __init__(
        self,
        out: Out,
        loaded: LoadedProfile,
        opened: ReplaySources,
        seconds: float | None,
        scenario: Path,
    ) -> None:
        """Prepare; nothing runs yet. `seconds` is None for as long as the scenario takes."""
        self._scenario = scenario
        self._out = out
        self._loaded = loaded
        self._opened = opened
        self._seconds = seconds
        self._began_s = time.monotonic()
        self._is_open = asyncio.Event()
        self.story = Story(out.line, lambda: time.monotonic() - self._began_s)
        opened.on_say = self.story.scene
        opened.on_engine = self._do_to_engine

    async def run(self, relay: EventRelay, folder: Path) -> None:
        """Run the daemon until the time is over or a signal ends it."""
        self._introduce(folder / "run")
        folders = Folders(folder / "state", folder / "run", folder / "log")
        with take_premises(folders, self._loaded.profile) as premises:
            daemon = Daemon(
                Surroundings(
                    premises=premises,
                    loaded=self._loaded,
                    sources=self._opened.sources,
                    relay=relay,
                    checks=load_all(),
                    load_again=lambda: self._loaded,
                    on_publish=self._take,
                    replayed=Replayed(NODE_DIR, self._scenario, lambda: self._opened.began_mono_s),
                )
            )
            director = asyncio.create_task(self._direct(daemon))
            try:
                await daemon.run()
            finally:
                director.cancel()

    def _take(self, publication: Publication) -> None:
        self.story.take(publication)
        if self.story.opened:
            self._is_open.set()

    async def _direct(self, daemon: Daemon) -> None:
        """Begin the scenario once the gate is open, and end the demo in time."""
        end_s = None if self._seconds is None else self._began_s + self._seconds
        try:
            async with asyncio.timeout(min(LATEST_BEGIN_S, self._seconds or LATEST_BEGIN_S)):
                await self._is_open.wait()
        except TimeoutError:
            self.story.scene("the gate is not open yet; the scenario begins all the same")
        self._opened.start()
        if end_s is None:
            steps = self._opened.scenario.steps
            end_s = time.monotonic() + (steps[-1].at_s if steps else 0.0) + AFTERWARDS_S
        await asyncio.sleep(max(0.0, end_s - time.monotonic()))
        self.story.end("the demo ends: gates close first, then the engine is stopped")
        daemon.request_stop()

    def _do_to_engine(self, step: EngineStep) -> None:
        """Let the embedded engine hang, go on or die, as the scenario says. Runs on the scenario's thread."""
        engine = self._loaded.profile.engines.get(step.engine)
        if engine is None:
            self.story.scene(f"the scenario names engine {step.engine}, which this node does not have")
            return
        try:
            httpx.post(f"http://{HOST}:{engine.port}/simulated/{step.action}", timeout=FAULT_DEADLINE_S)
        except httpx.HTTPError as cause:
            self.story.scene(f"the engine did not take the fault in: {type(cause).__name__}")

    def _introduce(self, run_dir: Path) -> None:
        """Say what is going to be seen, and where one can look and ask."""
        profile, scenario = self._loaded.profile, self._opened.scenario
        address = f"http://{HOST}:{profile.api.port}"
        self._out.banner(simulated=True, folder=NODE_DIR.name)
        self._out.line(
            f"node          {profile.node}: {profile.gpus.count} GPUs, embedded engine, no real hardware"
        )
        self._out.line(f"scenario      {scenario.name}: {scenario.description}")
        self._out.line(f"status page   {address}/")
        for name, engine in profile.engines.items():
            check = f"{HOST}:{engine.agent_check_port}"
            self._out.line(f"load balancer {address}/readyz/{name}, HAProxy agent check {check}")
        self._out.line(f"ask it        {_this_command()} status --run-dir {shlex.quote(str(run_dir))}")
        self._out.line()

    def sum_up(self) -> None:
        """What happened, in a table."""
        self._out.line()
        rows = [
            (f"{turn.at_s:.1f} s", turn.engine, "opened" if turn.opened else "closed", turn.reason)
            for turn in self.story.turns
        ]
        if rows:
            self._out.table(("when", "gate", "what", "why"), rows)
        else:
            self._out.line("the gate never opened", "bold red")
        self._out.line("everything is stopped; all of this was SIMULATED")


def _this_command() -> str:
    """The command as it was called, so that the line shown can be copied and run."""
    called = Path(sys.argv[0])
    return shlex.quote(str(called)) if called.name == "nodegate" else "nodegate"
