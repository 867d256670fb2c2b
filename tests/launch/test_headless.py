"""Ranks without HTTP: warm once their head answers, at fault when it never does; embedded ranks."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable

import pytest
from fake_sources import FakeClock
from ports import free_port
from server_kit import profile

from agent.launch.embedded_ranks import HeadRank, _follow, head_rank
from agent.launch.engine_state import EngineEvent, EventKind
from agent.launch.engine_watch import TAKEN_OVER_S, LifeHooks, healthy_by
from agent.launch.headless import HeadlessMonitor, live_headless
from agent.launch.status_book import StatusBook
from agent.model import EnginePhase
from agent.sources.engine import EngineBoard


async def _until(probe: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not probe():  # noqa: ASYNC110 (any condition, not only events)
            await asyncio.sleep(0.01)


def _book() -> tuple[StatusBook, EngineBoard]:
    board = EngineBoard()
    book = StatusBook("glm", FakeClock(), board, lambda status: None)
    book.apply(EngineEvent(EventKind.START, "starting"))
    return book, board


async def _nothing(*_: object) -> None:
    """Nothing to do."""


def test_it_is_warm_when_the_head_answers_and_shows_its_processes() -> None:
    async def life() -> None:
        book, board = _book()
        book.monitor = HeadlessMonitor(lambda: (11, 12))
        head_up, faults = asyncio.Event(), []
        engine, now_s = profile().engines["glm"], book.clock.mono_s()
        hooks = LifeHooks(on_whole=_nothing, soak=_nothing, on_fault=faults.append)
        living = asyncio.create_task(
            live_headless(book, head_up, hooks, healthy_by(engine, now_s, now_s, adopted=False))
        )
        await _until(lambda: board.observe("glm").pids == (11, 12))
        assert book.phase is EnginePhase.STARTING
        head_up.set()
        await _until(lambda: book.phase is EnginePhase.WARM)
        assert not living.done() and not faults
        living.cancel()

    asyncio.run(life())


def test_a_head_that_never_answers_is_a_fault() -> None:
    async def life() -> list[str]:
        book, _ = _book()
        faults: list[str] = []
        engine = profile(start_deadline_s=5.0).engines["glm"]
        hooks = LifeHooks(on_whole=_nothing, soak=_nothing, on_fault=faults.append)
        now_s = book.clock.mono_s()
        by = healthy_by(engine, now_s - 10, now_s, adopted=False)
        await live_headless(book, asyncio.Event(), hooks, by)
        return faults

    assert asyncio.run(life()) == ["the head had not come up 5 s after its start"]


def test_a_rank_that_is_taken_over_after_weeks_is_not_late() -> None:
    engine = profile(start_deadline_s=1800.0).engines["glm"]
    weeks_ago_s, now_s = 1000.0, 2_000_000.0
    assert healthy_by(engine, weeks_ago_s, now_s, adopted=True).mono_s == now_s + TAKEN_OVER_S
    assert healthy_by(engine, weeks_ago_s, now_s, adopted=False).mono_s == weeks_ago_s + 1800
    assert healthy_by(engine, now_s - 60, now_s, adopted=True).mono_s == now_s + 1740, "it still loads"


def test_embedded_ranks_wait_for_each_other_and_end_together() -> None:
    async def life() -> None:
        port = free_port()
        head, lost = HeadRank(3, "127.0.0.1", port), asyncio.Event()
        head.on_loss = lost.set
        first = asyncio.create_task(_follow(1, "127.0.0.1", port, 0.0))
        await head.listen()
        _, probe = await asyncio.open_connection("127.0.0.1", port)
        probe.close()  # as the look at a port: no rank
        assert not head.complete.is_set()
        second = asyncio.create_task(_follow(2, "127.0.0.1", port, 0.0))
        await asyncio.wait_for(head.complete.wait(), 30)
        assert not lost.is_set()
        second.cancel()
        await asyncio.wait({second})
        await asyncio.wait_for(lost.wait(), 30)
        lost.clear()
        first.cancel()
        await asyncio.wait({first})
        await asyncio.wait_for(lost.wait(), 30)
        await head.close()

    asyncio.run(life())


@pytest.mark.parametrize(
    ("options", "alone"),
    [
        ({"nnodes": None, "node_rank": None, "master_addr": None, "master_port": None}, True),
        ({"nnodes": "2", "node_rank": "0", "master_addr": "127.0.0.1", "master_port": "29501"}, False),
        ({"nnodes": "2", "node_rank": "0", "dist_init_addr": "[::1]:29501"}, False),
    ],
)
def test_the_command_line_says_whether_an_embedded_engine_is_alone(
    options: dict[str, str | None], alone: bool
) -> None:
    assert (head_rank(argparse.Namespace(**options)) is None) is alone
