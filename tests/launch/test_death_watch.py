"""A process whose end has been told may still be found by a look that began before it."""

from __future__ import annotations

import asyncio
import os
import subprocess

import pytest

from agent.launch.death_watch import DeathWatch
from agent.sources.processes import ProcessStat, process


@pytest.mark.parametrize("reaped", [False, True])
def test_nobody_is_told_of_a_death_twice(reaped: bool) -> None:
    child = subprocess.Popen(["true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    stat = process(child.pid)
    assert stat is not None
    if reaped:
        child.wait()

    async def scenario() -> None:
        deaths: list[ProcessStat] = []
        watch = DeathWatch(deaths.append)
        watch.watch(stat)
        async with asyncio.timeout(30):
            while not deaths:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        watch.watch(stat)
        for _ in range(10):  # a pidfd of an ended process would be readable in the next turn
            await asyncio.sleep(0.001)
        assert [death.key for death in deaths] == [stat.key]
        watch.close()

    try:
        asyncio.run(scenario())
    finally:
        child.wait()
