"""Which files of sysfs, procfs and /etc a capture records, from a live Tree or a replayed one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from agent.errors import DeviceAbsent, SourceError
from agent.sources import Tree

_PCI = "sys/bus/pci/devices"
_NET = "sys/class/net"
_RDMA = "sys/class/infiniband"
#: Base class and subclass of what belongs to the node's work: GPUs, NICs (Ethernet, InfiniBand), NVSwitches.
_PCI_CLASSES = frozenset({0x0300, 0x0302, 0x0200, 0x0207, 0x0680})
_PCI_NAMES = (
    "class", "vendor", "device", "subsystem_vendor", "subsystem_device", "numa_node", "local_cpulist",
    "current_link_speed", "current_link_width", "max_link_speed", "max_link_width",
)  # fmt: skip

#: (folder, names in it); both may hold `*` and `?`. Reading more is cheap, missing what a check reads is not.
_ALWAYS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("proc", ("cmdline", "meminfo")),
    ("proc/sys/kernel/random", ("boot_id",)),
    ("proc/sys/kernel", ("hostname", "osrelease", "numa_balancing", "pid_max")),
    ("proc/sys/vm", ("swappiness", "max_map_count", "zone_reclaim_mode", "overcommit_memory")),
    ("proc/driver/nvidia", ("version",)),
    ("etc", ("os-release",)),
    ("sys/module/nvidia*", ("version", "initstate")),
    ("sys/module/mlx5*", ("version", "initstate")),
    ("sys/module/ib_umad", ("initstate",)),
    ("sys/devices/system/node", ("online",)),
    ("sys/devices/system/node/node*", ("cpulist", "distance")),
    (f"{_RDMA}/*", ("fw_ver", "hca_type", "board_id", "node_guid", "sys_image_guid", "node_type")),
    (f"{_RDMA}/*/device", ("vendor", "device", "numa_node")),
    (f"{_RDMA}/*/ports/*", ("state", "phys_state", "rate", "link_layer", "lid")),
    (f"{_RDMA}/*/ports/*/counters", ("*",)),
    (f"{_RDMA}/*/ports/*/hw_counters", ("*",)),
    (f"{_RDMA}/*/ports/*/gids", ("?",)),
    (f"{_RDMA}/*/ports/*/gid_attrs/types", ("?",)),
    (f"{_RDMA}/*/ports/*/gid_attrs/ndevs", ("?",)),
)
#: Under each network interface that has a device.
_NETDEV: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("", (
        "address", "mtu", "operstate", "carrier", "carrier_down_count", "carrier_up_count", "speed", "duplex",
        "type",
    )),
    ("/ecn/*", ("*",)),
    ("/ecn/*/enable", ("*",)),
    ("/device", ("vendor", "device", "numa_node")),
)  # fmt: skip


@dataclass(slots=True)
class FileRecording:
    """Texts by path, link targets by path, and the network interfaces that have a device."""

    files: dict[str, str] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    netdevs: list[str] = field(default_factory=list)


def record_files(tree: Tree) -> FileRecording:
    """Read everything that is there; what cannot be read is left out, as a check would find it missing."""
    recording = FileRecording()
    for folder, names in _ALWAYS:
        _record(tree, recording, folder, names)
    for address in _names(tree, _PCI):
        if _is_interesting(tree, address):
            _record(tree, recording, f"{_PCI}/{address}", _PCI_NAMES)
            _record_link(tree, recording, f"{_PCI}/{address}")
    for name in _names(tree, _NET):
        if tree.exists(f"{_NET}/{name}/device"):
            recording.netdevs.append(name)
            for folder, names in _NETDEV:
                _record(tree, recording, f"{_NET}/{name}{folder}", names)
            _record_link(tree, recording, f"{_NET}/{name}")
            _record_link(tree, recording, f"{_NET}/{name}/device")
    for name in _names(tree, _RDMA):
        _record_link(tree, recording, f"{_RDMA}/{name}")
        _record_link(tree, recording, f"{_RDMA}/{name}/device")
    for name in _names(tree, "dev"):
        if name.startswith("nvidia") and name[len("nvidia") :].isdecimal():
            recording.files[f"dev/{name}"] = ""  # a device node: only that it is there counts
    return recording


def expand(tree: Tree, pattern: str) -> Iterator[str]:
    """Folders that match a pattern, part by part."""
    head, _, tail = pattern.partition("*")
    if not tail and "*" not in pattern:
        yield pattern
        return
    parent, _, prefix = head.rpartition("/")
    rest = prefix + pattern[len(head) :]
    part, _, below = rest.partition("/")
    for name in _names(tree, parent):
        if fnmatchcase(name, part):
            yield from expand(tree, f"{parent}/{name}/{below}" if below else f"{parent}/{name}")


def _record(tree: Tree, recording: FileRecording, pattern: str, names: tuple[str, ...]) -> None:
    for folder in expand(tree, pattern):
        for name in names:
            wild = "*" in name or "?" in name
            for found in _names(tree, folder) if wild else [name]:
                if not wild or fnmatchcase(found, name):
                    _record_file(tree, recording, f"{folder}/{found}")


def _record_file(tree: Tree, recording: FileRecording, path: str) -> None:
    try:
        recording.files[path] = tree.text(path)
    except SourceError:
        return  # absent, a folder, or refused by the driver (EINVAL while a port is down)


def _record_link(tree: Tree, recording: FileRecording, path: str) -> None:
    try:
        recording.links[path] = tree.link_target(path)
    except SourceError:
        return


def _names(tree: Tree, folder: str) -> list[str]:
    try:
        return tree.names(folder)
    except SourceError:
        return []


def _is_interesting(tree: Tree, address: str) -> bool:
    try:
        return tree.integer(f"{_PCI}/{address}/class") >> 8 in _PCI_CLASSES
    except DeviceAbsent:
        return False
