"""What the runner does around the checks: tracebacks of those that break, threads, tellings."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
from runner_kit import make_check
from runner_node import Node, Probe, until

from agent.check_threads import CheckThreads
from agent.model import Finding, Verdict

P, F = Verdict.PASS, Verdict.FAIL


def test_an_exception_is_told_once_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    probe = Probe()
    probe.error = ValueError("odd")

    async def story() -> Node:
        node = Node(make_check("c", probe, period_s=0.01))
        async with node.running():
            await until(lambda: probe.runs > 5, "several runs")
            probe.error = KeyError("other")
            seen = probe.runs
            await until(lambda: probe.runs > seen + 5, "several runs more")
        return node

    node = asyncio.run(story())
    assert [(check, error) for check, error, _ in node.defects] == [
        ("c", "ValueError: odd"),
        ("c", "KeyError: 'other'"),
    ]
    assert all("Traceback" in trace and "raise self.error" in trace for _, _, trace in node.defects)
    assert [r.levelname for r in caplog.records] == ["WARNING", "WARNING"]


def test_an_overrun_is_told_once_with_the_stack_of_the_stuck_thread() -> None:
    probe = Probe()

    async def story() -> Node:
        node = Node(make_check("c", probe, period_s=0.01, deadline_s=0.05))
        async with node.running(), probe.hanging():
            await until(lambda: len(node.snapshots) > 3, "it stays silent for a while")
        return node

    node = asyncio.run(story())
    ((check, error, stack),) = node.defects
    assert (check, error) == ("c", "no answer within 0.05 s")
    assert "self.gate.wait" in stack
    assert len(stack) < 20_000


def test_a_check_that_is_late_again_and_again_is_told_once_until_it_is_in_time() -> None:
    probe = Probe()

    async def story() -> Node:
        node = Node(make_check("c", probe, period_s=0.01, deadline_s=0.05))
        async with node.running():
            for _ in range(2):
                async with probe.hanging():
                    late = probe.runs + 1
                    await until(lambda late=late: probe.runs >= late, "a run that hangs")
                    told = len(node.snapshots)
                    await until(lambda told=told: len(node.snapshots) > told + 1, "it is late")
            assert len(node.defects) == 1
            await until(lambda: node.verdict("c") is P, "an answer in time")
            async with probe.hanging():
                await until(lambda: len(node.defects) == 2, "late once more")
        return node

    assert {error for _, error, _ in asyncio.run(story()).defects} == {"no answer within 0.05 s"}


def test_threads_are_reused_by_checks_that_come_back() -> None:
    probes = [Probe() for _ in range(3)]
    seen: set[int] = set()

    def note(*_: Any) -> list[Finding]:
        seen.add(threading.get_ident())
        return [Finding("node", P, "fine")]

    async def story() -> None:
        node = Node(make_check("c", note, period_s=0.001), make_check("d", probes[0], period_s=3600))
        async with node.running():
            await until(lambda: (node.runner.durations_s.get("c") is not None) and probes[0].runs > 0, "runs")
            for _ in range(20):
                node.runner.clear("c", None)
                await asyncio.sleep(0.002)

    asyncio.run(story())
    assert 1 <= len(seen) <= 3


def test_readings_without_news_are_told_together_and_news_at_once() -> None:
    probes = [Probe() for _ in range(5)]

    async def story() -> tuple[int, float, int]:
        node = Node(*(make_check(f"c{i}", probe, period_s=0.02) for i, probe in enumerate(probes)))
        async with node.running():
            await until(lambda: all(probe.runs > 3 for probe in probes), "several runs of all")
            told, runs = len(node.snapshots), sum(probe.runs for probe in probes)
            await until(lambda: sum(probe.runs for probe in probes) > runs + 100, "a hundred more")
            quiet = len(node.snapshots) - told
            probes[2].verdict = F
            changed_s = time.monotonic()
            await until(lambda: any(c.after.verdict is F for c in node.changes), "the news")
            return quiet, time.monotonic() - changed_s, sum(probe.runs for probe in probes)

    quiet, latency_s, _ = asyncio.run(story())
    assert quiet <= 30  # a hundred readings, not a hundred tellings
    assert latency_s < 5.0


def test_threads_end_when_nobody_has_jobs_any_more() -> None:
    threads, hold, ran = CheckThreads(), threading.Event(), threading.Event()
    idle = threads.run(ran.set, "idle")
    assert ran.wait(10)

    def job() -> None:
        hold.wait(10)

    busy = threads.run(job, "busy")
    threads.close()
    hold.set()
    for thread in (idle, busy):
        thread.join(10)
        assert not thread.is_alive()
