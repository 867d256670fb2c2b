"""What is known of one engine from its HTTP interface, read over and over while it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from agent.engine_evidence import WarmupCurve
from agent.errors import LaunchError, SourceError, SourceTimeout
from agent.launch.canary import CanaryRunner
from agent.launch.own_tokens import OwnTokens
from agent.launch.warmup import WarmUp, WarmupOrder
from agent.launch.warmup_plan import ALPHABET, full_concurrency, longest_prompt
from agent.model import EngineStatus
from agent.node_profile import Engine, Warmup
from agent.sources import CanaryReport, CanaryVerdict, Clock, EngineObservation
from agent.sources.engine import Completion, CompletionRequest, EngineClient, EngineMetrics, ModelCard
from agent.sources.engine_metrics import PATHS

HTTP_DEADLINE_S = 2.0
MAX_POLL_PERIOD_S = 1.0
#: One request is enough for an engine that has served before.
SHORT_REQUESTS = 1
#: Verdicts of a canary that was answered.
ANSWERED = (CanaryVerdict.OK, CanaryVerdict.ODD)
FAILED = (CanaryVerdict.DEAD, CanaryVerdict.WRONG)


class EngineMonitor:
    """Reads /health and /metrics, sends canaries and the warm-up; one for each life of an engine."""

    def __init__(self, engine: Engine, client: EngineClient, clock: Clock, model: str | None) -> None:
        """Begin with nothing known; `model` None = the first that the engine lists."""
        self._engine = engine
        self._client = client
        self._clock = clock
        self._model = model
        self._canary = CanaryRunner(engine.canary, client, clock)
        self._own = OwnTokens(clock)
        self._metrics = EngineMetrics()
        self._health_mono_s: float | None = None
        self.health_ok: bool | None = None
        self.health_fault = ""
        self.report: CanaryReport | None = None
        #: The newest canary that was sent, and the newest that was answered.
        self.sent: CanaryReport | None = None
        self.answered: CanaryReport | None = None
        self._alphabet: tuple[int, ...] | None = None
        self.curve: WarmupCurve | None = None
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
        paths = PATHS[self._engine.launch.kind]
        path = paths.alive if self.health_ok else paths.ready
        try:
            self.health_ok = await self._client.health(HTTP_DEADLINE_S, path)
            self.health_fault = "" if self.health_ok else f"{path} does not answer 200"
        except SourceTimeout as cause:  # a server that is late may only be loaded: the canary decides
            self.health_ok = None
            self.health_fault = str(cause)
        except SourceError as cause:
            self.health_ok = False
            self.health_fault = str(cause)
        self._health_mono_s = self._clock.mono_s()

    async def _poll_metrics(self) -> None:
        began_mono_s = self._clock.mono_s()
        try:
            metrics = await self._client.metrics(HTTP_DEADLINE_S, self._engine.launch.kind)
        except SourceError:  # no news is no progress; a canary without an answer is then judged dead
            return
        before, self._metrics = self._metrics, metrics
        moved = metrics.progress != before.progress and before != EngineMetrics()
        if moved:
            self._canary.moved_mono_s = self._clock.mono_s()
        self._own.polled(began_mono_s, moved=moved)

    def canary_due_mono_s(self, sent_mono_s: float) -> float:
        """When the next canary must be sent, after one at `sent_mono_s`.

        A period after that, or after the last token that was no canary's: whoever makes tokens lives, and a
        freeze is found a period and a deadline after it. But the text must be looked at now and then, and
        an engine that failed its last canary is asked again at once when the period is over.
        """
        canary = self._engine.canary
        if self.sent is not None and self.sent.verdict in FAILED:
            return sent_mono_s + canary.period_s
        idle_mono_s = max(sent_mono_s, self._own.traffic_mono_s or sent_mono_s)
        latest_mono_s = sent_mono_s + max(canary.busy_period_s, canary.period_s)
        return min(idle_mono_s + canary.period_s, latest_mono_s)

    def spare_canary(self) -> CanaryReport:
        """The report in place of a canary that is not sent, for tokens move.

        One that had no answer goes on to be told: that the engine is busy has not changed. Its time is that
        of the tokens, so that a failed /health after them counts for more.
        """
        verdict, latency_s, words = CanaryVerdict.MOVING, 0.0, "tokens move by themselves, so none was sent"
        if self.sent is not None and self.sent.verdict is not CanaryVerdict.OK:
            verdict, latency_s, words = self.sent.verdict, self.sent.latency_s, self.sent.reason
        seen_mono_s = self._own.traffic_mono_s
        moment = self._clock.mono_s() if seen_mono_s is None else seen_mono_s
        self.report = CanaryReport(verdict, moment, latency_s, words)
        return self.report

    def witness(self, words: str) -> None:
        """Take an answered request of the agent's own for a canary; none is sent beside those.

        One whose text looked like garbage goes on to be told: nobody has looked at these texts so closely.
        """
        verdict, latency_s = CanaryVerdict.MOVING, 0.0
        if self.sent is not None and self.sent.verdict is CanaryVerdict.ODD:
            verdict, latency_s, words = self.sent.verdict, self.sent.latency_s, self.sent.reason
        self.report = CanaryReport(verdict, self._clock.mono_s(), latency_s, words)

    async def complete(self, request: CompletionRequest, deadline_s: float) -> Completion:
        """A completion for the agent itself. Raises SourceError."""
        with self._own.request():
            return await self._client.complete(request, deadline_s)

    def forget(self) -> None:
        """Forget what was said of an engine that is gone."""
        self.report = self.sent = self.answered = None
        self.curve = None

    async def canary(self) -> CanaryReport:
        """Send one canary; its report is kept. There is never a second one in flight."""
        try:
            model = await self.served_model()
        except SourceError as cause:
            self.report = CanaryReport(CanaryVerdict.DEAD, self._clock.mono_s(), 0.0, str(cause))
        else:
            with self._own.request():
                self.report = await self._canary.run(model)
        self.sent = self.report
        if self.report.verdict in ANSWERED:
            self.answered = self.report
        if self.report.verdict is CanaryVerdict.BUSY:
            self._own.busy()
        return self.report

    async def warm_up(self, say: Callable[[str], None], *, short: bool, ours: bool = True) -> None:
        """The warm-up, then a canary that must be answered; LaunchError when either fails.

        `ours` is False for an engine that somebody else runs: it may be serving already, so no prompt of
        maximum length holds its clients up unless the profile asks for one.
        """
        until = self._clock.mono_s() + self._engine.warmup.deadline_s
        try:
            card = await self._card(self._model)
        except SourceError as cause:
            raise LaunchError(f"warm-up failed: {cause}") from cause
        order = self._order(card, short=short, ours=ours)
        warm_up = WarmUp(order, card.name, self._client, self._clock, say, self.alphabet)
        try:
            with self._own.request():
                await warm_up.run()
        finally:
            self.curve = warm_up.curve
        while True:
            say("first canary")
            report = await self.canary()
            if report.verdict in ANSWERED:
                return
            # An adopted engine may be busy with its clients; that is life, but no proof yet.
            if report.verdict is not CanaryVerdict.BUSY or self._clock.mono_s() >= until:
                raise LaunchError(f"the canary after the warm-up is {report.verdict}: {report.reason}")

    async def alphabet(self) -> tuple[int, ...]:
        """Numbers of plain words in this model's vocabulary; none where the engine does not tokenize."""
        if self._alphabet is None:
            try:
                model = await self.served_model()
                self._alphabet = tuple(await self._client.tokenize(model, ALPHABET, HTTP_DEADLINE_S))
            except SourceError:
                self._alphabet = ()
        return self._alphabet

    def _order(self, card: ModelCard, *, short: bool, ours: bool) -> WarmupOrder:
        """What to ask of this engine."""
        warmup = self._engine.warmup
        if short:
            warmup = Warmup(**{**warmup.model_dump(), "requests": SHORT_REQUESTS})
        tokens = warmup.long_prompt_tokens
        automatic = tokens is None
        if tokens is None:
            longest = longest_prompt(card.longest_tokens, self._metrics.kv_cache_tokens)
            tokens = longest if ours else 0
        return WarmupOrder(
            warmup=warmup,
            concurrent=0 if short else full_concurrency(self._engine),
            long_tokens=0 if short else tokens,
            automatic=automatic,
            first_token=not short,
            where="warmup",
        )

    async def _card(self, model: str | None) -> ModelCard:
        """What the engine says of the model to ask for; a name that it does not list is asked for too."""
        try:
            cards = await self._client.model_cards(HTTP_DEADLINE_S)
        except SourceError:
            if model is None:
                raise
            return ModelCard(model)
        if model is None:
            model = self._model = await self.served_model() if not cards else cards[0].name
        return next((card for card in cards if card.name == model), ModelCard(model))

    async def served_model(self) -> str:
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
            answered=self.answered,
            first_token_sum_s=self._metrics.first_token_sum_s,
            first_token_count=self._metrics.first_token_count,
            between_tokens_sum_s=self._metrics.between_tokens_sum_s,
            between_tokens_count=self._metrics.between_tokens_count,
            pids=self.pids(),
        )
