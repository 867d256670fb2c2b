"""Holds reach the disk, whenever the agent ends and whatever the disk did before."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from agent.hold_keeper import HoldKeeper, stop_quietly
from agent.holds import Hold, Holds, HoldStore

HELD = Holds(maintenance=Hold("work on the loop", "uid 0", 1000.0, "boot-a"))


def test_what_a_full_disk_refused_is_written_at_the_agents_end(tmp_path: Path) -> None:
    store = HoldStore(tmp_path)

    async def life() -> None:
        keeper = HoldKeeper(store, lambda: HELD)
        store.path.mkdir()
        running = asyncio.create_task(keeper.run())
        keeper.save_soon()
        async with asyncio.timeout(30):
            while not keeper.problem:  # noqa: ASYNC110 (there is no event for it)
                await asyncio.sleep(0.01)
        store.path.rmdir()
        await stop_quietly(running)  # while it waits for its next try
        await keeper.close()

    asyncio.run(life())
    assert store.load("boot-a") == HELD


def test_a_write_that_waited_for_another_is_not_lost_with_its_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = HoldStore(tmp_path)
    writing, release = threading.Event(), threading.Event()
    save = store.save

    def slowly(holds: Holds) -> None:
        writing.set()
        release.wait(60)
        save(holds)

    monkeypatch.setattr(store, "save", slowly)

    async def life() -> None:
        keeper = HoldKeeper(store, lambda: HELD)
        running = asyncio.create_task(keeper.run())
        order = asyncio.create_task(keeper.save_now(Holds()))
        await asyncio.to_thread(writing.wait, 60)
        keeper.save_soon()
        await asyncio.sleep(0.05)  # the keeper's own write is in the queue now
        await stop_quietly(running)
        release.set()
        await order
        await keeper.close()

    asyncio.run(life())
    assert store.load("boot-a") == HELD
