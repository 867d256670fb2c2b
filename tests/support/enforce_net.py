"""A client and a node as network namespaces; on the node an engine, another port and a fake agent."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar

CLONE_NEWNET = 0x40000000
ENGINE_PORT, OTHER_PORT, API_PORT = 8000, 8002, 9470
NODE4, NODE6, CLIENT4, FRIEND4 = "10.79.0.2", "fd79::2", "10.79.0.1", "10.79.0.3"
NODEGATE = Path(sys.executable).with_name("nodegate")
T = TypeVar("T")


def ip(*words: str) -> None:
    """One `ip` command that must succeed."""
    subprocess.run(["ip", *words], check=True, timeout=30)


class Space:
    """One namespace; `inside` runs in a thread that lives in it, and the sockets that it makes stay in it."""

    def __init__(self, name: str) -> None:
        self.name = name
        ip("netns", "add", name)
        ip("-n", name, "link", "set", "lo", "up")
        self._inside = ThreadPoolExecutor(1, initializer=self._enter)

    def _enter(self) -> None:
        with Path(f"/run/netns/{self.name}").open() as place:
            assert ctypes.CDLL(None, use_errno=True).setns(place.fileno(), CLONE_NEWNET) == 0

    def inside(self, call: Callable[[], T]) -> T:
        """Call it in here."""
        return self._inside.submit(call).result(30)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command in here to its end."""
        argv = ["ip", "netns", "exec", self.name, *words]
        return subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)

    def connect(self, address: str, port: int, source: str = "") -> socket.socket:
        """A TCP connection; OSError if there is none."""
        return self.inside(
            lambda: socket.create_connection((address, port), 10, (source, 0) if source else None)
        )

    def refused(self, address: str = NODE4, port: int = ENGINE_PORT, source: str = "") -> bool:
        """Whether a new connection is reset. Anything else than that or success is an error."""
        try:
            self.connect(address, port, source).close()
        except ConnectionRefusedError:
            return True
        return False

    def close(self) -> None:
        self._inside.shutdown()
        with suppress(subprocess.SubprocessError):
            ip("netns", "del", self.name)


class Echo(socketserver.BaseRequestHandler):
    """Says back what it hears."""

    def handle(self) -> None:
        with suppress(OSError):
            while data := self.request.recv(65536):
                self.request.sendall(data)


class Dual(socketserver.ThreadingTCPServer):
    """IPv4 and IPv6."""

    address_family = socket.AF_INET6
    allow_reuse_address = True
    request_queue_size = 128
    daemon_threads = True

    def server_bind(self) -> None:
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()


class FakeAgent:
    """Answers /readyz/ENGINE as it is told; `vanish` is an agent's sudden end."""

    def __init__(self, node: Space) -> None:
        self._node = node
        self.status = 503
        self._server: ThreadingHTTPServer | None = None

    def start(self) -> None:
        agent = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                if agent._server is not self.server:  # a connection to the one that is gone
                    self.close_connection = True
                    return
                self.send_response(agent.status if self.path == "/readyz/glm" else 404)
                body = b"ok\n" if agent.status == 200 else b""
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                """Silent."""

        self._server = self._node.inside(lambda: ThreadingHTTPServer(("127.0.0.1", API_PORT), Handler))
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def vanish(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()


class EnforceNet:
    """All of it, and the helper."""

    def __init__(self, folder: Path, **enforce: Any) -> None:
        self.folder = folder
        self.helper: subprocess.Popen[bytes] | None = None
        self._servers: list[Dual] = []
        self.client, self.node = Space(f"nge-{os.getpid()}-c"), Space(f"nge-{os.getpid()}-n")
        names = self.client.name, self.node.name
        ip("-n", names[0], "link", "add", "up0", "type", "veth", "peer", "name", "up0", "netns", names[1])
        for name, v4, v6 in ((names[0], (CLIENT4, FRIEND4), "fd79::1"), (names[1], (NODE4,), NODE6)):
            for address in v4:
                ip("-n", name, "addr", "add", f"{address}/24", "dev", "up0")
            ip("-n", name, "addr", "add", f"{v6}/64", "dev", "up0", "nodad")
            ip("-n", name, "link", "set", "up0", "up")
        for port in (ENGINE_PORT, OTHER_PORT):
            self._servers.append(self.node.inside(lambda port=port: Dual(("::", port), Echo)))
        for server in self._servers:
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        self.agent = FakeAgent(self.node)
        self.agent.start()
        self.profile = folder / "site.yaml"
        self.profile.write_text(
            json.dumps(
                {
                    "mode": "gate",
                    "gpus": {"count": 0},
                    "nvlink": {"links_per_gpu": 0},
                    "fabric": {"kind": "none"},
                    "engines": {"glm": {"gpus": [], "port": ENGINE_PORT}},
                    "api": {"port": API_PORT},
                    "enforce": {"enabled": True, **enforce},
                }
            )
        )

    def start_helper(self) -> None:
        words = ["ip", "netns", "exec", self.node.name, str(NODEGATE), "enforce", "run", "--profile"]
        with (self.folder / "helper.log").open("ab") as log:
            self.helper = subprocess.Popen([*words, str(self.profile)], stdout=log, stderr=log)

    def end_helper(self, number: signal.Signals = signal.SIGKILL) -> int:
        """`ip netns exec` has become the helper: its pid is the helper's."""
        assert self.helper is not None
        self.helper.send_signal(number)
        return self.helper.wait(20)

    def log(self) -> str:
        return (self.folder / "helper.log").read_text()

    def until(self, refused: bool, within_s: float) -> float:
        """Seconds until new connections of the client are refused, or taken."""
        began_s = time.monotonic()
        while time.monotonic() - began_s < within_s:
            if self.client.refused() is refused:
                return time.monotonic() - began_s
            time.sleep(0.01)
        raise AssertionError(f"refused is not {refused} within {within_s:g} s:\n{self.log()}")

    def close(self) -> None:
        if self.helper is not None and self.helper.poll() is None:
            self.end_helper()
        self.agent.vanish()
        for server in self._servers:
            server.shutdown()
            server.server_close()
        self.client.close()
        self.node.close()
