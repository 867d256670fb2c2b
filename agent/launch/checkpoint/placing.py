"""Warnings about where tensor-parallel groups sit: NVLink domains, nodes, NUMA nodes (pure)."""

from __future__ import annotations

from collections.abc import Iterable

from agent.launch.checkpoint.ledger_lines import Book
from agent.launch.checkpoint.room import Room
from agent.launch.checkpoint.spread import Spread
from agent.node_profile import Engine, NodeProfile

_TP_REMEDY = "keep tensor parallelism within one domain and use pipeline or data parallelism across"


def placing(book: Book, spread: Spread, engine: Engine, profile: NodeProfile, room: Room) -> None:
    """Add the warnings of one engine."""
    if spread.tensor > 1:
        _nvlink(book, spread, profile)
        _numa(book, spread, engine, room)
    _binding(book, spread, room)


def _nvlink(book: Book, spread: Spread, profile: NodeProfile) -> None:
    """All-reduce of every layer goes between the GPUs of a group: outside of NVLink it sets the pace."""
    where = "tensor parallelism"
    if spread.spans_nodes:
        text = f"a group of {spread.tensor} GPUs leaves its NVLink domain: it is on {spread.nodes} nodes"
        book.warn(where, text, _TP_REMEDY)
        return
    if profile.nvlink.links_per_gpu == 0:
        book.warn(
            where, f"{spread.tensor} GPUs without NVLink between them (nvlink.links_per_gpu 0)", _TP_REMEDY
        )
        return
    for group, slots in _groups(spread).items():
        parts = [sorted(slots & set(domain)) for domain in profile.nvlink.domains if slots & set(domain)]
        if len(parts) > 1:
            listed = " and ".join(map(_list, parts))
            text = f"group {group} (GPUs {_list(slots)}) crosses the NVLink domains {listed}"
            book.warn(where, text, _TP_REMEDY)


def _numa(book: Book, spread: Spread, engine: Engine, room: Room) -> None:
    """Workers of GPUs on two sockets need a binding each."""
    for group, slots in _groups(spread).items():
        nodes = sorted({room.node_of_slot[slot] for slot in slots if slot in room.node_of_slot})
        if len(nodes) < 2:
            continue
        text = f"tensor-parallel group {group} (GPUs {_list(slots)}) crosses NUMA nodes {_list(nodes)}"
        if spread.worker_bind:
            book.note(f"{text}; --numa-bind binds each worker to the node of its GPU")
        else:
            bound = "bound to all of them as one" if engine.launch.numa_bind else "not bound"
            book.warn(
                "NUMA",
                f"{text}, and its workers are {bound}",
                "add --numa-bind (vLLM): each worker to its own node",
            )


def _binding(book: Book, spread: Spread, room: Room) -> None:
    """--numa-bind-nodes must name the node of each GPU, in their order."""
    if not spread.bind_nodes:
        return
    slots = [rank.slot for rank in spread.ranks]
    if any(slot not in room.node_of_slot for slot in slots):
        book.note("the NUMA node of a GPU is not told, so --numa-bind-nodes is not compared")
        return
    real = [room.node_of_slot[slot] for slot in slots]
    if list(spread.bind_nodes) != real:
        text = (
            f"--numa-bind-nodes {_list(spread.bind_nodes)} does not fit the GPUs, which sit on {_list(real)}"
        )
        book.warn("NUMA", text, "write the node of each GPU in the order of the slots")


def _groups(spread: Spread) -> dict[int, set[int]]:
    """Slots of each tensor-parallel group."""
    found: dict[int, set[int]] = {}
    for rank in spread.ranks:
        found.setdefault(rank.group, set()).add(rank.slot)
    return found


def _list(numbers: Iterable[int]) -> str:
    """Numbers with spaces, those of a set in order."""
    return " ".join(map(str, sorted(numbers) if isinstance(numbers, set) else numbers))
