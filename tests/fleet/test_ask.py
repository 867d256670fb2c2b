"""Agents that lie, dawdle or are none: only a whole answer of the right node in time is one."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable

import pytest
from many_nodes import Agents, address_of, brief, name_of

from agent.fleet.ask import MOST_BYTES, PATH, Answer, ask, ask_all, room_for
from agent.fleet.profile_facts import ProfileFacts
from agent.fleet.site import SiteHost

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
GOOD = json.dumps(brief("n1")).encode()
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def answer_of(serve: Serve, timeout_s: float = 5.0, node: str = "n1") -> Answer:
    """What comes of asking a server that does this with each connection."""

    async def run() -> Answer:
        writers: list[asyncio.StreamWriter] = []

        async def kept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writers.append(writer)
            await serve(reader, writer)

        server = await asyncio.start_server(kept, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server:
            answer = await ask(SiteHost("n1", "127.0.0.1", ProfileFacts(node=node, api_port=port)), timeout_s)
        await end(writers)
        return answer

    return asyncio.run(run())


async def end(writers: list[asyncio.StreamWriter]) -> None:
    """Drop the server's side of every connection."""
    for writer in writers:
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def sends(data: bytes) -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(data)
        writer.close()

    return serve


def body(data: bytes) -> Serve:
    return sends(HEAD + f"content-length: {len(data)}\r\n\r\n".encode() + data)


def changed(**more: object) -> bytes:
    return json.dumps({**brief("n1"), **more}).encode()


def gate(**more: object) -> bytes:
    return changed(gates=[{**brief("n1")["gates"][0], **more}])


def test_an_agent_is_asked_for_little_and_understood() -> None:
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(HEAD + f"content-length: {len(GOOD)}\r\n\r\n".encode() + GOOD)

    told = answer_of(serve).told
    assert told is not None and told.gates[0].state == "serving" and told.counts["PASS"] == 449
    assert asked[0].startswith(f"GET {PATH} HTTP/1.1\r\n".encode())


def test_an_agent_that_knows_no_brief_status_is_understood_too() -> None:
    whole = {**brief("n1"), "results": [{"verdict": "PASS"}, {"verdict": "FAIL"}, {"verdict": "PASS"}]}
    del whole["counts"]
    told = answer_of(body(json.dumps(whole).encode())).told
    assert told is not None and told.counts == {"PASS": 2, "FAIL": 1}


@pytest.mark.parametrize(
    ("served", "why"),
    [
        (body(b"<html>"), "no JSON"),
        (body(b"[" * 100_000), "no JSON"),
        (body(b"{}"), "no nodegate agent"),
        (body(b"[1, 2]"), "no nodegate agent"),
        (body(GOOD[:-20]), "no JSON"),
        (body(changed(schema=2)), "another generation"),
        (body(changed(gates="all well")), "not whole (gates)"),
        (body(changed(live="yes")), "not whole (live)"),
        (body(changed(node="n7")), "node n7 answers at this address"),
        (body(changed(node="n7\x1b[2J")), r"node n7\x1b[2J answers"),
        (body(gate(ready="true")), "not whole (gates.0.ready)"),
        (body(gate(ready=1)), "not whole (gates.0.ready)"),
        (body(gate(since_s="NaN")), "not whole (gates.0.since_s)"),
        (body(GOOD.replace(b"4021.3", b"NaN")), "not whole (gates.0.since_s)"),
        (body(gate(state="failed", ready=True)), "contradicts itself: main is ready and failed"),
        (body(changed(live=False)), "contradicts itself"),
        (body(changed(gates=brief("n1")["gates"] * 2)), "names an engine twice"),
        (sends(b"SSH-2.0-OpenSSH_9.2\r\n"), "no HTTP"),
        (sends(b""), "no HTTP"),
        (sends(HEAD + b"content-length: 90\r\n\r\n{"), "no HTTP"),
        (sends(HEAD + b"content-length: 90\r\ncontent-length: 91\r\n\r\n{"), "no HTTP"),
        (sends(b"HTTP/1.1 200 OK\r\n" + b"x: " + b"y" * 70_000), "no HTTP"),
        (sends(b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\n\r\n"), "says HTTP 302"),
        (sends(b"HTTP/1.1 503 x\r\ncontent-length: 0\r\n\r\n"), "says HTTP 503"),
    ],
)  # fmt: skip
def test_what_is_no_whole_answer_is_unknown(served: Serve, why: str) -> None:
    answer = answer_of(served)
    assert answer.told is None
    assert why in answer.why and answer.why.isprintable()


def test_a_body_without_end_is_given_up_at_the_bound() -> None:
    sent = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD + b"transfer-encoding: chunked\r\n\r\n")
        try:
            while True:
                writer.write(b"10000\r\n" + b" " * 65536 + b"\r\n")
                sent += 65536
                await writer.drain()
        except OSError:
            writer.close()

    assert answer_of(serve, 30.0).why == "what answers there sends more than 1024 KiB"
    assert sent < 16 * MOST_BYTES


def test_one_that_says_a_byte_at_a_time_does_not_outlast_the_time() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            for byte in HEAD * 1000:
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(0.01)
        except OSError:
            writer.close()

    assert answer_of(serve, 0.2).why == "no answer within 0.2 s"


def test_a_port_where_nobody_listens_and_an_address_that_is_none() -> None:
    closed = SiteHost("n1", "127.0.0.1", ProfileFacts(api_host="127.0.0.1", api_port=1))
    assert "connection refused; api.host of its profile is 127.0.0.1" in asyncio.run(ask(closed, 5)).why
    nowhere = asyncio.run(ask(SiteHost("n1", "a" * 70 + ".invalid"), 5))
    assert nowhere.told is None and nowhere.why.isprintable()


def test_many_are_asked_together_and_the_dead_cost_one_wait() -> None:
    async def run() -> dict[str, Answer]:
        agents = Agents({address_of(i): json.dumps(brief(name_of(i))).encode() for i in range(30)})
        release, writers = asyncio.Event(), []  # type: asyncio.Event, list[asyncio.StreamWriter]

        async def silent(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writers.append(writer)
            await release.wait()

        async with await agents.start(), await asyncio.start_server(silent, "127.78.0.1", 0) as dead:
            port = dead.sockets[0].getsockname()[1]
            hosts = [
                SiteHost(name_of(i), address_of(i), ProfileFacts(api_port=agents.port)) for i in range(30)
            ]
            hosts += [SiteHost(f"d{i}", "127.78.0.1", ProfileFacts(api_port=port)) for i in range(10)]
            found = await ask_all(hosts, timeout_s=4.0, concurrent=40)
            release.set()
            await end(writers)
            return found

    found = asyncio.run(run())
    assert [name for name, one in found.items() if one.told is None] == [f"d{i}" for i in range(10)]


def test_as_many_connections_as_the_process_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[tuple[int, int]] = []
    monkeypatch.setattr("agent.fleet.ask.resource.getrlimit", lambda _: (128, 300))
    monkeypatch.setattr("agent.fleet.ask.resource.setrlimit", lambda _, new: limits.append(new))
    assert room_for(32) == 32 and limits == []
    assert room_for(500) == 236 and limits == [(300, 300)]


def test_one_agent_is_not_two_nodes() -> None:
    """A copied address: where no profile names the node, one agent would count twice."""

    async def both(named: str) -> list[Answer]:
        server = await asyncio.start_server(body(changed()), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        hosts = [
            SiteHost(name, "127.0.0.1", ProfileFacts(node=named if name == "n1" else "", api_port=port))
            for name in ("n1", "n2")
        ]
        async with server:
            answers = await ask_all(hosts)
        return [answers["n1"], answers["n2"]]

    first, second = asyncio.run(both(""))
    assert first.told is None and "n2 has the same address and port" in first.why
    assert second.told is None and "n1 has the same address and port" in second.why
    first, second = asyncio.run(both("n1"))
    assert first.told is not None and second.told is None
