"""Replay nodes as FakeNodes, so that tests of topology can move cards about."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from fake_sources import FakeNode
from nodes import node_dir, profile_path

from agent.node_profile import NodeProfile
from agent.profile_loader import LoadedProfile, load_profile
from agent.topo.facts import record
from agent.topo.machine import read_machine
from agent.topo.model import System

CAPTURE = Path(__file__).parents[1] / "topo" / "h200-x2"
PCI = "sys/bus/pci/devices"


@cache
def _documents(name: str) -> dict[str, Any]:
    folder = node_dir(name)
    names = {"nvml": "nvml.json", "files": "tree.json", "links": "links.json"}
    return {key: json.loads((folder / file).read_text(encoding="utf-8")) for key, file in names.items()}


def topo_node(name: str) -> FakeNode:
    """A node folder's GPUs, files and links, free to be changed."""
    return FakeNode(_documents(name))


@cache
def _profile(name: str) -> LoadedProfile:
    return load_profile(profile_path(name))


def topo_profile(name: str) -> NodeProfile:
    """The profile that goes with the node."""
    return _profile(name).profile


def machine(node: FakeNode, profile: NodeProfile, *also: str) -> System:
    """The node's topology as it is now."""
    return read_machine(node.sources, profile, also=also)


def recorded(node: FakeNode, profile: NodeProfile, **topology: Any) -> NodeProfile:
    """The profile with the node's topology of now as the expected one."""
    part = profile.topology.model_copy(update={"expected": record(node.sources, profile), **topology})
    return profile.model_copy(update={"topology": part})


def swap_addresses(node: FakeNode, one: str, other: str) -> None:
    """PCI enumeration gives two devices each other's bus id; both stay in their slots."""
    swapped = {one: other, other: one}
    for gpu in node.data["nvml"]["gpus"]:
        address = gpu["identity"]["pci_bus_id"]
        gpu["identity"]["pci_bus_id"] = swapped.get(address, address)
    for key in ("files", "links"):
        kept = node.data[key]
        node.data[key] = {_renamed(path, swapped): value for path, value in kept.items()}
    links = node.data["links"]
    for path, target in list(links.items()):
        head, _, last = target.rpartition("/")
        if last in swapped:
            links[path] = f"{head}/{swapped[last]}"


def _renamed(path: str, swapped: dict[str, str]) -> str:
    return "/".join(swapped.get(part, part) for part in path.split("/"))
