"""The daemon in the test's own process on the SIMULATED demo node, where a test can hold its main loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import yaml
from daemon_rig import DEMO_NODE, PATIENCE_S, DaemonRig

from agent.checks.registry import load_all
from agent.daemon import Daemon
from agent.daemon_parts import EventRelay, Surroundings
from agent.premises import Folders, take_premises
from agent.profile_loader import load_profile
from agent.publisher import Publication
from agent.sources.replay import ReplaySources, replay_sources


class Inner:
    """What a test sees of the daemon; `states` has (time.monotonic(), engine, state) of every change."""

    def __init__(self, rig: DaemonRig, daemon: Daemon, opened: ReplaySources, relay: EventRelay) -> None:
        self.rig, self.daemon, self.opened, self.relay = rig, daemon, opened, relay
        self.states: list[tuple[float, str, str]] = []

    def take(self, publication: Publication) -> None:
        """Note what has changed."""
        now_s = time.monotonic()
        for name, answer in publication.answers.items():
            last = next((state for _, engine, state in reversed(self.states) if engine == name), "")
            if answer.state != last:
                self.states.append((now_s, name, answer.state))

    def state(self, engine: str) -> str:
        """The gate's state."""
        return self.daemon.parts.gates.records[engine].state.value

    async def until(self, engine: str, state: str) -> None:
        """Wait until a gate is in a state."""
        try:
            await self.until_true(lambda: self.state(engine) == state)
        except TimeoutError:
            raise AssertionError(f"{engine} is not {state}: {self.states}") from None

    async def until_true(self, probe: Callable[[], bool]) -> None:
        """Ask until the answer is yes."""
        async with asyncio.timeout(PATIENCE_S):
            while not probe():  # noqa: ASYNC110 (there is no event for whatever is asked)
                await asyncio.sleep(0.02)


def run_inner(
    rig: DaemonRig, act: Callable[[Inner], Awaitable[None]], scenario: dict[str, object] | None = None
) -> Inner:
    """Run a daemon, act on it, stop it in an orderly way. The scenario begins at `opened.start()`."""
    folders = Folders(rig.state_dir, rig.run_dir, rig.folder / "log")
    relay = EventRelay()
    loaded = load_profile(rig.profile_path)
    path: Path | None = None
    if scenario is not None:
        path = rig.folder / "scenario.yaml"
        path.write_text(yaml.safe_dump(scenario))
    opened = replay_sources(DEMO_NODE, path, on_event=relay)
    seen: list[Inner] = []

    async def life() -> Inner:
        with take_premises(folders, loaded.profile) as premises:
            given = Surroundings(
                premises=premises,
                loaded=loaded,
                sources=opened.sources,
                relay=relay,
                checks=load_all(),
                load_again=lambda: load_profile(rig.profile_path),
                on_publish=lambda publication: seen[0].take(publication) if seen else None,
            )
            inner = Inner(rig, Daemon(given), opened, relay)
            seen.append(inner)
            running = asyncio.create_task(inner.daemon.run())
            acting = asyncio.create_task(_act(act, inner))
            await asyncio.wait({running, acting}, return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                inner.daemon.request_stop()
            await asyncio.wait({running})
            acting.cancel()
            await asyncio.wait({acting})
            if acting.cancelled() or acting.exception() is None:
                running.result()
            acting.result()
            return inner

    try:
        return asyncio.run(life())
    finally:
        opened.close()


async def _act(act: Callable[[Inner], Awaitable[None]], inner: Inner) -> None:
    await act(inner)
