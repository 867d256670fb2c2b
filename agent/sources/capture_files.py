"""Which files of sysfs, procfs and /etc a capture records, from a live Tree or a replayed one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from agent.errors import DeviceAbsent, ParseError, SourceError
from agent.sources import Tree
from agent.sources.refusals import refusal

_PCI = "sys/bus/pci/devices"
_NET = "sys/class/net"
_RDMA = "sys/class/infiniband"
_RELEASE = "proc/sys/kernel/osrelease"
#: Its first processor: what kind the CPUs are stands in a topology file.
_CPUINFO = "proc/cpuinfo"
#: Of its packages those of the GPU driver and its kin: the others are nobody's business, and megabytes.
_DPKG = "var/lib/dpkg/status"
_DRIVER_PACKAGE = re.compile(
    r"Package: (?:lib)?(?:nvidia|nvlsm|cuda-drivers|dcgm|datacenter-gpu|gdrdrv|doca)"
)
_STANZA_KEPT = ("Package: ", "Status: ", "Architecture: ", "Version: ")
#: Base class and subclass of what belongs to the node's work: GPUs, NICs (Ethernet, InfiniBand), NVSwitches.
_PCI_CLASSES = frozenset({0x0300, 0x0302, 0x0200, 0x0207, 0x0680})
#: A PCI-to-PCI bridge: of those above such devices, what says where peer-to-peer traffic goes.
_BRIDGE = 0x0604
_BRIDGE_NAMES = (
    "class", "vendor", "device", "numa_node", "current_link_speed", "current_link_width", "max_link_speed",
    "max_link_width",
)  # fmt: skip
_PCI_NAMES = (
    "class", "vendor", "device", "subsystem_vendor", "subsystem_device", "numa_node", "local_cpulist",
    "current_link_speed", "current_link_width", "max_link_speed", "max_link_width", "aer_dev_correctable",
    "aer_dev_nonfatal", "aer_dev_fatal", "revision",
)  # fmt: skip
#: Not text. Without CAP_SYS_ADMIN the kernel shows the first 64 bytes of `config` and nothing of `vpd`.
_PCI_BYTES = ("config", "vpd")

#: (folder, names in it); both may hold `*` and `?`. Reading more is cheap, missing what a check reads is not.
_ALWAYS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("proc", ("cmdline", "meminfo", "swaps", "uptime", "stat", "loadavg")),
    ("proc/self", ("mounts", "limits")),
    ("proc/sys/kernel/random", ("boot_id",)),
    (
        "proc/sys/kernel",
        (
            "hostname",
            "osrelease",
            "numa_balancing",
            "pid_max",
            "threads-max",
            "sched_migration_cost_ns",
        ),
    ),
    (
        "proc/sys/vm",
        (
            "swappiness",
            "max_map_count",
            "zone_reclaim_mode",
            "overcommit_memory",
            "min_free_kbytes",
            "dirty_ratio",
            "dirty_background_ratio",
            "vfs_cache_pressure",
            "compaction_proactiveness",
        ),
    ),
    (
        "proc/sys/net/core",
        (
            "somaxconn",
            "rmem_max",
            "wmem_max",
            "rmem_default",
            "wmem_default",
            "netdev_max_backlog",
        ),
    ),
    ("proc/sys/net/ipv4", ("tcp_rmem", "tcp_wmem", "tcp_congestion_control", "tcp_mtu_probing")),
    ("proc/driver/nvidia", ("version",)),
    ("etc", ("os-release",)),
    # What root read of settings: NV configuration of NICs, for one.
    ("run/nodegate-apply", ("*.json",)),
    ("sys/module/*", ("initstate",)),
    ("sys/module/nvidia*", ("version",)),
    ("sys/module/mlx5*", ("version",)),
    ("sys/module/pcie_aspm/parameters", ("policy",)),
    ("sys/kernel/mm/transparent_hugepage", ("enabled",)),
    ("sys/kernel/mm/hugepages/*", ("nr_hugepages", "free_hugepages")),
    ("sys/kernel/iommu_groups/*", ("type",)),
    ("sys/kernel/debug/sched", ("migration_cost_ns",)),
    ("sys/kernel/debug/mlx5/*/cc_params", ("*",)),
    ("sys/kernel/config/rdma_cm/*/ports/*", ("default_roce_tos",)),
    ("sys/class/nvme/*", ("state", "model", "firmware_rev")),
    ("sys/devices/system/cpu", ("online", "possible")),
    ("sys/devices/system/cpu/cpu*/cpufreq", ("scaling_governor",)),
    ("sys/devices/system/node", ("online", "has_memory")),
    ("sys/devices/system/node/node*", ("cpulist", "distance", "meminfo")),
    (f"{_RDMA}/*", ("fw_ver", "hca_type", "board_id", "node_guid", "sys_image_guid", "node_type")),
    (f"{_RDMA}/*/device", ("vendor", "device", "numa_node")),
    (
        f"{_RDMA}/*/ports/*",
        ("state", "phys_state", "rate", "link_layer", "lid", "lid_mask_count", "sm_lid", "sm_sl", "cap_mask"),
    ),
    (f"{_RDMA}/*/ports/*/counters", ("*",)),
    (f"{_RDMA}/*/ports/*/hw_counters", ("*",)),
    (f"{_RDMA}/*/ports/*/gids", ("?",)),
    (f"{_RDMA}/*/ports/*/gid_attrs/types", ("?",)),
    (f"{_RDMA}/*/ports/*/gid_attrs/ndevs", ("?",)),
    (f"{_RDMA}/*/tc/*", ("traffic_class",)),
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
    """Texts (or bytes, or errors) and link targets by path, and the interfaces that have a device."""

    files: dict[str, Any] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    netdevs: list[str] = field(default_factory=list)


def record_files(tree: Tree, sysctl: Iterable[str] = (), also: Iterable[str] = ()) -> FileRecording:
    """Read everything that is there, and the kernel settings and files that a profile names."""
    recording = FileRecording()
    settings = [key if "/" in key else key.replace(".", "/") for key in sysctl]
    named = [(f"proc/sys/{parent}", (name,)) for parent, _, name in (s.rpartition("/") for s in settings)]
    for folder, names in (*_ALWAYS, *named):
        _record(tree, recording, folder, names)
    _record_file(tree, recording, _CPUINFO)
    if isinstance(kind := recording.files.get(_CPUINFO), str):
        recording.files[_CPUINFO] = kind.partition("\n\n")[0]  # hundreds of processors of one kind
    _record_file(tree, recording, _DPKG)
    if isinstance(packages := recording.files.get(_DPKG), str):
        recording.files[_DPKG] = driver_stanzas(packages)
    _record(tree, recording, f"lib/modules/{recording.files.get(_RELEASE)}", ("modules.builtin",))
    for path in also:
        _record_file(tree, recording, path)
    for address in _names(tree, _PCI):
        if _class_of(tree, address) in _PCI_CLASSES:
            _record(tree, recording, f"{_PCI}/{address}", _PCI_NAMES)
            _record_link(tree, recording, f"{_PCI}/{address}")
            _record(tree, recording, f"{_PCI}/{address}/link", ("l1_aspm",))
            _record_link(tree, recording, f"{_PCI}/{address}/iommu_group")
            for name in _PCI_BYTES:
                _record_bytes(tree, recording, f"{_PCI}/{address}/{name}")
        elif _class_of(tree, address) == _BRIDGE:
            _record(tree, recording, f"{_PCI}/{address}", _BRIDGE_NAMES)
            _record_link(tree, recording, f"{_PCI}/{address}")
            _record_bytes(tree, recording, f"{_PCI}/{address}/config")
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


def driver_stanzas(text: str) -> str:
    """What dpkg says of the GPU driver's packages: name, status, architecture and version."""
    stanzas = (stanza for stanza in text.split("\n\n") if _DRIVER_PACKAGE.match(stanza.strip()))
    kept = ([line for line in each.splitlines() if line.startswith(_STANZA_KEPT)] for each in stanzas)
    return "\n\n".join("\n".join(lines) for lines in kept)


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
    """Record a text, or the error in its place (EINVAL while a port is down, a file of root's)."""
    try:
        recording.files[path] = tree.text(path)
    except (DeviceAbsent, ParseError):
        return
    except SourceError as cause:
        if not _names(tree, path):  # reading a folder fails too
            recording.files[path] = refusal(cause)


def _record_bytes(tree: Tree, recording: FileRecording, path: str) -> None:
    try:
        recording.files[path] = {"hex": tree.data(path).hex()}
    except DeviceAbsent:
        return
    except SourceError as cause:
        recording.files[path] = refusal(cause)


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


def _class_of(tree: Tree, address: str) -> int | None:
    """Base class and subclass of a PCI function; None when they cannot be read."""
    try:
        return tree.integer(f"{_PCI}/{address}/class") >> 8
    except SourceError:
        return None
