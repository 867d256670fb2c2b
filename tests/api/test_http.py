"""The servers as clients meet them: methods, garbage, slow and many clients, and the agent check."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import gate_kit as kit
import pytest
from server_kit import HandTime, Served, published, record, serve

from agent import http_protocol
from agent.agent_check import MAX_CONNECTIONS, Conversations, serve_agent_check
from agent.listening import BACKLOG, bind_tcp
from agent.metrics_page import MetricsPage
from agent.model import GateState as S
from agent.publisher import Publisher, boottime_s

PATHS = ["/livez", "/readyz", "/readyz/glm", "/status", "/metrics", "/history", "/"]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    publisher = Publisher()
    with serve(publisher, tmp_path_factory.mktemp("run")) as servers:
        yield servers


@pytest.fixture(autouse=True)
def serving(served: Served) -> None:
    served.publisher.beat()
    served.publisher.publish(published(record(S.SERVING), at_s=boottime_s(), simulated=True))


def answers_ready(served: Served) -> bool:
    """Whether a fresh publication is answered: on a busy machine the one before the test is stale by now."""
    served.publisher.publish(published(record(S.SERVING), at_s=boottime_s()))
    return served.ask("/readyz").status_code == 200


@pytest.mark.parametrize("path", PATHS)
def test_get_head_and_options_are_served_and_nothing_else(served: Served, path: str) -> None:
    got, head, options = (served.ask(path, method) for method in ("GET", "HEAD", "OPTIONS"))
    assert (got.status_code, head.status_code, options.status_code) == (200, 200, 200)
    assert (bool(got.content), head.content, options.content) == (True, b"", b"")
    assert head.headers["content-length"] == str(len(got.content)) or path in ("/status", "/metrics", "/")
    assert options.headers["allow"] == "GET, HEAD, OPTIONS"
    for method in ("POST", "PUT", "DELETE", "PATCH", "TRACE"):
        refused = served.ask(path, method)
        assert refused.status_code == 405
        assert "GET" in refused.headers["allow"]


def test_head_and_options_of_a_closed_gate_are_503(served: Served) -> None:
    served.publisher.publish(published(record(S.FAILED, blockers=(kit.HEAT,)), at_s=boottime_s()))
    for method in ("GET", "HEAD", "OPTIONS"):
        answer = served.ask("/readyz/glm", method)
        assert answer.status_code == 503
        assert answer.headers["x-envoy-immediate-health-check-fail"] == "true"


def test_unknown_engines_and_paths_are_404_json(served: Served) -> None:
    assert served.ask("/readyz/none").json()["engines"] == ["glm"]
    for path in (
        "/readyz/none",
        "/readyz/%2e%2e%2fetc",
        "/nothing",
        "/readyz/glm/more",
        "/admin",
        "/gate/drain",
    ):
        answer = served.ask(path)
        assert answer.status_code == 404
        assert answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize("path", ["/readyz/", "/readyz/glm/", "/readyz/glm%2f", "/livez/", "/metrics/"])
def test_no_path_is_answered_with_a_redirect(served: Served, path: str) -> None:
    """HAProxy and Kubernetes take a 3xx of a health check for success."""
    served.publisher.publish(published(record(S.FAILED, blockers=(kit.HEAT,)), at_s=boottime_s()))
    answer = served.ask(path)
    assert (answer.status_code, "location" in answer.headers) == (404, False)


def test_the_status_page_escapes_and_says_simulated(served: Served) -> None:
    evil = replace(kit.HEAT, summary="<script>alert(1)</script>")
    served.publisher.publish(published(record(S.FAILED, blockers=(evil,)), at_s=boottime_s(), simulated=True))
    page = served.ask("/").text
    assert "SIMULATED" in page
    assert "&lt;script&gt;" in page
    assert page.count("<script") == 1  # the page's own


def test_the_page_and_status_are_there_before_anything_is_published(tmp_path: Path) -> None:
    with serve(Publisher(), tmp_path) as bare:
        assert {path: bare.ask(path).status_code for path in PATHS} == {
            "/livez": 503, "/readyz": 503, "/readyz/glm": 503, "/status": 200, "/metrics": 200,
            "/history": 200, "/": 200,
        }  # fmt: skip


def test_metrics_are_made_once_a_second_and_never_hide_a_gate_that_closed() -> None:
    now = HandTime()
    publisher = Publisher(now)
    page = MetricsPage(publisher)
    assert b"nodegate_gate_ready{" not in page.reply().body
    publisher.beat()
    publisher.publish(published(record(S.SERVING), at_s=now.now_s))
    first = page.reply()
    assert b'nodegate_gate_ready{engine="glm"} 1.0' in first.body
    assert b"nodegate_mode{" in first.body
    publisher.publish(published(record(S.SERVING), at_s=now.now_s))
    assert page.reply() is first
    publisher.publish(published(record(S.FAILED, blockers=(kit.HEAT,)), at_s=now.now_s))
    assert b'nodegate_gate_ready{engine="glm"} 0.0' in page.reply().body
    publisher.publish(published(record(S.SERVING), at_s=now.now_s))
    assert b'nodegate_gate_ready{engine="glm"} 1.0' in page.reply().body
    now.now_s += 10.0
    assert b'nodegate_gate_ready{engine="glm"} 0.0' in page.reply().body


def test_metrics_tell_of_gates(served: Served) -> None:
    text = served.ask("/metrics").text
    assert 'nodegate_gate_ready{engine="glm"} 1.0' in text
    assert 'nodegate_gate_state{engine="glm",state="serving"} 1.0' in text


GARBAGE = [
    b"\x00" * 64,
    b"\xff\xfe\r\n\r\n",
    b"GET\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET /readyz HTTP/1.1\r\n\r\n",
    b"GET /\xe2\x82\xac HTTP/1.1\r\nhost: x\r\n\r\n",
    b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n",
    b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"A" * 100_000,
    b"GET / HTTP/1.1\r\nx: " + b"y" * 100_000 + b"\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
]


@pytest.mark.parametrize("raw", GARBAGE, ids=range(len(GARBAGE)))
def test_garbage_gets_4xx_or_nothing_and_does_no_harm(served: Served, raw: bytes) -> None:
    with socket.create_connection(("127.0.0.1", served.port), timeout=30) as peer:
        with contextlib.suppress(ConnectionError):
            peer.sendall(raw)
            peer.shutdown(socket.SHUT_WR)
        said = b""
        with contextlib.suppress(ConnectionError):
            while chunk := peer.recv(65536):
                said += chunk
    assert said == b"" or said.startswith((b"HTTP/1.1 4", b"HTTP/1.1 200"))
    assert b" 500 " not in said.partition(b"\r\n")[0]
    assert answers_ready(served)


def test_silent_and_slow_clients_are_dropped(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "PATIENCE_S", 0.3)
    for begun in (
        b"",
        b"GET /readyz HT",
        b"POST /readyz HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nab",
    ):
        with socket.create_connection(("127.0.0.1", served.port), timeout=30) as peer:
            peer.sendall(begun)
            with contextlib.suppress(ConnectionError):
                while peer.recv(4096):
                    pass  # ends only when the server drops the connection


def test_many_idle_clients_do_not_keep_a_load_balancer_out(served: Served) -> None:
    idle: list[socket.socket] = []
    try:
        for _ in range(http_protocol.MAX_CONNECTIONS + 20):
            idle.append(socket.create_connection(("127.0.0.1", served.port), timeout=30))
        assert answers_ready(served)
        # The oldest have made room.
        idle[0].settimeout(30)
        with contextlib.suppress(ConnectionError):
            assert idle[0].recv(1) == b""
    finally:
        for peer in idle:
            peer.close()


def test_a_client_that_reads_slowly_is_dropped(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "PATIENCE_S", 0.3)
    with socket.socket() as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        peer.settimeout(30)
        peer.connect(("127.0.0.1", served.port))
        with contextlib.suppress(ConnectionError):
            # Asks and asks and reads nothing, until it is dropped.
            end_s = time.monotonic() + 30
            while time.monotonic() < end_s:
                peer.sendall(b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n" * 100)
            raise AssertionError("never dropped")
    monkeypatch.undo()
    assert answers_ready(served)


def test_the_agent_check_says_its_line_whatever_it_hears(served: Served) -> None:
    assert served.agent_line() == b"up ready 100%\n"
    assert served.agent_line(b"\x00\xff" * 1000) == b"up ready 100%\n"
    served.publisher.publish(published(record(S.DRAINING), at_s=boottime_s()))
    assert served.agent_line() == b"drain\n"


def test_agent_check_clients_that_stay_are_ended(served: Served) -> None:
    peers = [socket.create_connection(("127.0.0.1", served.check_port), timeout=30) for _ in range(200)]
    try:
        assert served.agent_line() == b"up ready 100%\n"
        began_s = time.monotonic()
        last = peers[-1].makefile("rb")
        with contextlib.suppress(ConnectionError):
            assert last.read() == b"up ready 100%\n"
        assert time.monotonic() - began_s < 20
    finally:
        for peer in peers:
            peer.close()


def test_a_flood_of_agent_checks_is_bounded_for_all_engines_together() -> None:
    async def flood() -> int:
        talking: Conversations = {}
        loop = asyncio.get_running_loop()
        listeners = [bind_tcp("127.0.0.1", 0, "test") for _ in range(4)]
        servers = [await serve_agent_check(each, lambda: "drain", talking) for each in listeners]
        most = 0
        peers = []
        for _ in range(MAX_CONNECTIONS // 2):
            for listener in listeners:
                peer = socket.socket()
                peer.setblocking(False)
                await loop.sock_connect(peer, listener.getsockname())
                peers.append(peer)
                await asyncio.sleep(0)
                most = max(most, len(talking))
        for server in servers:
            server.close()
        for peer in peers:
            peer.close()
        while talking:  # noqa: ASYNC110 (there is no event for it)
            await asyncio.sleep(0.01)
        return most

    # A connection that is dropped for a new one is gone at the loop's next turn.
    assert 0 < asyncio.run(flood()) <= MAX_CONNECTIONS + 8


def test_connections_that_come_all_at_once_are_bounded_too(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_protocol, "MAX_CONNECTIONS", 32)
    most = 0
    take_in = http_protocol.BoundedProtocol.connection_made

    def counting(self: http_protocol.BoundedProtocol, transport: asyncio.Transport) -> None:
        nonlocal most
        take_in(self, transport)
        most = max(most, len(self.connections))

    monkeypatch.setattr(http_protocol.BoundedProtocol, "connection_made", counting)
    busy, release = threading.Event(), threading.Event()

    def slow_clock() -> float:
        busy.set()
        release.wait(60)
        return boottime_s()

    monkeypatch.setattr(served.publisher, "clock", slow_clock)
    asking = threading.Thread(target=served.ask, args=("/readyz",))
    peers = []
    try:
        asking.start()
        assert busy.wait(30)  # the servers' loop stands still; the connections wait in the kernel's queue
        for _ in range(400):
            peer = socket.socket()
            peer.setblocking(False)
            peer.connect_ex(("127.0.0.1", served.port))
            peers.append(peer)
    finally:
        release.set()
        asking.join(30)
    assert answers_ready(served)
    for peer in peers:
        peer.close()
    assert 32 <= most <= 32 + BACKLOG + 1


def test_a_brief_status_counts_results_and_names_the_first_reasons(served: Served) -> None:
    reasons = tuple(replace(kit.HEAT, subject=f"gpu{i}") for i in range(5))
    served.publisher.publish(published(record(S.FAILED, blockers=reasons), at_s=boottime_s()))
    whole, brief = served.ask("/status").json(), served.ask("/status?brief=1").json()
    (gate,) = brief["gates"]
    assert len(whole["gates"][0]["blocking"]) == gate["blocking_count"] == 5
    assert [reason["subject"] for reason in gate["blocking"]] == ["gpu0", "gpu1", "gpu2"]
    assert set(whole) - set(brief) == {"results"} and set(brief) - set(whole) == {"counts"}
    assert served.ask("/status?brief=0").json().keys() == whole.keys()
