"""What is known of one engine from its HTTP interface, read over and over while it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from agent.errors import LaunchError, SourceError, SourceTimeout
from agent.launch.canary import CanaryRunner
from agent.launch.warmup import warm_up as run_warm_up
from agent.model import EngineStatus
from agent.node_profile import Engine, Warmup
from agent.sources import CanaryReport, CanaryVerdict, Clock, EngineObservation
from agent.sources.engine import EngineClient, EngineMetrics

HTTP_DEADLINE_S = 2.0
MAX_POLL_PERIOD_S = 1.0
#: One request is enough for an engine that has served before.
SHORT_REQUESTS = 1


class EngineMonitor:
    """Reads /health and /metrics, sends canaries and the warm-up; one for each life of an engine."""

    def __init__(self, engine: Engine, client: EngineClient, clock: Clock, model: str | None) -> None:
        """Begin with nothing known; `model` None = the first that the engine lists."""
        self._engine = engine
        self._client = client
        self._clock = clock
        self._model = model
        self._canary = CanaryRunner(engine.canary, client, clock)
        self._metrics = EngineMetrics()
        self._health_mono_s: float | None = None
        self.health_ok: bool | None = None
        self.health_fault = ""
        self.report: CanaryReport | None = None
        self.polled = asyncio.Event()
        #: The engine's processes, its main one first; none when somebody else runs it.
        self.pids: Callable[[], tuple[int, ...]] = tuple

    @property
    def poll_period_s(self) -> float:
        """How often to poll.

        Several times within a canary's deadline, so that token progress is seen in time.
        """
        canary = self._engine.canary
        return min(MAX_POLL_PERIOD_S, canary.deadline_s / 4, canary.period_s / 4)

    async def poll(self) -> None:
        """Read health and metrics once, side by side; whoever waits for `polled` is woken."""
        await asyncio.gather(self._poll_health(), self._poll_metrics())
        self.polled.set()
        self.polled.clear()

    async def _poll_health(self) -> None:
        try:
            self.health_ok = await self._client.health(HTTP_DEADLINE_S)
            self.health_fault = "" if self.health_ok else "/health does not answer 200"
        except SourceTimeout as cause:  # a server that is late may only be loaded: the canary decides
            self.health_ok = None
            self.health_fault = str(cause)
        except SourceError as cause:
            self.health_ok = False
            self.health_fault = str(cause)
        self._health_mono_s = self._clock.mono_s()

    async def _poll_metrics(self) -> None:
        try:
            metrics = await self._client.metrics(HTTP_DEADLINE_S)
        except SourceError:  # no news is no progress; a canary without an answer is then judged dead
            return
        before, self._metrics = self._metrics, metrics
        if metrics.progress != before.progress and before != EngineMetrics():
            self._canary.moved_mono_s = self._clock.mono_s()

    async def canary(self) -> CanaryReport:
        """Send one canary; its report is kept."""
        try:
            model = await self._served_model()
        except SourceError as cause:
            self.report = CanaryReport(CanaryVerdict.DEAD, self._clock.mono_s(), 0.0, str(cause))
            return self.report
        self.report = await self._canary.run(model)
        return self.report

    async def warm_up(self, say: Callable[[str], None], *, short: bool) -> None:
        """The warm-up, then a canary that must be answered; LaunchError when either fails."""
        warmup = self._engine.warmup
        if short:
            warmup = Warmup(**{**warmup.model_dump(), "requests": SHORT_REQUESTS, "concurrent": 0})
        until = self._clock.mono_s() + warmup.deadline_s
        try:
            model = await self._served_model()
        except SourceError as cause:
            raise LaunchError(f"warm-up failed: {cause}") from cause
        await run_warm_up(warmup, model, self._client, self._clock, say)
        while True:
            say("first canary")
            report = await self.canary()
            if report.verdict is CanaryVerdict.OK:
                return
            # An adopted engine may be busy with its clients; that is life, but no proof yet.
            if report.verdict is not CanaryVerdict.BUSY or self._clock.mono_s() >= until:
                raise LaunchError(f"the canary after the warm-up is {report.verdict}: {report.reason}")

    async def _served_model(self) -> str:
        """The name to ask for."""
        if self._model is None:
            names = await self._client.models(HTTP_DEADLINE_S)
            if not names:
                raise SourceError("/v1/models lists no model")
            self._model = names[0]
        return self._model

    def observation(self, status: EngineStatus) -> EngineObservation:
        """All that is known now."""
        return EngineObservation(
            status=status,
            health_ok=self.health_ok,
            health_mono_s=self._health_mono_s,
            canary=self.report,
            tokens_total=self._metrics.generation_tokens,
            tokens_moved_mono_s=self._canary.moved_mono_s,
            requests_running=self._metrics.requests_running,
            requests_waiting=self._metrics.requests_waiting,
            kv_cache_used_ratio=self._metrics.kv_cache_used_ratio,
            prefix_queries_total=self._metrics.prefix_queries,
            prefix_hits_total=self._metrics.prefix_hits,
            preemptions_total=self._metrics.preemptions,
            pids=self.pids(),
        )
