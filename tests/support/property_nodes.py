"""Healthy nodes for the property test, as data that is never changed in place, and ways to spoil them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from check_cases import run_check
from fake_groups import GENERATION
from fake_h200 import h200_data, h200_profile
from fake_sources import FakeClock, FakeNode
from nodes import node_dir, profile_path
from topo_nodes import machine, recorded

from agent.checks.registry import Check
from agent.model import Finding, Verdict
from agent.node_profile import NodeProfile
from agent.profile_loader import load_profile
from agent.sources.node_folder import load_node_folder
from agent.topo.write_file import render

#: The slot whose values are spoiled one by one; those of other slots are read by the same code.
SLOT = 3
#: What NCCL looks at in /proc/cpuinfo.
CPUINFO = "vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143"


@dataclass(frozen=True, eq=False)
class Variant:
    """A healthy node: its data and the profile that it fulfils."""

    name: str
    data: dict[str, Any] = field(repr=False)
    profile: NodeProfile = field(repr=False)

    def node(self, data: dict[str, Any] | None = None) -> FakeNode:
        """A node over this data, or over a spoiled copy of it."""
        return FakeNode(self.data if data is None else data, FakeClock(), shared=True)

    @cache  # noqa: B019 (variants live as long as the tests)
    def marks(self, slot: int) -> dict[str, tuple[str, ...]]:
        """By subject of a slot (its GPU and its ports): what a path must hold to belong to it."""
        gpu = self.data["nvml"]["gpus"][slot]["identity"]
        found = {f"gpu{slot}": (f"nvml.gpus.{slot}.", f"/{gpu['pci_bus_id']}/", f"/{gpu['pci_bus_id']}")}
        for i, port in enumerate(self.profile.fabric.ports):
            if (port.gpu if port.gpu is not None else i) == slot:
                found[f"{port.device}/{port.port}"] = (
                    f"/{port.device}/", f"net.{port.netdev}.", f"/{port.netdev}/", f"/{port.pci_bus_id}",
                )  # fmt: skip
        return found

    def subjects_of(self, path: str, slot: int) -> set[str]:
        """The subjects of a slot that a path belongs to."""
        return {
            subject
            for subject, marks in self.marks(slot).items()
            if any(mark in path for mark in marks) and not _other_port(path, subject)
        }

    def of_other_slot(self, path: str) -> bool:
        """Whether a path belongs to another slot than SLOT."""
        if self.subjects_of(path, SLOT):
            return False
        return any(self.subjects_of(path, slot) for slot in range(self.profile.gpus.count) if slot != SLOT)


def _other_port(path: str, subject: str) -> bool:
    """Whether a path names another port of the same device."""
    port = subject.rpartition("/")[2]
    return "/ports/" in path and f"/ports/{port}/" not in path and not subject.startswith("gpu")


def _of_folder(name: str) -> Variant:
    folder = load_node_folder(node_dir(name))
    data: dict[str, Any] = {
        "nvml": folder.nvml,
        "net": {
            netdev: {part: value for part, value in parts.items() if value != {"error": "MISSING"}}
            for netdev, parts in (folder.net or {}).items()
        },
        "files": folder.files,
        "links": folder.links,
        "kmsg": [f"{r.level},{r.seq},{round(r.mono_s * 1e6)},-;{r.text}" for r in folder.kmsg or ()],
        "host": folder.host or {},
        "bmc": folder.bmc or {},
    }
    return Variant(name, data, load_profile(profile_path(name)).profile)


@cache
def variants() -> tuple[Variant, ...]:
    """The healthy nodes, the widest first."""
    h200 = Variant("fake-h200", FakeNode(h200_data()).data, h200_profile())
    units = h200.data["host"]["units"]
    unit = units["nvidia-fabricmanager.service"]
    host = {**h200.data["host"], "units": {**units, "nvidia-imex.service": unit}}
    imex = Variant("fake-imex", {**h200.data, "host": host}, h200_profile({"nvlink": {"imex": True}}))
    models = {name: {"launch": {"model": f"/models/{name}"}} for name in h200.profile.engines}
    weights = Variant("fake-weights", h200.data, h200_profile({"engines": models}))
    folders = (_of_folder(name) for name in ("b300-roce", "h200-ib"))
    return (h200, imex, weights, _recorded(h200), _grouped(h200), _proven(h200), *folders)


def _recorded(h200: Variant) -> Variant:
    """The topology is recorded in the profile, and NCCL is given a file that was written from the machine."""
    profile = recorded(h200.node(), h200.profile, nccl_file="/etc/nodegate/topo.xml")
    data = {**h200.data, "files": {**h200.data["files"], "proc/cpuinfo": CPUINFO}}
    text = render(machine(FakeNode(data, shared=True), h200.profile))
    files = {**data["files"], "etc/nodegate/topo.xml": text}
    return Variant("fake-recorded", {**data, "files": files}, profile)


def _grouped(h200: Variant) -> Variant:
    """The head of a model that spans three nodes, while all members serve."""
    members = [{"node": f"n{rank}", "address": f"10.0.0.{rank + 1}"} for rank in range(3)]
    group = {"rank": 0, "key_file": "/etc/nodegate/group.key", "members": members}
    profile = h200_profile({"node": "n0", "engines": {"glm": {"group": group}}})
    says = {"gate": "member", "stage": "go", "phase": "warm", "generation": GENERATION, "trouble": ""}
    peers = [
        {"node": f"n{rank}", "rank": rank, "age_s": 0.5, "data_age_s": 0.5, "skew_s": 0.0, "status": says}
        for rank in (1, 2)
    ]
    groups = {"glm": {"rank": 0, "stage": "go", "phase": "warm", "serving": True, "peers": peers}}
    return Variant("fake-group", {**h200.data, "groups": groups}, profile)


def _proven(h200: Variant) -> Variant:
    """A checklist is required, and has passed on the parts that are there."""
    parts = {f"gpu{slot}": gpu["identity"]["uuid"] for slot, gpu in enumerate(h200.data["nvml"]["gpus"])}
    run = {"run_id": "20261129T200000Z-burn-in", "end": "passed", "summary": "passed", "parts": parts}
    data = {**h200.data, "checklists": {"runs": {"burn-in": [run]}, "parts": parts}}
    return Variant("fake-proven", data, h200_profile({"admission": {"require": ["burn-in"]}}))


def variant_for(check: Check) -> Variant:
    """The first healthy node on which the check has something to judge."""
    for variant in variants():
        if any(f.verdict is Verdict.PASS for f in healthy(check, variant)[0].values()):
            return variant
    raise LookupError(f"{check.id} passes on no healthy node of the property test")


def twice(check: Check, before: FakeNode, data: dict[str, Any], profile: NodeProfile) -> dict[str, Finding]:
    """A first sample of a healthy node where the check needs one, then one of the spoiled node."""
    if check.needs_interval_s:
        run_check(check, before, profile)
        before.clock.now_s += check.needs_interval_s
    for name, value in data.items():
        before.data[name] = value
    return run_check(check, before, profile)


@cache
def healthy(check: Check, variant: Variant) -> tuple[dict[str, Finding], frozenset[str]]:
    """What the check says of the healthy node, and what it reads there."""
    node = variant.node()
    findings = twice(check, node, {}, variant.profile)
    return findings, frozenset(node.reads)


def spoiled(data: Mapping[str, Any], path: str, value: Any, *, drop: bool = False) -> dict[str, Any]:
    """A copy of the data with one value replaced or dropped; only what lies on the way is copied."""
    return dict(_spoil(data, keys_of(path, data), value, drop))


def _spoil(at: Any, keys: list[str], value: Any, drop: bool) -> Any:
    key, rest = keys[0], keys[1:]
    copied = dict(at) if isinstance(at, Mapping) else list(at)
    index: Any = int(key) if isinstance(copied, list) else key
    if rest:
        known = index in copied if isinstance(copied, dict) else index < len(copied)
        copied[index] = _spoil(copied[index] if known else {}, rest, value, drop)
    elif not drop:
        copied[index] = value
    elif isinstance(copied, dict):
        copied.pop(index, None)
    else:
        del copied[index]
    return copied


def keys_of(path: str, data: Mapping[str, Any]) -> list[str]:
    """The keys that lead to a path as FakeNode.reads notes it."""
    for mapping in ("files", "links"):
        if path.startswith(f"{mapping}:"):
            return [mapping, path.partition(":")[2]]
    kind, _, rest = path.partition(".")
    if kind == "net":
        netdev, _, part = rest.rpartition(".")
        return [kind, netdev, part]
    if kind == "host":
        part, _, name = rest.partition(".")
        return [kind, part, name] if name else [kind, part]
    if kind == "bmc":
        service, _, document = rest.partition(".")
        return [kind, service, document]
    return path.split(".")


def value_at(data: Mapping[str, Any], path: str) -> Any:
    """The value at a path; None when there is none."""
    at: Any = data
    for key in keys_of(path, data):
        try:
            at = at[int(key)] if isinstance(at, list) else at[key]
        except (KeyError, IndexError):
            return None
    return at
