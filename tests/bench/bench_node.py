"""The node of the benchmark: B300 with eight four-plane NICs, its files on tmpfs, NVML by the test library.

SIMULATED: sysfs and procfs are copies of the replay node's files; NVML calls take the times that were
recorded on an idle H200; netlink, the kernel log, systemd and the BMC are replayed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from nodes import node_dir
from nvml_lib import NvmlFile

from agent.errors import DeviceAbsent, SourceError
from agent.sources import Net, Sources
from agent.sources.fs import SysTree
from agent.sources.node_folder import NodeFolder, load_node_folder
from agent.sources.nvml import NvmlProcess
from agent.sources.replay import replay_sources

NODE = node_dir("b300-roce")
GPUS = 8
TMPFS = Path("/dev/shm")


@contextmanager
def files_on_tmpfs() -> Iterator[Path]:
    """The node's files below a folder on tmpfs, where nothing is faster to read."""
    with tempfile.TemporaryDirectory(prefix="nodegate-bench-", dir=TMPFS) as folder:
        write_tree(load_node_folder(NODE), Path(folder))
        yield Path(folder)


def write_tree(folder: NodeFolder, root: Path) -> None:
    """Links of a node folder, then its files, some of which were captured by way of a link."""
    files = folder.files or {}
    for path, pointed in folder.links.items():
        link = root / path
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(pointed)
        if any(name.startswith(f"{path}/") for name in files):
            (link.parent / pointed).mkdir(parents=True, exist_ok=True)
    for path, content in files.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            target.write_text(f"{content}\n")
        elif isinstance(content, dict) and "hex" in content:  # PCI configuration space, vital product data
            target.write_bytes(bytes.fromhex(content["hex"]))


def nvml_file(path: Path, latencies_us: Mapping[str, int] | None = None) -> NvmlFile:
    """The file behind the library, with the identities of the node's GPUs, so that its pins are met."""
    file = NvmlFile(path, gpus=GPUS, latencies_us=latencies_us)
    for number, gpu in enumerate(load_node_folder(NODE).nvml["gpus"]):
        who = gpu["identity"]
        for key in ("uuid", "serial", "name", "vbios", "pci_bus_id"):
            if who.get(key):
                file.values[f"gpu{number}.{key}"] = who[key]
        file.values[f"gpu{number}.pci_bus_id"] = f"0000{who['pci_bus_id'].upper()}"
    file.values |= B300
    file.write()
    return file


#: What the library says otherwise than of an H200, so that the node's profile is met.
B300 = {
    "driver_version": "580.95.05",
    "nvml_version": "13.580.95.05",
    "gpu.field.164": 53125,
    **{f"gpu.{name}_limit_mw": 1_100_000 for name in ("enforced", "requested", "default", "max")},
}


class StillNet:
    """What netlink and ethtool say, read once from the replay: they are no part of what is measured."""

    def __init__(self, net: Net, netdevs: Iterable[str]) -> None:
        self._known: dict[tuple[str, str], Any] = {}
        for netdev in netdevs:
            for part in ("link", "ethtool_stats", "dcb", "driver", "pause", "module"):
                try:
                    self._known[part, netdev] = getattr(net, part)(netdev)
                except SourceError as cause:
                    self._known[part, netdev] = cause

    def __getattr__(self, part: str) -> Any:
        def answer(netdev: str) -> Any:
            found = self._known.get((part, netdev)) or DeviceAbsent(f"there is no {netdev}")
            if isinstance(found, SourceError):
                raise found
            return found

        return answer


def sources_on(root: Path, nvml: NvmlProcess) -> Sources:
    """The node's sources with files from `root` and readings from `nvml`; the rest is replayed."""
    replayed = replay_sources(NODE, None)
    net = StillNet(replayed.sources.net, replayed.folder.net or {})
    return replace(replayed.sources, tree=SysTree(root), nvml=nvml, net=net)
