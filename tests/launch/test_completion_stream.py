"""Streamed completions, piece by piece: what is understood, and that garbage and endless streams end."""

from __future__ import annotations

import asyncio
import itertools
import json

import pytest
from odd_server import http, odd_server

from agent.errors import ParseError, SourceTimeout
from agent.launch.canary import fault_of
from agent.sources.engine import CompletionRequest, EngineClient
from agent.sources.engine_answers import MAX_EVENT_BYTES, CompletionStream


def event(text: str | None = None, reason: str | None = None, tokens: int | None = None) -> bytes:
    choices = [] if text is None else [{"text": text, "finish_reason": reason}]
    usage = None if tokens is None else {"completion_tokens": tokens}
    return f"data: {json.dumps({'choices': choices, 'usage': usage})}\n\n".encode()


DONE = b"data: [DONE]\n\n"
WHOLE = event(" one") + event(" two", "length") + event(tokens=2) + DONE


def stream(max_tokens: int = 4) -> CompletionStream:
    ticks = itertools.count()
    return CompletionStream(max_tokens, lambda: float(next(ticks)))


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_a_stream_in_pieces_of_any_size(size: int) -> None:
    taken = stream()
    pieces = [WHOLE[at : at + size] for at in range(0, len(WHOLE), size)]
    going = [taken.feed(piece) for piece in pieces]
    assert going[-1] is False and all(going[:-2])
    found = taken.result()
    assert (found.text, found.finish_reason, found.completion_tokens) == (" one two", "length", 2)
    assert found.first_token_s == 1.0 and fault_of(found) is None


def test_without_usage_the_events_are_counted() -> None:
    taken = stream()
    taken.feed(b": comment\r\nevent: x\r\n" + event(" one") + event(" two") + event("", "stop") + DONE)
    assert taken.result().completion_tokens == 2


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"data: {\n", "not an event of a completion: {"),
        (b"data: []\n", "not an event"),
        (b'data: {"choices": [{"text": 5}]}\n', "not an event"),
        (b'data: {"choices": [{}]}\n', "not an event"),
        (b'data: {"choices": [], "usage": {"completion_tokens": "2"}}\n', "not an event"),
        (b"data: " + b"[" * 100_000 + b"\n", "not an event"),
        (b'data: {"error": {"message": "boom"}}\n', "boom"),
        (b"x" * (MAX_EVENT_BYTES + 1), "more than 262144 bytes"),
        (event("x") * 13, "goes on after all tokens"),
    ],
)
def test_what_is_no_stream_ends_it_with_one_line(data: bytes, error: str) -> None:
    taken = stream()
    assert taken.feed(data) is False
    found = taken.result()
    assert error in found.error and len(found.error) < 260 and "\n" not in found.error
    assert fault_of(found) == found.error


def test_a_stream_that_breaks_off_is_no_completion() -> None:
    taken = stream()
    assert taken.feed(event(" one"))
    assert fault_of(taken.result()) == "the stream ended before [DONE]"


def test_over_http() -> None:
    async def scenario() -> None:
        asked = CompletionRequest("m", (5, 6), 4)
        assert asked.body(stream=True)["prompt"] == [5, 6] and "ignore_eos" not in asked.body()
        async with odd_server(http(200, WHOLE, "text/event-stream")) as port:
            found = await EngineClient("127.0.0.1", port).stream(asked, 10)
            assert found.text == " one two" and found.first_token_s is not None
        async with odd_server(http(500, "EngineDeadError")) as port:
            assert (await EngineClient("127.0.0.1", port).stream(asked, 10)).error == "EngineDeadError"
        async with odd_server(None) as port:
            with pytest.raises(SourceTimeout, match=r"no answer in 0\.1 s"):
                await EngineClient("127.0.0.1", port).stream(asked, 0.1)
        async with odd_server(b"HTTP/1.1 200 OK\r\n\r\n", endless=True) as port:  # one line without end
            found = await EngineClient("127.0.0.1", port).stream(asked, 20)
            assert "more than 262144 bytes" in found.error
        async with odd_server(b"HTTP/1.1 500 X\r\n\r\n", endless=True) as port:
            with pytest.raises(ParseError, match="more than"):
                await EngineClient("127.0.0.1", port).stream(asked, 20)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "body", ["{}", "[]", '{"tokens": [1, true]}', '{"tokens": ["a"]}', '{"tokens": [-1]}']
)
def test_tokens_that_cannot_be_read(body: str) -> None:
    async def scenario() -> None:
        async with odd_server(http(200, body)) as port:
            with pytest.raises(ParseError, match="answers no tokens"):
                await EngineClient("127.0.0.1", port).tokenize("m", "x", 10)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("longest", "found"), [(4096, 4096), (None, None), ("4096", None), (-1, None), (True, None)]
)
def test_the_longest_text_of_a_model(longest: object, found: int | None) -> None:
    async def scenario() -> None:
        body = json.dumps({"data": [{"id": "m", "max_model_len": longest}, {"id": 5}]})
        async with odd_server(http(200, body)) as port:
            (card,) = await EngineClient("127.0.0.1", port).model_cards(10)
            assert (card.name, card.longest_tokens) == ("m", found)

    asyncio.run(scenario())
