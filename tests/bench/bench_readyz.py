"""What an answer of /readyz costs, against an empty FastAPI route in the same server, in the same run."""

from __future__ import annotations

import http.client
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bench_table import Ratio
from fastapi import FastAPI, Response

from agent.api import make_api
from agent.holds import Holds
from agent.listening import bind_tcp
from agent.node_profile import Mode
from agent.publisher import Answer, NodeFacts, Publication, Publisher
from agent.server_thread import ServerThread, http_server

REQUESTS = 300
ROUNDS = 5


def measure() -> list[Ratio]:
    """An open and a closed gate against the empty route; rounds alternate, the fastest of each counts."""
    opened, closed = _publisher(ready=True), _publisher(ready=False)
    with _serving(make_api(opened), make_api(closed), _empty_app()) as (open_port, closed_port, empty_port):
        rounds = [[_round(port) for port in (open_port, closed_port, empty_port)] for _ in range(ROUNDS)]
    open_s, closed_s, empty_s = (min(column) / REQUESTS for column in zip(*rounds, strict=True))
    base = "empty FastAPI route"
    return [
        Ratio("/readyz, open gate", open_s, empty_s, base),
        Ratio("/readyz, closed gate", closed_s, empty_s, base),
    ]


def _empty_app() -> FastAPI:
    app = FastAPI(openapi_url=None)

    @app.get("/readyz")
    async def nothing() -> Response:
        return Response()

    return app


def _publisher(ready: bool) -> Publisher:
    """One engine's answer, as old as the benchmark is at most."""
    state, line = ("serving", "up ready 100%") if ready else ("failed", "down #nvlink.links")
    action = {"kind": "none", "hint": "", "play": None}
    why = {"check": "nvlink.links", "subject": "gpu6", "summary": "link 3 is down", "action": action}
    answer = Answer("main", state, ready, "bench", () if ready else (why,), line)
    publisher = Publisher()
    facts = NodeFacts("bench", "boot", True, Mode.GATE, "0" * 64, max_age_s=600.0)
    now_s = publisher.clock()
    publisher.publish(Publication(now_s, now_s, facts, {"main": answer}, {}, Holds()))
    publisher.beat()
    return publisher


@contextmanager
def _serving(*apps: FastAPI) -> Iterator[list[int]]:
    """Each application on a port of its own, all in the daemon's own kind of server."""
    thread = ServerThread()
    listeners: list[socket.socket] = []
    for app in apps:
        listeners.append(bind_tcp("127.0.0.1", 0, "bench"))
        thread.add_http(http_server(app), listeners[-1])
    thread.start()
    try:
        yield [int(listener.getsockname()[1]) for listener in listeners]
    finally:
        thread.stop()


def _round(port: int) -> float:
    """Seconds of some requests over one connection."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    began_s = time.perf_counter()
    for _ in range(REQUESTS):
        connection.request("GET", "/readyz")
        connection.getresponse().read()
    took_s = time.perf_counter() - began_s
    connection.close()
    return took_s
