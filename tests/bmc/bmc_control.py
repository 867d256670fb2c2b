"""The side door of an emulator that runs as a process: plain HTTP with JSON on loopback, no login.

GET /state: what outlives a restart. POST /state {...}: laid over it. GET and DELETE /requests: what was seen.
POST /faults {kind, path, method, requests, after, for_s, retry_after_s}; DELETE /faults.
POST /advance {seconds}, /host-reset {kind}, /settle {}, /plan {fails_at, words, stalls_at, writes}.
POST /set {attribute path: value}, e.g. {"machine.times.post_s": 30}.
"""

from __future__ import annotations

import json
import threading
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from bmc_service import Bmc
from bmc_update import Plan


class Control:
    """Serves one Bmc's side door."""

    def __init__(self, bmc: Bmc, port: int = 0) -> None:
        self._http = _Server(("127.0.0.1", port), _Handler)
        self._http.bmc = bmc
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"

    def __enter__(self) -> Control:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(5)


def control(bmc: Bmc, method: str, path: str, sent: dict[str, Any]) -> Any:
    """Do what the side door asks. Raises LookupError, TypeError or ValueError for what makes no sense."""
    what = (method, path)
    if what == ("GET", "/state"):
        bmc.tick()
        return bmc.machine.to_json()
    if what == ("GET", "/requests"):
        return [asdict(each) for each in bmc.record.seen]
    if what == ("POST", "/set"):
        return _set(bmc, sent)
    work = {
        ("POST", "/state"): lambda: bmc.machine.load_json(sent),
        ("DELETE", "/requests"): bmc.record.clear,
        ("POST", "/faults"): lambda: bmc.faults.add(**sent),
        ("DELETE", "/faults"): bmc.faults.clear,
        ("POST", "/advance"): lambda: bmc.clock.advance(float(sent["seconds"])),
        ("POST", "/host-reset"): lambda: bmc.host_reset(str(sent.get("kind", "ForceRestart"))),
        ("POST", "/settle"): bmc.settle,
        ("POST", "/plan"): lambda: bmc.updates.plans.append(Plan(**sent)),
    }
    if what not in work:
        raise LookupError(f"no {method} {path}")
    with bmc.lock:
        work[what]()
    bmc.faults.on_change()
    if bmc.on_change is not None:
        bmc.on_change()
    return {}


def _set(bmc: Bmc, sent: dict[str, Any]) -> dict[str, Any]:
    """Plain attributes by their path; only such as are there."""
    for path, value in sent.items():
        *parents, last = path.split(".")
        target: Any = bmc
        for each in parents:
            target = target[each] if isinstance(target, dict) else getattr(target, each)
        if isinstance(target, dict):
            target[last] = value
        else:
            getattr(target, last)
            setattr(target, last, value)
    return {}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    bmc: Bmc


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        """Silent."""

    def do_GET(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        try:
            sent = json.loads(self.rfile.read(length) or b"{}")
            status, told = 200, control(self.server.bmc, self.command, self.path, sent)
        except (LookupError, TypeError, ValueError, AttributeError) as cause:
            status, told = 400, {"error": str(cause)}
        body = json.dumps(told).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_DELETE = do_GET
