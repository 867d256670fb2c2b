"""The soak: load through a warm engine before its gate opens, while the hardware is watched.

An engine that fails under load is treated as one that fails its warm-up. Hardware that does (heat, slow
clocks, link errors) is not the engine's fault: it stays up, its gate stays closed, and the soak is tried
again later, for a room cools down and a restarted engine would only heat it again.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from agent.checks.registry import load_all
from agent.engine_evidence import SoakResult
from agent.errors import LaunchError, SourceError
from agent.launch.canary import fault_of
from agent.launch.engine_monitor import ANSWERED, FAILED, EngineMonitor
from agent.launch.soak_demand import SoakDemand
from agent.launch.soak_memory import SoakMemory
from agent.launch.soak_watch import HardwareWatch, SoakWatch
from agent.launch.spare_thread import in_spare_thread
from agent.launch.status_book import StatusBook
from agent.launch.warmup_plan import token_prompt
from agent.node_profile import Engine, NodeProfile, Soak
from agent.sources import CanaryVerdict, Clock, Sources
from agent.sources.engine import CompletionRequest

#: Seconds between two looks at the hardware.
SAMPLE_S = 1.0
#: All checks of a soak together; each reading has its own, shorter deadline.
LOOK_DEADLINE_S = 60.0


@dataclass
class _Load:
    """What the requests have brought so far: when each ended, and its tokens."""

    ended: list[tuple[float, int]] = field(default_factory=list)

    def tokens(self, start_s: float, end_s: float) -> int:
        """Tokens of the completions that ended in this span."""
        return sum(tokens for moment_s, tokens in self.ended if start_s < moment_s <= end_s)


class SoakRun:
    """One soak of one engine."""

    def __init__(self, engine: Engine, monitor: EngineMonitor, watch: HardwareWatch, clock: Clock) -> None:
        """Prepare; nothing is sent yet."""
        self._soak: Soak = engine.soak
        self._answer_s = engine.warmup.deadline_s
        self._monitor = monitor
        self._watch = watch
        self._clock = clock
        self._load = _Load()
        self._late = ""
        self._alphabet: tuple[int, ...] = ()

    async def run(self) -> SoakResult:
        """Load and watch until the time is over or something is found. LaunchError when the engine fails."""
        model = await self._model()
        self._alphabet = await self._monitor.alphabet()
        started_s = self._clock.mono_s()
        try:
            async with asyncio.TaskGroup() as group:
                loads = [group.create_task(self._client(model)) for _ in range(self._soak.concurrent)]
                try:
                    await self._look_on(started_s)
                finally:
                    for load in loads:
                        load.cancel()
        except* LaunchError as failed:
            raise failed.exceptions[0] from None
        return self._result(started_s)

    async def _model(self) -> str:
        try:
            return await self._monitor.served_model()
        except SourceError as cause:
            raise LaunchError(f"soak failed: {cause}") from cause

    async def _client(self, model: str) -> None:
        """One client that asks again as soon as it has its answer."""
        while True:
            prompt = token_prompt(self._alphabet, self._soak.prompt_tokens, random.getrandbits(64))
            request = CompletionRequest(model, prompt, self._soak.max_tokens, whole=True)
            try:
                completion = await self._monitor.complete(request, self._answer_s)
            except SourceError as cause:
                raise LaunchError(f"soak: a request failed: {cause}") from cause
            if fault := fault_of(completion):
                raise LaunchError(f"soak: a request failed: {fault}")
            self._monitor.witness("requests of the soak are answered")
            self._load.ended.append((self._clock.mono_s(), completion.completion_tokens or 0))

    async def _look_on(self, started_s: float) -> None:
        """Look at the hardware until the end, and once more then."""
        until_s = started_s + self._soak.duration_s
        while (left_s := until_s - self._clock.mono_s()) > 0:
            if not await self._look(last=False) or self._watch.faults:
                return
            await asyncio.sleep(min(SAMPLE_S, max(0.0, left_s)))
        await self._look(last=True)

    async def _look(self, *, last: bool) -> bool:
        """One look, in a thread of its own: whatever hangs there does not hold the agent up."""
        try:
            await in_spare_thread(lambda: self._watch.sample(last=last), LOOK_DEADLINE_S)
        except TimeoutError:
            self._late = f"the hardware's readings gave no answer in {LOOK_DEADLINE_S:g} s"
        return not self._late

    def _result(self, started_s: float) -> SoakResult:
        ended_s = self._clock.mono_s()
        seconds = max(ended_s - started_s, 1e-3)
        faults = self._watch.faults or ((self._late,) if self._late else self._watch.missing())
        if not faults and not self._load.ended:
            faults = (f"no request ended in {seconds:.0f} s; raise soak.duration_s",)
        third_s = seconds / 3
        return SoakResult(
            passed=not faults,
            seconds=seconds,
            completions=len(self._load.ended),
            tokens=self._load.tokens(started_s, ended_s),
            first_tokens_per_s=self._load.tokens(started_s, started_s + third_s) / third_s,
            last_tokens_per_s=self._load.tokens(ended_s - third_s, ended_s) / third_s,
            faults=faults,
            peaks=self._watch.peaks,
            watched=self._watch.watched,
        )


class Soaker:
    """Soaks one engine until it has passed; remembers which run of it has."""

    def __init__(self, name: str, profile: NodeProfile, sources: Sources, state_dir: Path) -> None:
        """Prepare; nothing is read yet."""
        self._profile = profile
        self._engine = profile.engines[name]
        self._sources = sources
        self._memory = SoakMemory(state_dir / f"engine-{name}.soaked")
        self._demand = SoakDemand.of(state_dir, name)

    async def until_passed(self, run: str, monitor: EngineMonitor, book: StatusBook) -> None:
        """Soak until this run of the engine has passed. LaunchError when the engine fails meanwhile."""
        if self._memory.passed(run):
            return
        engine = await asyncio.to_thread(self._as_asked)
        soak = engine.soak
        if soak.duration_s <= 0:
            return
        while True:
            book.note(f"soak: {soak.concurrent} requests at once for {soak.duration_s:g} s")
            result = await self._once(engine, monitor)
            book.keep_soak(result)
            if result.passed:
                break
            # Was it the hardware, or has the engine hung? Nothing else is asked of it while it waits.
            await _refuse_dead(monitor, FAILED)
            book.note(f"{result.words()}; the gate stays closed, next soak in {soak.retry_s:g} s")
            await asyncio.sleep(soak.retry_s)
        self._memory.remember(run)
        self._demand.met()
        # The last canary is from before the soak.
        await _refuse_dead(monitor, tuple(verdict for verdict in CanaryVerdict if verdict not in ANSWERED))

    def _as_asked(self) -> Engine:
        """The engine with the soak that it is to pass: the profile's, or a longer one that was asked for."""
        soak = self._engine.soak
        longer = soak.model_copy(update={"duration_s": max(soak.duration_s, self._demand.least_s())})
        return self._engine.model_copy(update={"soak": longer})

    async def _once(self, engine: Engine, monitor: EngineMonitor) -> SoakResult:
        watch = SoakWatch(self._profile, engine, self._sources, load_all(), engine.soak.duration_s)
        return await SoakRun(engine, monitor, watch, self._sources.clock).run()


async def _refuse_dead(monitor: EngineMonitor, verdicts: Collection[CanaryVerdict]) -> None:
    """LaunchError when a canary sent now ends in one of these."""
    report = await monitor.canary()
    if report.verdict in verdicts:
        raise LaunchError(f"the canary after the soak is {report.verdict}: {report.reason}")
