"""Which hardware a run was on: UUIDs of GPUs, cards of the data ports, the board, as far as it can be read.

Kernel: /sys/class/infiniband/DEVICE/node_guid (burnt into the card, readable by all), the card's serial
number (VPD) and /sys/class/dmi/id/board_serial, which it shows to root alone. What only one side of a
comparison could read is not compared; a GPU or a card that only one side has is a change.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from agent.checks.gpus import slots
from agent.checks.nic_serial import card_serial
from agent.errors import DeviceAbsent, SourceError, SourceUnavailable
from agent.node_profile import NodeProfile
from agent.sources import Sources

INFINIBAND = "sys/class/infiniband"
BOARD = "sys/class/dmi/id/board_serial"
#: Ends the names of what root alone can read.
_ROOT_ONLY = (".serial", "board")


def parts_of(sources: Sources, profile: NodeProfile, *, serials: bool) -> dict[str, str]:
    """The parts by place (`gpu3`, `mlx5_0`, `mlx5_0.serial`, `board`). Raises SourceError.

    Without `serials` what is slow to read, or root's alone, is left out.
    """
    parts = {
        slot.subject: slot.identity.uuid
        for slot in slots(sources, profile)
        if slot.identity is not None and slot.identity.uuid
    }
    for device in dict.fromkeys(port.device for port in profile.fabric.ports):
        try:
            parts[device] = f"guid {sources.tree.text(f'{INFINIBAND}/{device}/node_guid')}"
        except DeviceAbsent:  # a card that is not there is a part less
            continue
    if not parts and (profile.gpus.count or profile.fabric.ports):  # a node that shall have none is itself
        raise SourceUnavailable("no GPU and no card of this node can be identified")
    return {**parts, **_serials(sources, profile)} if serials else parts


def _serials(sources: Sources, profile: NodeProfile) -> dict[str, str]:
    """What root alone can read; nothing for others."""
    found: dict[str, str] = {}
    for port in profile.fabric.ports:
        name = f"{port.device}.serial"
        if name not in found and (serial := _read(lambda port=port: card_serial(sources, port))):
            found[name] = serial
    if board := _read(lambda: sources.tree.text(BOARD)):
        found["board"] = board
    return found


def _read(reading: object) -> str:
    """A value, empty where it cannot be read: it is then not compared."""
    assert callable(reading)
    try:
        return str(reading())
    except SourceError:
        return ""


def digest(parts: Mapping[str, str]) -> str:
    """SHA-256 (hex) over the parts."""
    text = "\n".join(f"{place}={part}" for place, part in sorted(parts.items()))
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """What is another part now, one line each; empty when it is the same hardware."""
    told = []
    for place in sorted(before.keys() | now.keys()):
        old, new = before.get(place), now.get(place)
        if old == new or (place.endswith(_ROOT_ONLY) and None in (old, new)):
            continue
        told.append(f"{place} was {old or 'not there'}, is {new or 'not there'}")
    return told
