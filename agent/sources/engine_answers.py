"""What is asked of /v1/completions and what comes back, whole or as a stream; nothing of it is trusted."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

ERROR_EXCERPT_CHARS = 160
#: One event of a stream; a token with all that may come with it is far shorter.
MAX_EVENT_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """A greedy completion; `model` is the name that the engine serves it under.

    `prompt` is text, or token numbers where their count matters. With `whole` the answer has exactly
    `max_tokens` tokens, even where the model would end sooner.
    """

    model: str
    prompt: str | tuple[int, ...]
    max_tokens: int
    whole: bool = False

    def body(self, *, stream: bool = False) -> dict[str, Any]:
        """The JSON of POST /v1/completions."""
        asked: dict[str, Any] = {
            "model": self.model,
            "prompt": self.prompt if isinstance(self.prompt, str) else list(self.prompt),
            "max_tokens": self.max_tokens,
            "temperature": 0,
            "stream": stream,
        }
        if self.whole:
            asked["ignore_eos"] = True
        if stream:
            asked["stream_options"] = {"include_usage": True}
        return asked


@dataclass(frozen=True, slots=True)
class Completion:
    """What came back of a completion; `error` is an excerpt of the answer when it is not one.

    `first_token_s` is the time from the request to its first token, where it was streamed.
    """

    http_status: int
    text: str = ""
    finish_reason: str | None = None
    completion_tokens: int | None = None
    error: str = ""
    first_token_s: float | None = None


def parse_completion(status: int, body: bytes) -> Completion:
    """Read an answer of /v1/completions without trusting any part of it."""
    if status != 200:
        return Completion(status, error=excerpt(body))
    try:
        answer = json.loads(body)
        choice = answer["choices"][0]
        text, reason, tokens = choice["text"], choice["finish_reason"], answer["usage"]["completion_tokens"]
    except (ValueError, KeyError, IndexError, TypeError, RecursionError):
        return Completion(status, error=f"not a completion: {excerpt(body)}")
    if not isinstance(text, str) or isinstance(tokens, bool) or not isinstance(tokens, int):
        return Completion(status, error=f"not a completion: {excerpt(body)}")
    return Completion(status, text, reason if isinstance(reason, str) else None, tokens)


def excerpt(body: bytes) -> str:
    """The beginning of an answer on one line."""
    text = " ".join(body[: ERROR_EXCERPT_CHARS * 4].decode("utf-8", "replace").split())
    return text[:ERROR_EXCERPT_CHARS]


class CompletionStream:
    """Takes in a streamed completion (server-sent events) piece by piece; `feed` says whether to go on.

    It ends at `[DONE]`, at the first event that is no completion, and when more events come than tokens were
    asked for.
    """

    def __init__(self, max_tokens: int, now_s: Callable[[], float]) -> None:
        """`now_s` is a monotonic clock; time counts from here."""
        self._now_s = now_s
        self._started_s = now_s()
        #: Besides one event a token there are those of the end and of the usage.
        self._events_left = max_tokens + 8
        self._rest = b""
        self._events = 0
        self._result = Completion(200)
        self._done = False

    def feed(self, data: bytes) -> bool:
        """Take in what was received; False = there is nothing more to wait for."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MAX_EVENT_BYTES:
            self._fail(f"an event of more than {MAX_EVENT_BYTES} bytes: {excerpt(self._rest)}")
        for line in lines:
            if self._done:
                break
            self._line(line.strip())
        return not self._done

    def result(self) -> Completion:
        """The completion so far; one that was broken off says so."""
        result = self._result
        if not self._done and not result.error:
            return replace(result, error="the stream ended before [DONE]")
        if result.completion_tokens is None and not result.error:
            return replace(result, completion_tokens=self._events)  # without usage: one event a token
        return result

    def _line(self, line: bytes) -> None:
        """One line: blank lines, comments and other fields than `data` say nothing."""
        if not line.startswith(b"data:"):
            return
        payload = line[5:].strip()
        if payload == b"[DONE]":
            self._done = True
            return
        self._events_left -= 1
        if self._events_left < 0:
            self._fail("the stream goes on after all tokens that were asked for")
            return
        try:
            event = json.loads(payload)
            choices, usage = event["choices"], event.get("usage")
            if choices:
                self._choice(choices[0]["text"], choices[0].get("finish_reason"))
            if isinstance(usage, dict):
                self._usage(usage["completion_tokens"])
        except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
            self._fail(f"not an event of a completion: {excerpt(payload)}")

    def _choice(self, text: object, reason: object) -> None:
        if not isinstance(text, str):
            raise ValueError("text")
        if self._result.first_token_s is None:
            self._result = replace(self._result, first_token_s=self._now_s() - self._started_s)
        if text or not reason:
            self._events += 1
        known = self._result.finish_reason
        reason = reason if isinstance(reason, str) else known
        self._result = replace(self._result, text=self._result.text + text, finish_reason=reason)

    def _usage(self, tokens: object) -> None:
        if isinstance(tokens, bool) or not isinstance(tokens, int):
            raise ValueError("completion_tokens")
        self._result = replace(self._result, completion_tokens=tokens)

    def _fail(self, error: str) -> None:
        self._done = True
        self._result = replace(self._result, error=error)
