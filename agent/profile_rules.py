"""What each part of a profile alone cannot see: slots, ports, pins and NICs that contradict each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from agent.bios.rules import bios_problems
from agent.enforce.rules import enforce_notes, enforce_problems
from agent.firmware_rules import firmware_problems
from agent.group.rules import group_problems
from agent.host_rules import host_problems
from agent.launch_rules import launch_problems
from agent.nic_rules import nic_problems
from agent.pair_rules import pair_notes, pair_problems
from agent.profile_problem import CrossProblem, Path

if TYPE_CHECKING:
    from agent.node_profile import NodeProfile


def cross_problems(profile: NodeProfile) -> list[CrossProblem]:
    """All contradictions between parts."""
    return [
        *_missing_slots(profile),
        *_shared_slots(profile),
        *_shared_ports(profile),
        *_shared_pins(profile),
        *_nic_ports(profile),
        *_unwatched_fabric(profile),
        *launch_problems(profile),
        *group_problems(profile),
        *pair_problems(profile),
        *enforce_problems(profile),
        *bios_problems(profile),
        *firmware_problems(profile),
        *host_problems(profile),
        *nic_problems(profile),
    ]


def _slots_used(profile: NodeProfile) -> Iterator[tuple[Path, int]]:
    """Every mention of a GPU slot."""
    for name, engine in profile.engines.items():
        yield from ((("engines", name, "gpus", str(i)), slot) for i, slot in enumerate(engine.gpus))
    yield from ((("gpus", "pins", str(slot)), slot) for slot in profile.gpus.pins)
    yield from ((("gpus", "numa_node", str(slot)), slot) for slot in profile.gpus.numa_node)
    recorded = profile.topology.expected.gpus
    yield from ((("topology", "expected", "gpus", str(slot)), slot) for slot in recorded)
    for d, domain in enumerate(profile.nvlink.domains):
        yield from ((("nvlink", "domains", str(d), str(i)), slot) for i, slot in enumerate(domain))
    for i, port in enumerate(profile.fabric.ports):
        if port.gpu is not None:
            yield ("fabric", "ports", str(i), "gpu"), port.gpu


def _missing_slots(profile: NodeProfile) -> Iterator[CrossProblem]:
    """A slot beyond gpus.count; one line a list is enough."""
    count = profile.gpus.count
    have = f"slots are 0 to {count - 1}" if count else "the node has no GPU"
    told: set[Path] = set()
    for path, slot in _slots_used(profile):
        group = path[:2] if path[0] == "nvlink" else path[:3]
        if slot < count or group in told:
            continue
        told.add(group)
        remedy = "set nvlink.domains to the slots there are ([] for none)" if path[0] == "nvlink" else have
        yield CrossProblem(
            path, f"GPU slot {slot} does not exist: gpus.count is {count}", ("gpus", "count"), remedy
        )


def _shared_slots(profile: NodeProfile) -> Iterator[CrossProblem]:
    """A slot in two engines (or twice in one), or in two NVLink domains."""
    owners: dict[int, tuple[str, Path]] = {}
    for name, engine in profile.engines.items():
        for i, slot in enumerate(engine.gpus):
            path = ("engines", name, "gpus", str(i))
            if slot in owners:
                owner, other = owners[slot]
                text = f"GPU slot {slot} already belongs to engine {owner}"
                yield CrossProblem(path, text, other, "give each slot to one engine, once")
            owners.setdefault(slot, (name, path))
    domains: dict[int, Path] = {}
    for d, domain in enumerate(profile.nvlink.domains):
        for i, slot in enumerate(domain):
            path = ("nvlink", "domains", str(d), str(i))
            if slot in domains:
                yield CrossProblem(
                    path, f"GPU slot {slot} is in two NVLink domains", domains[slot], "list it once"
                )
            domains.setdefault(slot, path)


def _shared_ports(profile: NodeProfile) -> Iterator[CrossProblem]:
    """A TCP port used twice on the node."""
    used: dict[int, Path] = {profile.api.port: ("api", "port")}
    ports: list[tuple[Path, int | None]] = []
    for name, engine in profile.engines.items():
        ports.append((("engines", name, "port"), engine.port))
        ports.append((("engines", name, "agent_check_port"), engine.agent_check_port))
    for name, pair in profile.pairs.items():
        ports.append((("pairs", name, "agent_check_port"), pair.agent_check_port))
    for path, port in ports:
        if port is None:
            continue
        if port in used:
            text = f"port {port} is already used by {'.'.join(used[port])}"
            yield CrossProblem(path, text, used[port], "choose a free port")
        used.setdefault(port, path)


def _shared_pins(profile: NodeProfile) -> Iterator[CrossProblem]:
    """One GPU pinned to two slots."""
    seen: dict[str, Path] = {}
    for slot, pin in profile.gpus.pins.items():
        path = ("gpus", "pins", str(slot), "uuid")
        if pin.uuid in seen:
            text = f"{pin.uuid} is also pinned to slot {seen[pin.uuid][2]}"
            yield CrossProblem(path, text, seen[pin.uuid], "pin each GPU to one slot")
        seen.setdefault(pin.uuid, path)


def _nic_ports(profile: NodeProfile) -> Iterator[CrossProblem]:
    """A data port listed twice, one interface for two ports, or a roce port without its interface."""
    ports: dict[tuple[str, int], Path] = {}
    netdevs: dict[str, Path] = {}
    for i, port in enumerate(profile.fabric.ports):
        path = ("fabric", "ports", str(i))
        key = (port.device, port.port)
        if key in ports:
            text = f"{port.device} port {port.port} is listed twice"
            yield CrossProblem(path, text, ports[key], "list each data port once")
        ports.setdefault(key, path)
        at = (*path, "netdev")
        if port.netdev is None:
            if profile.fabric.kind == "roce":
                text = f"the roce port {port.device}/{port.port} needs its network interface"
                yield CrossProblem(at, text, None, "add e.g. `netdev: eth2`")
        elif port.netdev in netdevs:
            text = f"interface {port.netdev} belongs to two ports"
            yield CrossProblem(at, text, netdevs[port.netdev], "give each port its own interface")
        netdevs.setdefault(port.netdev or "", at)


def _unwatched_fabric(profile: NodeProfile) -> Iterator[CrossProblem]:
    """A gate that would open with its network unproven: a fabric, and no port to look at."""
    kind = profile.fabric.kind
    if profile.mode != "observe" and kind != "none" and not profile.fabric.ports:
        text = f"mode {profile.mode} would gate a {kind} node whose data ports are not listed"
        yield CrossProblem(
            ("fabric", "kind"), text, ("mode",), "list fabric.ports, or write `kind: none` under fabric"
        )


def notes(profile: NodeProfile) -> Iterator[str]:
    """What is allowed but often not meant."""
    kind = profile.fabric.kind
    if profile.mode == "observe" and kind != "none" and not profile.fabric.ports:
        text = (
            f"fabric.kind is {kind}, but no data ports are listed: no network check has anything to look at"
        )
        yield f"{text}; list fabric.ports, or write `kind: none`"
    if profile.mode != "observe" and not profile.engines:
        yield f"mode is {profile.mode}, but there are no engines: there is no gate; add one under engines"
    owned = {slot for engine in profile.engines.values() for slot in engine.gpus}
    free = [str(slot) for slot in range(profile.gpus.count) if slot not in owned]
    if profile.engines and free:
        yield f"GPU slots {', '.join(free)} belong to no engine: a fault there closes no gate"
    yield from pair_notes(profile)
    yield from enforce_notes(profile)
    yield from _bmc_notes(profile)


def _bmc_notes(profile: NodeProfile) -> Iterator[str]:
    """Numbers that nobody is asked for, and services that anybody could speak for."""
    bmc = profile.bmc
    if bmc.redfish is None:
        asked = [
            key for key in ("bios_version", "bios", "firmware", "images", "power_max_w") if getattr(bmc, key)
        ]
        cooling = {**dict(bmc.cooling), "units": None}
        asked += [f"bios_intent.{key}" for key, value in bmc.bios_intent if value is not None]
        # A unit inherits temperatures, so with one they are compared.
        asked += [f"cooling.{key}" for key, value in cooling.items() if value and not bmc.cooling.units]
        if asked:
            yield f"bmc.{asked[0]} is set, but no BMC is asked for it; set bmc.redfish"
    services = {"bmc.redfish": bmc.redfish}
    services |= {f"bmc.cooling.units.{name}": unit for name, unit in bmc.cooling.units.items()}
    services |= {f"bmc.pdus.{name}": pdu for name, pdu in bmc.pdus.items()}
    for where, service in services.items():
        if service is not None and not service.tls_verify:
            yield f"{where}.tls_verify is false: whoever answers there is believed; set ca_file instead"
