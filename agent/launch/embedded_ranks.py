"""Several embedded engines as the ranks of one model: the head waits for the others at its master port.

Simulated is only what supervision sees: the head does not answer before every rank is connected, a rank
without HTTP tries until the head is there, and the loss of any of them ends all. Nothing is computed in
common. A connection that is cut without a word is not noticed, as with NCCL. SIMULATED.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
from collections.abc import Callable

_RETRY_S = 0.2


def head_rank(options: argparse.Namespace) -> HeadRank | None:
    """The head's side of several ranks; None for an engine that is alone."""
    nnodes = int(options.nnodes or 1)
    return HeadRank(nnodes, *_master(options)) if nnodes > 1 else None


def follow_if_told(options: argparse.Namespace) -> None:
    """Be a rank without HTTP, and end with exit code 1, when the command line says so."""
    rank = int(options.node_rank or 0)
    if rank > 0:
        asyncio.run(_follow(rank, *_master(options), options.startup_s))
        raise SystemExit(1)


def _master(options: argparse.Namespace) -> tuple[str, int]:
    """Where the head waits: vLLM names it in two flags, SGLang in one."""
    together = getattr(options, "dist_init_addr", None)
    if together:
        host, _, port = together.rpartition(":")
        return host.strip("[]"), int(port)
    return options.master_addr or "127.0.0.1", int(options.master_port or 29501)


class HeadRank:
    """Rank 0: waits for all others, and sees when one of them is gone."""

    def __init__(self, nnodes: int, address: str, port: int) -> None:
        """Prepare; nothing listens yet."""
        self._others = nnodes - 1
        self._place = address, port
        self._joined: set[str] = set()
        self.complete = asyncio.Event()
        #: Called when a rank is gone.
        self.on_loss: Callable[[], None] = self.complete.clear
        self._server: asyncio.Server | None = None

    async def listen(self) -> None:
        """Listen at the master port."""
        self._server = await asyncio.start_server(self._meet, *self._place, reuse_address=True)
        print(f"SIMULATED engine: waiting for {self._others} ranks", flush=True)  # noqa: T201

    async def close(self) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One rank, from its first word to its end; others who connect (a port probe) say nothing."""
        rank = (await reader.readline()).decode(errors="replace").strip()
        if not rank.isdecimal():
            writer.close()
            return
        self._joined.add(rank)
        print(f"SIMULATED engine: rank {rank} is here", flush=True)  # noqa: T201
        if len(self._joined) == self._others:
            self.complete.set()
        try:
            with contextlib.suppress(ConnectionError):
                await reader.read()
        finally:
            writer.close()
        print(f"SIMULATED engine: ERROR rank {rank} is gone", flush=True)  # noqa: T201
        self.on_loss()


async def _follow(rank: int, address: str, port: int, startup_s: float) -> None:
    """A rank without HTTP: join the head, and end when it is gone."""
    print(f"SIMULATED engine: rank {rank} loads", flush=True)  # noqa: T201 (its log)
    await asyncio.sleep(startup_s)
    while True:
        try:
            reader, writer = await asyncio.open_connection(address, port)
            break
        except OSError:
            await asyncio.sleep(_RETRY_S)
    writer.write(f"{rank}\n".encode())
    await writer.drain()
    print(f"SIMULATED engine: rank {rank} has joined {address} port {port}", flush=True)  # noqa: T201
    try:
        with contextlib.suppress(ConnectionError):
            await reader.read()
    finally:
        writer.close()
    print("SIMULATED engine: ERROR the head is gone", flush=True)  # noqa: T201
