"""Offloaded weights against the memory of the host, and of each NUMA node where workers are bound (pure)."""

from __future__ import annotations

from collections.abc import Mapping

from agent.launch.checkpoint.ledger_lines import Book, gib
from agent.launch.checkpoint.room import Room
from agent.launch.checkpoint.spread import Spread
from agent.launch.checkpoint.stages import GIB

_REMEDY = "lower cpu-offload-gb, give the host more memory, or lower launch.checkpoint.host_reserve_gib"


def host_lines(
    book: Book, moved: Mapping[int, float], spread: Spread, room: Room, reserve_gib: float
) -> None:
    """The lines of the host; `moved` is GiB a GPU by stage."""
    by_slot = {rank.slot: moved.get(rank.stage, 0.0) for rank in spread.ranks}
    need = sum(by_slot.values())
    book.line("host: offloaded", f"sum over the {len(by_slot)} GPUs of this node", need)
    book.facts["host_offload_gib"] = need
    if spread.container_gib is not None and need > 0:
        book.line("host: container", f"{spread.container_gib:g} GiB memory_gib", spread.container_gib)
        if need > spread.container_gib:
            text = f"{gib(need)} of offloaded weights do not fit its limit of {spread.container_gib:g} GiB"
            book.refuse("launch.container.memory_gib", text, "raise it, or lower cpu-offload-gb")
    if room.host_total_bytes is None or room.host_available_bytes is None or need == 0:
        return
    total, available = room.host_total_bytes / GIB, room.host_available_bytes / GIB
    limit = total - reserve_gib
    book.line("host: at most", f"{gib(total)} MemTotal - {reserve_gib:g} GiB host_reserve_gib", limit)
    if need > limit:
        text = f"{gib(need)} of offloaded weights do not fit {gib(total)} with {reserve_gib:g} GiB left free"
        book.refuse("host memory", text, _REMEDY)
    elif room.running:
        book.note("the engine's GPUs are in use: the host memory that is available now is not compared")
    else:
        _now(book, need, available, reserve_gib)
    if spread.worker_bind:
        _nodes(book, by_slot, room)


def _now(book: Book, need: float, available: float, reserve_gib: float) -> None:
    """What is free at this moment; an engine that runs already has its part of it."""
    limit = available - reserve_gib
    book.line("host: now", f"{gib(available)} MemAvailable - {reserve_gib:g} GiB host_reserve_gib", limit)
    if need > limit:
        text = f"{gib(need)} of offloaded weights do not fit the {gib(available)} that are available now"
        book.refuse("host memory", text, "find what else takes the host's memory (ps, smem) and stop it")


def _nodes(book: Book, by_slot: Mapping[int, float], room: Room) -> None:
    """Workers that are bound take their part from the node of their GPU."""
    need: dict[int, float] = {}
    for slot, part in by_slot.items():
        if slot in room.node_of_slot:
            node = room.node_of_slot[slot]
            need[node] = need.get(node, 0.0) + part
    for node, part in sorted(need.items()):
        if node not in room.node_bytes:
            book.note(f"NUMA node {node}: its memory is not told, so its part is not compared")
            continue
        total = room.node_bytes[node] / GIB
        book.line(
            f"host: NUMA node {node}",
            f"{gib(total)} MemTotal - {gib(part)} of its GPUs' offload",
            total - part,
        )
        if part > total:
            text = f"{gib(part)} of offloaded weights do not fit its {gib(total)}"
            book.refuse(f"NUMA node {node}", text, _REMEDY)
