"""A runner under test: everything that it says is noted, and checks that a test steers."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

from runner_kit import loaded, sources

from agent.checks.registry import Check
from agent.model import Finding, Result, Snapshot, Verdict
from agent.runner import ResultChange, Runner

LIMIT_S = 30.0


class Node:
    """A runner over some checks, and everything that it said."""

    def __init__(self, *checks: Check, **options: Any) -> None:
        self.changes: list[ResultChange] = []
        self.snapshots: list[Snapshot] = []
        self.defects: list[tuple[str, str, str]] = []
        self.sources = sources()
        self.runner = Runner(
            self.sources,
            options.pop("profile", loaded()),
            {check.id: check for check in checks},
            on_results=self._note,
            node="n1",
            on_defect=lambda *told: self.defects.append(told),
            **options,
        )

    def _note(self, snapshot: Snapshot, changes: tuple[ResultChange, ...]) -> None:
        self.snapshots.append(snapshot)
        self.changes += changes

    def result(self, check: str, subject: str = "node") -> Result | None:
        return self.runner.snapshot.results.get((check, subject))

    def verdict(self, check: str, subject: str = "node") -> Verdict | None:
        found = self.result(check, subject)
        return None if found is None else found.verdict

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Node]:
        task = asyncio.create_task(self.runner.run())
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()


async def until(condition: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline_s, f"not within {LIMIT_S} s: {what}"
        await asyncio.sleep(0.002)


class Probe:
    """A check function that a test steers: what it says, whether it hangs, how often it ran."""

    def __init__(self, verdict: Verdict = Verdict.PASS) -> None:
        self.verdict = verdict
        self.runs = 0
        self.at_once = 0
        self.most_at_once = 0
        self.error: BaseException | None = None
        self.gate = threading.Event()
        self.gate.set()
        self.started_s: list[float] = []

    def __call__(self, *_: Any) -> Iterable[Finding]:
        self.runs += 1
        self.started_s.append(time.monotonic())
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            assert self.gate.wait(LIMIT_S * 2)
            if self.error is not None:
                raise self.error
            return [Finding("node", self.verdict, f"run {self.runs}")]
        finally:
            self.at_once -= 1

    @asynccontextmanager
    async def hanging(self) -> AsyncIterator[None]:
        self.gate.clear()
        try:
            yield
        finally:
            self.gate.set()
