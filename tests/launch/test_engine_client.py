"""Reads of an engine's HTTP interface: what is understood, and what garbage becomes."""

from __future__ import annotations

import asyncio
import json

import pytest
from odd_server import http, odd_server
from ports import free_port

from agent.errors import ParseError, SourceError, SourceTimeout, SourceUnavailable
from agent.model import EnginePhase, EngineStatus
from agent.sources import EngineObservation
from agent.sources.engine import (
    CompletionRequest,
    EngineBoard,
    EngineClient,
    base_url,
    parse_completion,
    parse_metrics,
    something_listens,
)

METRICS = """# HELP vllm:num_requests_running Number of requests.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 1.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="m"} 2.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 77.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.75
# TYPE vllm:generation_tokens counter
vllm:generation_tokens_total{engine="0",model_name="m"} 1.5e+06
vllm:generation_tokens_created{engine="0",model_name="m"} 1.79e+09
# TYPE vllm:iteration_tokens_total histogram
vllm:iteration_tokens_total_bucket{engine="0",le="1.0",model_name="m"} 5.0
vllm:iteration_tokens_total_count{engine="0",model_name="m"} 40.0
vllm:iteration_tokens_total_sum{engine="0",model_name="m"} 90.0
"""
GOOD = {"choices": [{"text": " four", "finish_reason": "length"}], "usage": {"completion_tokens": 2}}


def test_metrics_are_summed_over_engines() -> None:
    found = parse_metrics(METRICS)
    assert (found.requests_running, found.requests_waiting) == (4.0, 2.0)
    assert found.kv_cache_used_ratio == 0.75
    assert found.progress == (40.0, 1.5e6, None, None, None)


def test_metrics_that_are_not_exported_are_unknown_and_not_zero() -> None:
    assert parse_metrics("# nothing\nother 1\n").progress == (None,) * 5
    assert parse_metrics("vllm:generation_tokens_total NaN\n").generation_tokens is None


@pytest.mark.parametrize("text", ["vllm:generation_tokens_total{", "vllm:num_requests_running many\n"])
def test_garbled_metrics_are_refused(text: str) -> None:
    with pytest.raises(ParseError, match="/metrics cannot be read"):
        parse_metrics(text)


def test_a_completion() -> None:
    found = parse_completion(200, json.dumps(GOOD).encode())
    assert (found.text, found.finish_reason, found.completion_tokens, found.error) == (
        " four",
        "length",
        2,
        "",
    )


@pytest.mark.parametrize(
    "body",
    [
        "", "[]", "null", "{}", '{"choices": []}', '{"choices": [{"text": "x"}]}', "\x00\xff", "[" * 100_000,
        json.dumps({**GOOD, "usage": {"completion_tokens": True}}),
        json.dumps({**GOOD, "usage": {"completion_tokens": "2"}}),
        json.dumps({**GOOD, "choices": [{"text": 5, "finish_reason": "length"}]}),
    ],
)  # fmt: skip
def test_what_is_no_completion(body: str) -> None:
    found = parse_completion(200, body.encode())
    assert found.error.startswith("not a completion")
    assert len(found.error) < 200


def test_an_error_answer_is_quoted_in_short() -> None:
    found = parse_completion(500, b"EngineCore  died\n" + b"x" * 10_000)
    assert found.error.startswith("EngineCore died xxx") and len(found.error) == 160


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:80"),
        ("0.0.0.0", "http://127.0.0.1:80"),
        ("::", "http://[::1]:80"),
        ("fd00::1", "http://[fd00::1]:80"),
        ("node1", "http://node1:80"),
    ],
)
def test_wildcard_and_ipv6_hosts(host: str, url: str) -> None:
    assert base_url(host, 80) == url


async def _all_reads(port: int) -> list[SourceError]:
    """What each kind of read raises."""
    client = EngineClient("127.0.0.1", port)
    raised: list[SourceError] = []
    try:
        for read in (
            client.health(0.3),
            client.metrics(0.3),
            client.models(0.3),
            client.complete(CompletionRequest("m", "p", 1), 0.3),
        ):
            try:
                await read
            except SourceError as cause:
                raised.append(cause)
    finally:
        await client.close()
    return raised


def test_silence_ends_at_the_deadline() -> None:
    async def scenario() -> None:
        async with odd_server(None) as port:
            raised = await _all_reads(port)
            assert [type(cause) for cause in raised] == [SourceTimeout] * 4
            assert "gave no answer in 0.3 s" in str(raised[0])

    asyncio.run(scenario())


def test_a_port_that_nobody_has() -> None:
    raised = asyncio.run(_all_reads(free_port()))
    assert [type(cause) for cause in raised] == [SourceUnavailable] * 4


@pytest.mark.parametrize(
    "answer", [b"SSH-2.0-x\r\n", b"HTTP/1.1 200", b"", b"HTTP/1.1 999 \xff\r\n\xff: \r\n\r\n"]
)
def test_what_is_not_http(answer: bytes) -> None:
    async def scenario() -> None:
        async with odd_server(answer) as port:
            assert len(await _all_reads(port)) == 4

    asyncio.run(scenario())


def test_an_endless_answer_is_cut_off() -> None:
    async def scenario() -> None:
        async with odd_server(b"HTTP/1.1 200 OK\r\n\r\n", endless=True) as port:
            client = EngineClient("127.0.0.1", port)
            with pytest.raises((ParseError, SourceTimeout)):
                await client.metrics(20.0)
            await client.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("status", "body", "raises"),
    [
        (200, "[]", ParseError),
        (200, "{", ParseError),
        (200, '{"data": [1]}', ParseError),
        (404, "", SourceUnavailable),
    ],
)
def test_models_that_cannot_be_read(status: int, body: str, raises: type[SourceError]) -> None:
    async def scenario() -> None:
        async with odd_server(http(status, body)) as port:
            client = EngineClient("127.0.0.1", port)
            with pytest.raises(raises):
                await client.models(5.0)
            await client.close()

    asyncio.run(scenario())


def test_health_is_only_http_200() -> None:
    async def scenario() -> None:
        for status in (200, 204, 302, 404, 500, 503):
            async with odd_server(http(status, "")) as port:
                client = EngineClient("127.0.0.1", port)
                assert await client.health(5.0) is (status == 200)
                await client.close()

    asyncio.run(scenario())


def test_who_listens() -> None:
    async def scenario() -> None:
        async with odd_server(None) as port:
            assert await something_listens("0.0.0.0", port)
        assert not await something_listens("127.0.0.1", port)

    asyncio.run(scenario())


def test_the_board_tells_of_changes_only() -> None:
    events: list[str] = []
    board = EngineBoard(events.append)
    with pytest.raises(SourceUnavailable, match="engine a has not been observed yet"):
        board.observe("a")
    first = EngineObservation(EngineStatus("a", EnginePhase.WARM, 1.0), health_ok=True, tokens_total=1.0)
    board.publish("a", first)
    board.publish(
        "a", EngineObservation(EngineStatus("a", EnginePhase.WARM, 1.0), health_ok=True, tokens_total=2.0)
    )
    assert events == ["engine"]
    board.publish("a", EngineObservation(EngineStatus("a", EnginePhase.WARM, 1.0), health_ok=False))
    board.publish("a", EngineObservation(EngineStatus("a", EnginePhase.EXITED, 2.0), health_ok=False))
    assert events == ["engine"] * 3
    assert board.observe("a").status.phase is EnginePhase.EXITED
