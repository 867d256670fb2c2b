"""The servers' thread around a publisher that the test fills by hand."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gate_kit as kit
import httpx

from agent.admin import Office, make_admin
from agent.api import make_api
from agent.gate import GateRecord, new_gate
from agent.holds import EngineHolds, Holds
from agent.http_protocol import PeerProtocol
from agent.listening import ADMIN_SOCKET, bind_tcp, bind_unix
from agent.model import GateState
from agent.node_profile import Mode, NodeProfile
from agent.profile_loader import profile_from_dict
from agent.publisher import NodeFacts, Publication, Publisher, answers_of
from agent.server_thread import ServerThread, http_server

MAX_AGE_S = 5.0


def profile(engines: tuple[str, ...] = ("glm",), mode: str = "manage", **engine: Any) -> NodeProfile:
    """A node without GPUs; no port of it is used."""
    parts = {name: {"gpus": [], "port": 20000 + i, **engine} for i, name in enumerate(engines)}
    return profile_from_dict(
        {
            "node": "bench",
            "mode": mode,
            "gpus": {"count": 0},
            "nvlink": {"links_per_gpu": 0},
            "fabric": {"kind": "none"},
            "engines": parts,
        }
    ).profile


def record(state: GateState, engine: str = "glm", **more: Any) -> GateRecord:
    """A gate in a state."""
    return replace(new_gate(kit.config(engine=engine), 0.0), state=state, reason=f"is {state}", **more)


class HandTime:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def published(
    *records: GateRecord, at_s: float, mode: Mode = Mode.MANAGE, simulated: bool = False
) -> Publication:
    """A publication of some gates."""
    names = tuple(each.config.engine for each in records)
    by_name = dict(zip(names, records, strict=True))
    facts = NodeFacts("bench", "boot-a", simulated, mode, "f" * 64, MAX_AGE_S)
    return Publication(
        mono_s=at_s,
        gate_mono_s=at_s,
        facts=facts,
        answers=answers_of(by_name, profile(names)),
        records=by_name,
        holds=Holds(engines={name: EngineHolds() for name in names}),
    )


@dataclass
class Served:
    """Where the servers are."""

    publisher: Publisher
    port: int
    check_port: int
    socket: Path

    def ask(self, path: str, method: str = "GET") -> httpx.Response:
        """One request over TCP."""
        return httpx.request(method, f"http://127.0.0.1:{self.port}{path}", timeout=30, trust_env=False)

    def operator(self, method: str, path: str, content: bytes | None = None) -> httpx.Response:
        """One request over the operator socket."""
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(self.socket)), timeout=30) as client:
            headers = {"content-type": "application/json"}
            return client.request(method, f"http://nodegate{path}", content=content, headers=headers)

    def order(self, path: str, **body: Any) -> httpx.Response:
        """One order of an operator."""
        return self.operator("POST", path, json.dumps(body).encode())

    def agent_line(self, sent: bytes = b"") -> bytes:
        """All that the agent check says."""
        with socket.create_connection(("127.0.0.1", self.check_port), timeout=30) as peer:
            if sent:
                peer.sendall(sent)
            said = b""
            while chunk := peer.recv(4096):
                said += chunk
            return said


@contextmanager
def serve(publisher: Publisher, folder: Path, office: Office | None = None) -> Iterator[Served]:
    """All servers, on ports of their own; the operators' only with an office."""
    thread = ServerThread()
    api = bind_tcp("127.0.0.1", 0, "api.port")
    check = bind_tcp("127.0.0.1", 0, "engines.glm.agent_check_port")
    served = Served(publisher, api.getsockname()[1], check.getsockname()[1], folder / ADMIN_SOCKET)
    thread.add_http(http_server(make_api(publisher)), api)
    thread.add_agent_check(check, lambda: publisher.agent_line("glm"))
    if office is not None:
        thread.add_http(http_server(make_admin(office), PeerProtocol), bind_unix(served.socket))
    thread.start()
    try:
        yield served
    finally:
        thread.stop()


@contextmanager
def main_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop on a thread, in the place of the daemon's main loop."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)
        loop.close()
