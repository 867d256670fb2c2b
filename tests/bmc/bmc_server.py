"""The network of a simulated BMC: HTTP or HTTPS, a thread for each connection, faults included."""

from __future__ import annotations

import json
import select
import socket
import ssl
import threading
import time
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from bmc_faults import Fault
from bmc_netns import in_netns
from bmc_reply import Refusal, Reply, Request, busy, message, not_there
from bmc_service import Bmc

IDLE_S = 60.0
HANDSHAKE_S = 10.0
DRIP_S = 0.02
#: How often a BMC that is down looks whether it is up again.
LOOK_S = 0.02
MOST_BODY_BYTES = 1 << 30


class BmcServer:
    """Serves one Bmc. The port stays reserved while nothing listens, so that a client sees "refused"."""

    def __init__(
        self, bmc: Bmc, address: str, port: int, certificate: Path | None, netns: str | None = None
    ) -> None:
        self.bmc = bmc
        self.released = threading.Event()
        self.context: ssl.SSLContext | None = None
        if certificate is not None:
            self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.context.load_cert_chain(certificate)
        self._netns = netns
        self._family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._reserve = self._bound((address, port))
        self.address = self._reserve.getsockname()[:2]
        self._wake, self._wake_end = socket.socketpair()
        self._open: set[socket.socket] = set()
        self._open_lock = threading.Lock()
        self._thread = threading.Thread(target=self._accept, name=f"bmc {bmc.name}", daemon=True)
        bmc.faults.on_change = self.look

    def start(self) -> None:
        self._listener: socket.socket | None = self._listening()
        self._thread.start()

    def stop(self) -> None:
        self.released.set()
        self.look()
        self._thread.join(5)
        self._cut()
        for each in (self._reserve, self._wake, self._wake_end):
            each.close()

    def look(self) -> None:
        """Look at once whether the BMC is up."""
        try:
            self._wake.send(b".")
        except OSError:
            return  # stopped

    def _bound(self, where: tuple[str, int]) -> socket.socket:
        with in_netns(self._netns):
            found = socket.socket(self._family)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(where)
        return found

    def _listening(self) -> socket.socket:
        found = self._bound(self.address)
        found.listen(64)
        return found

    def _accept(self) -> None:
        while not self.released.is_set():
            if self.bmc.down():
                if self._listener is not None:
                    self._listener.close()
                    self._listener = None
                    self._cut()
                self.released.wait(LOOK_S)
                continue
            if self._listener is None:
                self._listener = self._listening()
            ready, _, _ = select.select([self._listener, self._wake_end], [], [])
            if self._wake_end in ready:
                self._wake_end.recv(4096)
            elif self._listener in ready:
                self._serve(self._listener.accept()[0])
        if self._listener is not None:
            self._listener.close()

    def _serve(self, connection: socket.socket) -> None:
        with self._open_lock:
            self._open.add(connection)
        threading.Thread(target=self._connection, args=(connection,), daemon=True).start()

    def _connection(self, connection: socket.socket) -> None:
        stream = connection
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.bmc.faults.pick_connection() is not None:
                connection.recv(16)  # a part of the client's greeting, then nothing
                return
            if self.context is not None:
                connection.settimeout(HANDSHAKE_S)
                stream = self.context.wrap_socket(connection, server_side=True)
                with self._open_lock:
                    self._open.add(stream)
            stream.settimeout(IDLE_S)
            _Handler(stream, ("", 0), self)
        except OSError:
            return  # a client that hangs up or refuses the certificate is what many tests are about
        finally:
            with self._open_lock:
                self._open -= {stream, connection}
            for each in (stream, connection):
                each.close()

    def _cut(self) -> None:
        """Break every connection off."""
        with self._open_lock:
            waiting = list(self._open)
        for each in waiting:
            try:
                # Not that of SSLSocket: it would take the TLS object away from the thread that reads.
                socket.socket.shutdown(each, socket.SHUT_RDWR)
            except OSError:
                continue  # wrapped by TLS (its descriptor is elsewhere), or gone already


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: BmcServer

    def log_message(self, format: str, *args: Any) -> None:
        """Silent."""

    def do_GET(self) -> None:
        self._handle()

    do_HEAD = do_POST = do_PATCH = do_PUT = do_DELETE = do_OPTIONS = do_GET

    def _handle(self) -> None:
        bmc = self.server.bmc
        if bmc.down():  # the listener closes a moment later
            self.close_connection = True
            return
        path, _, query = self.path.partition("?")
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(self.command, path, query, headers, self._body())
        seen = bmc.record.note(request)
        fault = bmc.faults.pick(self.command, path)
        if fault is not None:
            seen.fault = fault.kind
            if fault.kind not in ("drop-answer", "drop-body", "drip", "truncated-json"):
                seen.status = self._misbehave(fault)
                return
        reply = bmc.answer(request)
        if bmc.machine.bmc_down_until_s is not None:
            self.close_connection = True
        if fault is not None:
            self._spoil(reply, fault.kind)
            return
        seen.status = reply.status
        self._send(reply)
        if bmc.machine.bmc_down_until_s is not None:
            self.server.look()

    def _body(self) -> bytes:
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            parts = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        length = int(self.headers.get("Content-Length") or 0)
        return self.rfile.read(min(length, MOST_BODY_BYTES))

    def _send(self, reply: Reply) -> None:
        body = _bytes_of(reply)
        self.wfile.write(self._head(reply, len(body)))
        if self.command != "HEAD":
            self.wfile.write(body)

    def _head(self, reply: Reply, length: int) -> bytes:
        lines = [f"HTTP/1.1 {reply.status} {self.responses.get(reply.status, ('',))[0]}"]
        headers = {
            "Date": formatdate(usegmt=True),
            "OData-Version": "4.0",
            "Cache-Control": "no-cache",
            "Content-Length": str(length),
        }
        if length:
            headers["Content-Type"] = reply.content_type
        if self.close_connection:
            headers["Connection"] = "close"
        if reply.status == 204 or reply.status == 304:
            del headers["Content-Length"]
        lines += [f"{name}: {value}" for name, value in (headers | reply.headers).items()]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    def _misbehave(self, fault: Fault) -> int:
        """Answer in a bad way, or not at all; the status that was sent, 0 for none."""
        if fault.kind in ("hang", "drop"):
            if fault.kind == "hang":
                self.server.released.wait(IDLE_S)
            self.close_connection = True
            return 0
        reply = _fault_reply(self.server.bmc, fault, self.path)
        self._send(reply)
        return reply.status

    def _spoil(self, reply: Reply, kind: str) -> None:
        """The request was carried out; its answer does not arrive as it should."""
        body = _bytes_of(reply)
        if kind == "truncated-json":
            self._send(Reply(reply.status, raw=body[: len(body) // 2] or b"{", headers=reply.headers))
            return
        self.close_connection = True
        if kind == "drop-answer":
            return
        self.wfile.write(self._head(reply, max(len(body), 64)))
        if kind == "drop-body":
            self.wfile.write(body[: len(body) // 2])
            return
        for each in body:
            if self.server.released.wait(DRIP_S):
                return
            self.wfile.write(bytes([each]))


def _bytes_of(reply: Reply) -> bytes:
    if reply.raw is not None:
        return reply.raw
    return b"" if reply.document is None else json.dumps(reply.document).encode()


def _fault_reply(bmc: Bmc, fault: Fault, path: str) -> Reply:
    if fault.kind == "busy":
        return busy(fault.retry_after_s).reply()
    if fault.kind == "unauthorized":
        bmc.sessions.expire(all_of_them=True)
    if fault.kind == "garbage":
        return Reply(200, raw=b"<html>login</html>", content_type="text/html")
    if fault.kind == "missing":
        return not_there(path).reply()
    if fault.kind == "redirect":
        return Reply(308, None, {"Location": f"https://elsewhere.example{path}"})
    status, id_ = {
        "too-many": (429, "GeneralError"),
        "error": (500, "InternalError"),
        "unauthorized": (401, "NoValidSession"),
        "forbidden": (403, "InsufficientPrivilege"),
        "stale": (412, "PreconditionFailed"),
    }[fault.kind]
    headers = {"Retry-After": str(fault.retry_after_s)} if status == 429 else {}
    return Refusal(
        status, message(id_, f"SIMULATED fault: {fault.kind}.", severity="Critical"), headers=headers
    ).reply()


def wait_until_up(address: tuple[str, int], patience_s: float = 5.0) -> None:
    """Wait for something to listen there. Raises TimeoutError."""
    until_s = time.monotonic() + patience_s
    while True:
        try:
            socket.create_connection(address, 1).close()
            return
        except OSError:
            if time.monotonic() >= until_s:
                raise TimeoutError(f"nothing listens on {address[0]}:{address[1]}") from None
            time.sleep(0.01)
