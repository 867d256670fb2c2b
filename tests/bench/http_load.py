"""A program: load on one path of a server on the loopback, bounded in time and connections; prints JSON.

    python http_load.py PORT PATH SECONDS RATE     RATE requests/s at fixed times, latency from then
    python http_load.py PORT PATH SECONDS 0        as many as the server answers, over 8 connections

The client is a process of its own: its work must not wait for the server's interpreter.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

CONNECTIONS = 8
LIMIT_S = 30.0


class Client:
    """Keep-alive connections to one path."""

    def __init__(self, port: int, path: str) -> None:
        self._port = port
        self._request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
        self._idle: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
        self.latencies_s: list[float] = []
        self.statuses: dict[str, int] = {}

    async def connect(self) -> None:
        for _ in range(CONNECTIONS):
            self._idle.put_nowait(await asyncio.open_connection("127.0.0.1", self._port))

    async def ask(self, due_s: float) -> None:
        """One request; its latency counts from when it was due, also while all connections are busy."""
        reader, writer = await self._idle.get()
        writer.write(self._request)
        head = await reader.readuntil(b"\r\n\r\n")
        fields = head.decode("latin-1").lower().split("\r\n")
        length = next(int(f.partition(":")[2]) for f in fields if f.startswith("content-length:"))
        await reader.readexactly(length)
        self.latencies_s.append(time.perf_counter() - due_s)
        status = fields[0].split()[1]
        self.statuses[status] = self.statuses.get(status, 0) + 1
        self._idle.put_nowait((reader, writer))


async def at_rate(client: Client, seconds: float, rate: float) -> None:
    """Requests at fixed times, however late the answers are."""
    begin_s = time.perf_counter()
    asking = []
    for number in range(int(seconds * rate)):
        due_s = begin_s + number / rate
        await asyncio.sleep(max(0.0, due_s - time.perf_counter()))
        asking.append(asyncio.create_task(client.ask(due_s)))
    await asyncio.gather(*asking)


async def at_peak(client: Client, seconds: float) -> None:
    """Each connection asks again as soon as it has its answer."""
    end_s = time.perf_counter() + seconds

    async def one() -> None:
        while (now_s := time.perf_counter()) < end_s:
            await client.ask(now_s)

    await asyncio.gather(*(one() for _ in range(CONNECTIONS)))


async def load(port: int, path: str, seconds: float, rate: float) -> dict[str, object]:
    client = Client(port, path)
    await client.connect()
    begin_s = time.perf_counter()
    async with asyncio.timeout(LIMIT_S):
        await (at_rate(client, seconds, rate) if rate else at_peak(client, seconds))
    took_s = time.perf_counter() - begin_s
    found = sorted(client.latencies_s)
    return {
        "requests": len(found),
        "statuses": client.statuses,
        "per_s": len(found) / took_s,
        "p50_s": found[len(found) // 2],
        "p99_s": found[min(len(found) - 1, int(len(found) * 0.99))],
    }


if __name__ == "__main__":
    print(
        json.dumps(asyncio.run(load(int(sys.argv[1]), sys.argv[2], float(sys.argv[3]), float(sys.argv[4]))))
    )
