"""What BIOS intents contradict: what the profile expects to find on the host."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from agent.profile_problem import CrossProblem

if TYPE_CHECKING:
    from agent.node_profile import NodeProfile

_CHOOSE = "say the same in both, or leave one out"


def bios_problems(profile: NodeProfile) -> Iterator[CrossProblem]:
    """All contradictions between BIOS intents and the host's part."""
    intent, host = profile.bmc.bios_intent, profile.host
    nodes, each = host.numa_nodes, intent.numa_nodes_per_socket
    if nodes is not None and each is not None and nodes % each:
        yield _problem("numa_nodes_per_socket", f"sockets of {each} NUMA nodes make no {nodes}", "numa_nodes")
    if nodes is not None and nodes > 1 and intent.memory_interleave == "node":
        text = f"interleaving over the sockets leaves one NUMA node, {nodes} are expected"
        yield _problem("memory_interleave", text, "numa_nodes")
    if intent.iommu == "disabled" and host.iommu in ("pt", "on"):
        yield _problem("iommu", f"the host is to run with iommu {host.iommu}", "iommu")
    if intent.acs == "enabled" and host.acs == "off":
        yield _problem("acs", "the host is to run with ACS off", "acs")
    if intent.aspm == "disabled" and host.aspm in ("powersave", "powersupersave"):
        yield _problem("aspm", f"the host is to run with the policy {host.aspm}", "aspm")


def _problem(intent: str, text: str, key: str) -> CrossProblem:
    return CrossProblem(("bmc", "bios_intent", intent), text, ("host", key), _CHOOSE)
