"""One broken connection closes no gate, and what no program expects in an answer or a key ends no agent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from odd_server import http, odd_server

from agent.engine_profile import Canary
from agent.errors import ConfigError, ParseError, SourceError, SourceUnavailable
from agent.launch.canary import CanaryRunner
from agent.profile_loader import profile_from_dict
from agent.sources import CanaryVerdict
from agent.sources.clock import LiveClock
from agent.sources.engine import CompletionRequest, EngineClient

GOOD = '{"choices": [{"text": "a", "finish_reason": "stop"}], "usage": {"completion_tokens": 1}}'


def breaking_first(answer: bytes, use: Callable[[EngineClient], Awaitable[None]]) -> None:
    """A server that resets its first connection and answers all others."""

    async def scenario() -> None:
        connections = 0

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal connections
            connections += 1
            await reader.readuntil(b"\r\n\r\n")
            if connections > 1:
                writer.write(answer)
                await writer.drain()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        client = EngineClient("127.0.0.1", server.sockets[0].getsockname()[1])
        try:
            await use(client)
        finally:
            await client.close()
            server.close()
            await server.wait_closed()

    asyncio.run(scenario())


def test_one_broken_connection_is_not_bad_health() -> None:
    async def use(client: EngineClient) -> None:
        assert await client.health(10)

    breaking_first(http(200, ""), use)


def test_one_broken_connection_is_not_a_dead_canary() -> None:
    async def use(client: EngineClient) -> None:
        canary = CanaryRunner(Canary(deadline_s=10), client, LiveClock())
        assert (await canary.run("m")).verdict is CanaryVerdict.OK

    breaking_first(http(200, GOOD), use)


def asked(answer: bytes, use: Callable[[EngineClient], Awaitable[None]], key: str | None = None) -> None:
    async def scenario() -> None:
        async with odd_server(answer) as port:
            client = EngineClient("127.0.0.1", port, api_key=key)
            try:
                await use(client)
            finally:
                await client.close()

    asyncio.run(scenario())


def test_a_cookie_that_is_no_text_is_not_sent_back() -> None:
    answer = b"HTTP/1.1 200 OK\r\nset-cookie: a=\xff\xfe\r\ncontent-length: 0\r\n\r\n"

    async def use(client: EngineClient) -> None:
        assert await client.health(10)
        assert await client.health(10)

    asked(answer, use)


def test_a_model_name_that_cannot_be_sent_is_a_parse_error() -> None:
    async def use(client: EngineClient) -> None:
        (name,) = await client.models(10)
        with pytest.raises(ParseError, match="/v1/completions cannot be read"):
            await client.complete(CompletionRequest(name, "x", 1), 10)

    asked(http(200, '{"data": [{"id": "\\ud800"}]}'), use)


@pytest.mark.parametrize("key", ["schl\N{LATIN SMALL LETTER U WITH DIAERESIS}ssel", "k\x01ey", " blank "])
def test_a_key_that_is_no_header_is_an_error_that_does_not_show_it(key: str) -> None:
    async def use(client: EngineClient) -> None:
        try:
            await client.health(10)
        except SourceUnavailable as cause:
            assert key.strip() not in str(cause) and "k\\x01ey" not in str(cause)
        except SourceError as cause:
            raise AssertionError(f"not expected: {cause}") from cause

    asked(http(200, ""), use, key)


@pytest.mark.parametrize("key", ["working_dir", "env_file"])
def test_a_path_with_a_nul_byte_is_refused_by_the_profile(key: str) -> None:
    engine = {"gpus": [], "port": 8000, "launch": {key: "/a\0b"}}
    node = {"gpus": {"count": 0}, "nvlink": {"links_per_gpu": 0}, "fabric": {"kind": "none"}}
    with pytest.raises(ConfigError, match="cannot hold a NUL byte"):
        profile_from_dict({"node": "n", **node, "engines": {"a": engine}})


@pytest.mark.parametrize("host", ["[::1]", "a..b", "fe80::1%eth0", "a:80", "http://a", "", "x" * 300, "a b"])
def test_a_host_that_no_url_can_hold_is_refused_by_the_profile(host: str) -> None:
    engine = {"gpus": [], "port": 8000, "host": host}
    node = {"gpus": {"count": 0}, "nvlink": {"links_per_gpu": 0}, "fabric": {"kind": "none"}}
    with pytest.raises(ConfigError, match="write an IP address or a host name"):
        profile_from_dict({"node": "n", **node, "engines": {"a": engine}})
