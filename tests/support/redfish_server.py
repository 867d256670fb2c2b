"""A Redfish service for tests over real HTTPS (SIMULATED documents), and certificates made with openssl.

    with RedfishServer(documents, certificates) as server:
        server.behave["/redfish/v1/Systems/1"] = "hang"

Behaviours of a path: hang, drip (body a byte at a time), drip-headers, error (500), busy (503), garbage,
list, huge, gzip, away (redirect to another host), home (to the same path with a slash), and those in _PLAIN.
"""

from __future__ import annotations

import base64
import gzip
import itertools
import json
import ssl
import subprocess
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

USER, PASSWORD = "nodegate-reader", "s3cret-Pa55word"
SESSIONS = "/redfish/v1/SessionService/Sessions"
_CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


@dataclass(frozen=True)
class Certificates:
    """A CA, and files (certificate and key) that it has signed for 127.0.0.1 and for another host."""

    ca: Path
    here: Path
    elsewhere: Path
    other_ca: Path


def make_certificates(folder: Path) -> Certificates:
    """Make them; needs the openssl program."""
    ca, other_ca = folder / "ca.pem", folder / "other-ca.pem"
    for path in (ca, other_ca):
        _openssl(
            "req", "-x509", *_CURVE, "-keyout", path.with_suffix(".key"), "-out", path, "-days", "2",
            "-subj", f"/CN={path.stem}", "-addext", "keyUsage=critical,keyCertSign,cRLSign",
        )  # fmt: skip
    here = signed(folder, ca, "here", "IP:127.0.0.1,DNS:localhost")
    elsewhere = signed(folder, ca, "elsewhere", "DNS:bmc-99.example")
    return Certificates(ca, here, elsewhere, other_ca)


def signed(folder: Path, ca: Path, name: str, names: str) -> Path:
    """A file with certificate and key that the CA has signed; `names` as in subjectAltName: IP:...,DNS:..."""
    request, key, made = folder / f"{name}.csr", folder / f"{name}.key", folder / f"{name}.pem"
    extensions = folder / f"{name}.ext"
    extensions.write_text(
        f"subjectAltName={names}\nbasicConstraints=CA:FALSE\n"
        "subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n"
    )
    _openssl("req", "-new", *_CURVE, "-keyout", key, "-out", request, "-subj", f"/CN={name}")
    _openssl(
        "x509", "-req", "-in", request, "-CA", ca, "-CAkey", ca.with_suffix(".key"), "-CAcreateserial",
        "-days", "2", "-extfile", extensions, "-out", made,
    )  # fmt: skip
    made.write_text(made.read_text() + key.read_text())
    return made


def _openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=60)


class RedfishServer:
    """The service; `seen` has method and path of every request, `tokens` the open sessions."""

    def __init__(
        self,
        documents: dict[str, Any],
        certificate: Path | None,
        *,
        sessions: bool = True,
        login: bool = True,
    ) -> None:
        self.documents, self.sessions, self.login = documents, sessions, login
        self.behave: dict[str, str] = {}
        self.seen: list[tuple[str, str]] = []
        self.tokens: dict[str, str] = {}
        self.password = PASSWORD
        self.released = threading.Event()
        self.numbers = itertools.count(1)
        self._http = _Server(("127.0.0.1", 0), _Handler)
        self._http.owner = self
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            # The handshake belongs to the handler's thread: a client that refuses us is no crash.
            self._http.socket = context.wrap_socket(
                self._http.socket, server_side=True, do_handshake_on_connect=False
            )
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        scheme = "http" if certificate is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self._http.server_address[1]}"

    def __enter__(self) -> RedfishServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.released.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(5)

    def asked(self, path: str, method: str = "GET") -> int:
        """How often a path was asked for."""
        return self.seen.count((method, path))

    def admits(self, headers: Any) -> bool:
        """Whether a request comes with a session or the right user."""
        if not self.login or headers.get("X-Auth-Token") in self.tokens:
            return True
        pair = base64.b64encode(f"{USER}:{self.password}".encode()).decode()
        return headers.get("Authorization") == f"Basic {pair}"


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    owner: RedfishServer

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up or refuses the certificate is what many tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        """Silent."""

    def do_GET(self) -> None:
        owner = self.server.owner
        owner.seen.append(("GET", self.path))
        how = owner.behave.get(self.path)
        if how is not None and self._misbehave(how):
            return
        if not owner.admits(self.headers):
            self._answer(401, {"error": {"code": "Base.1.0.NoValidSession"}})
        elif self.path in owner.documents:
            self._answer(200, owner.documents[self.path])
        else:
            self._answer(404, {"error": {"code": "Base.1.0.ResourceMissingAtURI"}})

    def do_POST(self) -> None:
        owner = self.server.owner
        owner.seen.append(("POST", self.path))
        sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        how = owner.behave.get(self.path)
        if how is not None and self._misbehave(how):
            return
        if self.path != SESSIONS or not owner.sessions:
            self._answer(404, {})
        elif sent != {"UserName": USER, "Password": owner.password}:
            self._answer(401, {"error": {"message": f"{sent['UserName']}:{sent['Password']} is wrong"}})
        else:
            number = next(owner.numbers)
            token, location = f"token-{number}-{'x' * 20}", f"{SESSIONS}/{number}"
            owner.tokens[token] = location
            self._answer(201, {"@odata.id": location}, {"X-Auth-Token": token, "Location": location})

    def do_DELETE(self) -> None:
        owner = self.server.owner
        owner.seen.append(("DELETE", self.path))
        how = owner.behave.get(self.path)
        if how is not None and self._misbehave(how):
            return
        if owner.tokens.get(self.headers.get("X-Auth-Token", "")) == self.path:
            del owner.tokens[self.headers["X-Auth-Token"]]
            self.send_response(204)
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            self._answer(401, {})

    def _answer(self, status: int, document: Any, headers: dict[str, str] | None = None) -> None:
        self._send(status, json.dumps(document).encode(), headers)

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _misbehave(self, how: str) -> bool:
        """Answer in a bad way; whether the request is dealt with."""
        released = self.server.owner.released
        if how == "hang":
            released.wait(60)
            self.close_connection = True
        elif how in ("drip", "drip-headers"):
            start = b"HTTP/1.1 200 OK\r\n" + (
                b"" if how == "drip-headers" else b"Content-Length: 9000\r\n\r\n"
            )
            self.wfile.write(start)
            for count in range(9000):
                if released.wait(0.02):
                    break
                self.wfile.write(b" " if how == "drip" else f"X-{count}: 1\r\n".encode())
            self.close_connection = True
        elif how == "huge":
            self.send_response(200)
            self.end_headers()
            while not released.is_set():
                self.wfile.write(b'"' + b"x" * 1_000_000)
            self.close_connection = True
        elif how in _PLAIN:
            status, body, headers = _PLAIN[how]
            self._send(status, body, {key: value.format(path=self.path) for key, value in headers.items()})
        else:
            return False
        return True


_PLAIN: dict[str, tuple[int, bytes, dict[str, str]]] = {
    "error": (500, b"{}", {}),
    "busy": (503, b"{}", {"Retry-After": "30"}),
    "forbidden": (403, b"{}", {}),
    "unauthorized": (401, b"{}", {}),
    "garbage": (200, b"<html>login</html>", {}),
    "nan": (200, b'{"Reading": NaN}', {}),
    "deep": (200, b"[" * 100_000, {}),
    "nested": (200, b'{"a":' * 500 + b"1" + b"}" * 500, {}),
    "list": (200, b"[1, 2]", {}),
    "no-token": (201, b"{}", {}),
    "bad-token": (201, b"{}", {"X-Auth-Token": "a b\x01c"}),
    "gzip": (200, gzip.compress(b"{}"), {"Content-Encoding": "gzip"}),
    "away": (308, b"", {"Location": "https://evil.example{path}"}),
    "away-slashes": (308, b"", {"Location": "//evil.example{path}"}),
    "home": (308, b"", {"Location": "{path}/"}),
    "round": (308, b"", {"Location": "{path}"}),
}
