"""The canary.

One short greedy completion that is judged by its content, and by token progress when it is late.
"""

from __future__ import annotations

from agent.errors import SourceError, SourceTimeout
from agent.node_profile import Canary
from agent.sources import CanaryReport, CanaryVerdict, Clock
from agent.sources.engine import Completion, CompletionRequest, EngineClient

#: Answers of an engine that refuses work because it has too much.
OVERLOAD_STATUSES = (429, 503)


def fault_of(completion: Completion, expect_text: str | None = None) -> str | None:
    """Why a completion is no proof of life, None when it is.

    HTTP 200 alone proves nothing: vLLM answers aborted requests with 200 and no tokens. The text may be
    empty, for a model may choose special tokens only, so the count of tokens decides unless a text is
    expected.
    """
    if completion.http_status != 200:
        return (
            f"HTTP {completion.http_status}: {completion.error}"
            if completion.error
            else (f"HTTP {completion.http_status}")
        )
    if completion.error:
        return completion.error
    if completion.finish_reason in (None, "abort", "error"):
        return f"finish_reason is {completion.finish_reason}"
    if completion.completion_tokens is None or completion.completion_tokens < 1:
        return "it has no tokens"
    if expect_text is not None and expect_text not in completion.text:
        return f"the text {completion.text[:60]!r} does not contain {expect_text!r}"
    return None


def progress_window_s(canary: Canary) -> float:
    """How recent token progress must be, when a canary runs into its deadline, to show that the engine lives.

    Half the deadline: tokens that moved early in the canary's time may be those made before the engine
    froze. Never longer than the period, so that a freeze is found within period plus deadline whatever the
    traffic.
    """
    return min(canary.deadline_s / 2, canary.period_s)


class CanaryRunner:
    """Sends canaries; `moved_mono_s` is kept up to date by whoever reads the engine's metrics."""

    def __init__(self, canary: Canary, client: EngineClient, clock: Clock) -> None:
        """Prepare; nothing is sent yet."""
        self._canary = canary
        self._client = client
        self._clock = clock
        self.moved_mono_s: float | None = None

    async def run(self, model: str) -> CanaryReport:
        """One canary, over within its deadline."""
        started = self._clock.mono_s()
        verdict, reason = await self._verdict(model)
        ended = self._clock.mono_s()
        return CanaryReport(verdict, ended, ended - started, reason)

    async def _verdict(self, model: str) -> tuple[CanaryVerdict, str]:
        request = CompletionRequest(model, self._canary.prompt, self._canary.max_tokens)
        try:
            completion = await self._client.complete(request, self._canary.deadline_s)
        except SourceTimeout:
            return self._without_answer(f"no answer in {self._canary.deadline_s:g} s")
        except SourceError as cause:
            return CanaryVerdict.DEAD, str(cause)
        fault = fault_of(completion, self._canary.expect_text)
        if fault is None:
            return CanaryVerdict.OK, ""
        if completion.http_status in OVERLOAD_STATUSES:
            return self._without_answer(fault)
        dead = completion.http_status >= 500
        return (CanaryVerdict.DEAD if dead else CanaryVerdict.WRONG), fault

    def _without_answer(self, what: str) -> tuple[CanaryVerdict, str]:
        """BUSY when tokens moved a moment ago, else DEAD."""
        window = progress_window_s(self._canary)
        if self.moved_mono_s is not None and self._clock.mono_s() - self.moved_mono_s <= window:
            return CanaryVerdict.BUSY, f"{what}, but its token counters move"
        return CanaryVerdict.DEAD, f"{what} and no token progress"
