"""Many SIMULATED agents in one process: each at an address of its own in 127/8, all at one port.

`python many_nodes.py COUNT` prints the port and serves brief statuses of 8-GPU nodes until its stdin is
closed.
Only the HTTP answers are there: no node, no checks, no gate behind them.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

CHECKS = 487


def address_of(number: int) -> str:
    """The loopback address of a node."""
    return f"127.77.{number // 250}.{number % 250 + 1}"


def name_of(number: int) -> str:
    """Its name."""
    return f"n{number:04d}"


def brief(
    name: str, state: str = "serving", *, engine: str = "main", profile_hash: str = "", **more: Any
) -> dict[str, Any]:
    """A brief status as an agent of an 8-GPU node gives it."""
    ready = state in ("serving", "degraded")
    reason = {
        "check": "gpu.thermal_margin", "subject": "gpu3", "summary": "margin is -4 C, at least 5 C is wanted",
        "action": {"kind": "contact_support", "hint": "Look at the cooling of this GPU.", "play": None},
    }  # fmt: skip
    blocking = [] if state in ("serving", "member") else [reason]
    gate = {
        "engine": engine, "state": state, "ready": ready, "since_s": 4021.3,
        "reason": "every check passes",
        "forced": False, "force_open": None, "quarantine": None, "drain": None,
        "agent_check": "up ready 100%",
        "blocking": blocking, "blocking_count": len(blocking),
        "process": {
            "phase": "warm", "since_s": 4051.9, "reason": "warm", "pid": 31963, "restarts": 0,
            "retry_in_s": None, "soak": None,
            "warmup": {"words": "8 of 8 requests, first token after 0.21 s, 1184 tokens a second"},
        },
    }  # fmt: skip
    return {
        "schema": 1, "version": "0.1.0", "live": True, "beat_age_s": 0.1, "node": name, "simulated": False,
        "mode": "manage", "profile_hash": profile_hash, "boot_id": "3e2b7a5c-8d41-4f6e-9b0a-6c1d52f7e908",
        "age_s": 0.2, "ready": ready, "gates": [gate], "pairs": [],
        "holds": {"maintenance": None, "waivers": []}, "problems": [], "verdict": "PASS" if ready else "FAIL",
        "shadow": [], "counts": {"PASS": CHECKS - 38, "SKIP": 38}, **more,
    }  # fmt: skip


class Agents:
    """Serves one answer for each address; `bodies` may be changed while it runs."""

    def __init__(self, bodies: dict[str, bytes]) -> None:
        """Bodies by address."""
        self.bodies = bodies
        self.port = 0

    async def start(self) -> asyncio.Server:
        """Serve at every address, at one port."""
        server = await asyncio.get_running_loop().create_server(
            lambda: _Connection(self.bodies), "0.0.0.0", 0, backlog=4096
        )
        self.port = server.sockets[0].getsockname()[1]
        return server


class _Connection(asyncio.Protocol):
    """One request, one answer, closed."""

    def __init__(self, bodies: dict[str, bytes]) -> None:
        self._bodies, self._seen = bodies, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Know it."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer once the head is whole."""
        self._seen += data
        if b"\r\n\r\n" not in self._seen:
            return
        body = self._bodies.get(self._transport.get_extra_info("sockname")[0])
        status = "200 OK" if body is not None else "404 Not Found"
        head = (
            f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(body or b'')}\r\n"
        )
        self._transport.write(head.encode() + b"connection: close\r\n\r\n" + (body or b""))  # type: ignore[attr-defined]
        self._transport.close()


async def _serve(count: int) -> None:
    states = ("serving",) * 97 + ("failed", "degraded", "maintenance")
    bodies = {
        address_of(i): json.dumps(brief(name_of(i), states[i * 7 % 100])).encode() for i in range(count)
    }
    agents = Agents(bodies)
    async with await agents.start():
        print(agents.port, flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1])))
