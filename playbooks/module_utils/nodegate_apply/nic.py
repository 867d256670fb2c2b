"""What the network part of a profile wants of a node's data ports.

NV configuration of each card first (it takes effect at the next boot), then what is lost at every boot, port
by port; at the end what can only be looked at. Other ports and cards are nobody's business.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from .host import Host, HostError
from .mlxconfig import Card, Value
from .nic_dcb import Dcb, lldpad_setting
from .nic_ports import INFINIBAND, Port, PortSettings, address_of
from .nic_roce import RoceSettings
from .reading import Reading, look_at_once
from .setting import Setting

Part = Mapping[str, Any]


@dataclasses.dataclass
class Wanted:
    """Settings by what they belong to, and what has to wait for a reboot before it can be looked at."""

    cards: list[list[Setting]] = dataclasses.field(default_factory=list)
    node: list[Setting] = dataclasses.field(default_factory=list)
    ports: list[list[Setting]] = dataclasses.field(default_factory=list)
    #: Looked at when all else is as it should be: they follow from addresses and cables.
    proofs: list[Setting] = dataclasses.field(default_factory=list)
    waiting: list[str] = dataclasses.field(default_factory=list)
    readings: list[Reading[Any]] = dataclasses.field(default_factory=list)

    def settings(self) -> list[Setting]:
        """All that can be made so, in the order in which it is written."""
        return [s for group in (*self.cards, self.node, *self.ports) for s in group]


def wanted(host: Host, fabric: Part) -> Wanted:
    """What `fabric` of a profile (plain data) wants; nothing when its kind is none."""
    found = Wanted()
    if fabric["kind"] == "none":
        return found
    nic, roce = fabric["nic"], fabric["roce"]
    is_roce = fabric["kind"] == "roce"
    ports = ports_of(fabric)
    cards = _cards(host, ports)
    by_device: dict[str, Card] = {}
    for card, members in cards:
        values, fields = values_of(host, nic, card.device)
        found.cards.append(card.settings(values, fields))
        if values:
            found.readings.append(card.reading)
        by_device |= {port.device: card for port in members}
    if is_roce and ports:
        found.node.append(lldpad_setting(host))
    for port in ports:
        if is_roce and _waits(host, port, by_device[port.device]):
            found.waiting.append(f"{port.device}: settings of {port.netdev}, when the card is Ethernet")
            continue
        _add_port(found, host, port, nic, roce if is_roce else None)
    return found


def _add_port(found: Wanted, host: Host, port: Port, nic: Part, roce: Part | None) -> None:
    settings = PortSettings(host, port, nic)
    # Of a device with several ports PCIe is the same for all.
    known = {setting.name for group in found.ports for setting in group}
    mine = [setting for setting in settings.of_any_fabric() if setting.name not in known]
    if roce is not None:
        dcb, more = Dcb(host, port.netdev, roce), RoceSettings(host, port, nic, roce)
        mine += [*settings.of_roce(), *dcb.settings(), *more.settings()]
        found.proofs += more.gid()
        found.readings.append(dcb.reading)
    found.ports.append(mine)


def wanted_nic(host: Host, fabric: Part) -> list[Setting]:
    """Every setting that the profile's `fabric` leads to, in one list."""
    all_of_it = wanted(host, fabric)
    return [*all_of_it.settings(), *all_of_it.proofs]


def batches(host: Host, part: Part) -> list[list[Setting]]:
    """For the unit at boot: each card and each port for itself, so that a late one keeps none waiting."""
    found = wanted(host, part["fabric"])
    look_at_once(found.readings)
    return [*found.cards, found.node, *found.ports, found.proofs]


def ports_of(fabric: Part) -> list[Port]:
    """The data ports of the profile."""
    return [
        Port(place, port["device"], int(port["port"]), port.get("netdev") or "", port.get("mtu_bytes"))
        for place, port in enumerate(fabric["ports"])
    ]


def values_of(host: Host, nic: Part, device: str) -> tuple[dict[str, Value], dict[str, str]]:
    """NV configuration of the card of a device, and the key of the profile that each value is from."""
    values: dict[str, Value] = dict(nic.get("config") or {})
    fields = {name: f"fabric.nic.config.{name}" for name in values}
    boards = nic.get("config_by_board") or {}
    if boards:
        board = (host.read(f"{INFINIBAND}/{device}/board_id") or "").strip()
        # Of a card that is not there nothing can be read; that each of its values is told is as well.
        for name in boards if not board else [board]:
            values |= boards.get(name, {})
            fields |= {key: f"fabric.nic.config_by_board.{name}.{key}" for key in boards.get(name, {})}
    return values, fields


def _cards(host: Host, ports: list[Port]) -> list[tuple[Card, list[Port]]]:
    """Cards with their ports; functions of one slot are one card, named after its first port."""
    members: dict[str, list[Port]] = {}
    for port in ports:
        try:
            slot = address_of(host, port.device).rpartition(".")[0]
        except HostError:
            slot = port.device  # its settings say that it is not there
        members.setdefault(slot, []).append(port)
    return [(_card(host, mine[0].device), mine) for mine in members.values()]


def _card(host: Host, device: str) -> Card:
    return Card(host, device, lambda: address_of(host, device))


def _waits(host: Host, port: Port, card: Card) -> bool:
    """Whether the interface is not there because its card is not Ethernet before the next boot."""
    return not host.exists(f"/sys/class/net/{port.netdev}") and card.link_waits()
