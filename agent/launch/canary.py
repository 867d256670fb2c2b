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
#: Fewer tokens than this have no pattern to judge.
ODD_TOKENS = 3
#: Odd answers in a row, of an engine that has answered sanely before, that are a wrong answer and no chance.
ODD_IN_A_ROW = 2


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


def odd_text(completion: Completion) -> str:
    """Why the text of an answer looks like garbage, empty when it does not.

    Only shapes that no vocabulary needs: nothing visible though several tokens came, or one short piece over
    and over (numbers that overflowed choose the same token each time, `!!!!`), or bytes that are no text.
    """
    text = completion.text
    seen = "".join(text.split())
    if (completion.completion_tokens or 0) < ODD_TOKENS:
        return ""
    if not seen:
        return f"{completion.completion_tokens} tokens and no visible text"
    if set(seen) == {"\ufffd"}:
        return "bytes that are no text"
    if len(seen) >= ODD_TOKENS and len(set(seen)) == 1:
        return f"one character over and over: {text[:20]!r}"
    words = text.split()
    if len(words) >= ODD_TOKENS and len(set(words)) == 1:
        return f"one word over and over: {text[:40]!r}"
    return ""


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
        self._sane = False
        self._odd_in_a_row = 0
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
            return self._by_text(completion)
        if completion.http_status in OVERLOAD_STATUSES:
            return self._without_answer(fault)
        dead = completion.http_status >= 500
        return (CanaryVerdict.DEAD if dead else CanaryVerdict.WRONG), fault

    def _by_text(self, completion: Completion) -> tuple[CanaryVerdict, str]:
        """A text that looks like garbage is told; wrong it is only where the engine has shown that it can.

        The same greedy prompt was answered sanely before: then garbage twice in a row is no matter of taste.
        """
        odd = "" if self._canary.expect_text is not None else odd_text(completion)
        if not odd:
            self._sane, self._odd_in_a_row = True, 0
            return CanaryVerdict.OK, ""
        self._odd_in_a_row += 1
        if self._sane and self._odd_in_a_row >= ODD_IN_A_ROW:
            return CanaryVerdict.WRONG, f"{odd}; the same prompt was answered with text before"
        return CanaryVerdict.ODD, odd

    def _without_answer(self, what: str) -> tuple[CanaryVerdict, str]:
        """BUSY when tokens moved a moment ago, else DEAD."""
        window = progress_window_s(self._canary)
        if self.moved_mono_s is not None and self._clock.mono_s() - self.moved_mono_s <= window:
            return CanaryVerdict.BUSY, f"{what}, but its token counters move"
        return CanaryVerdict.DEAD, f"{what} and no token progress"
