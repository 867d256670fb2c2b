"""Whether what was seen may be recorded (pure): on first use by itself, a difference only by its own name.

Pins and topology are two parts; either may be recorded already while the other is not.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from agent.errors import ConfigError
from agent.node_parts import ExpectedTopology
from agent.node_profile import GpuPin
from agent.pins import Seen, is_recorded

TOPOLOGY = "topology"
ALL = "all"


@dataclass(frozen=True)
class Decision:
    """`pins` and `topology` hold afterwards; with refusals, lines for a person, nothing is recorded."""

    pins: Mapping[int, GpuPin]
    topology: ExpectedTopology | None
    first: tuple[str, ...]  # parts that have not been recorded before
    changes: tuple[str, ...]
    refusals: tuple[str, ...]
    #: What has to be named for the refusals to go away.
    names: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether there is something to record."""
        return bool(self.first or self.changes)


def decide(seen: Seen, replace: Collection[str] = ()) -> Decision:
    """Compare, and take what is new or named in `replace`: slots as text, `topology`, or `all`."""
    if seen.faults:
        return Decision(seen.pinned, seen.recorded, (), (), seen.faults)
    first: list[str] = []
    changes: list[str] = []
    refused: dict[str, str] = {}
    if not seen.pinned:
        first.append("pins")
    for slot in sorted({*seen.pinned, *seen.found} if seen.pinned else ()):
        line = _difference(slot, seen.pinned.get(slot), seen.found.get(slot))
        if line and (ALL in replace or str(slot) in replace):
            changes.append(line)
        elif line:
            refused[str(slot)] = line
    moved = {slot for slot in seen.found if str(slot) in replace or ALL in replace}
    if not is_recorded(seen.recorded):
        first += [TOPOLOGY] if seen.topology and is_recorded(seen.topology) else []
    elif seen.topology_problems and not _only_other_cards(seen, moved):
        text = "; ".join(seen.topology_problems[:3])
        line = f"topology is not as recorded: {text}"
        if TOPOLOGY in replace or ALL in replace:
            changes.append(line)
        elif not refused:
            refused[TOPOLOGY] = line
    return Decision(
        seen.found, seen.topology, tuple(first), tuple(changes), tuple(refused.values()), tuple(refused)
    )


def _difference(slot: int, pinned: GpuPin | None, found: GpuPin | None) -> str:
    """One line about a slot, empty when it holds what is pinned."""
    if pinned is None:
        assert found is not None
        return f"slot {slot}: not pinned although others are, found {found.uuid}"
    if found is None:
        return f"slot {slot}: pinned {pinned.uuid}, found none"
    if pinned.uuid != found.uuid:
        return f"slot {slot}: pinned {pinned.uuid}, found {found.uuid} (serial {found.serial or 'not given'})"
    for name in ("serial", "pci_bus_id"):
        old, new = getattr(pinned, name), getattr(found, name)
        if old is not None and _plain(old) != _plain(new or ""):
            return f"slot {slot}: {pinned.uuid} is pinned with {name} {old}, found {new}"
    return ""


def _plain(text: str) -> str:
    """PCI addresses are written in more than one way; serial numbers are not touched by this."""
    return text.strip().lower().removeprefix("0000")


def _only_other_cards(seen: Seen, replaced: Collection[int]) -> bool:
    """Whether the topology is as recorded but for the UUIDs of slots whose GPU is accepted as another one."""
    if seen.topology is None:
        return False
    old, new = (_without(topology, replaced) for topology in (seen.recorded, seen.topology))
    return bool(replaced) and old == new


def _without(topology: ExpectedTopology, replaced: Collection[int]) -> dict[str, Any]:
    """As plain data without bus ids, which are told only, and without the identity of replaced GPUs."""
    data = topology.model_dump(mode="json")
    for slot, gpu in data["gpus"].items():
        gpu.pop("pci_bus_id", None)
        if int(slot) in replaced:
            gpu.pop("uuid", None)
    for nic in data["nics"]:
        nic.pop("pci_bus_id", None)
    return dict(data)


def refuse_names(names: Collection[str]) -> None:
    """Raise ConfigError for what is neither a slot, nor `topology`, nor `all`."""
    for name in names:
        if name not in (TOPOLOGY, ALL) and not (name.isascii() and name.isdigit()):
            raise ConfigError(
                f"{name!r} is no slot", remedy="name slots by their numbers, `topology`, or `all`"
            )
