"""host.governor, host.numa: CPUs and NUMA nodes as the profile has them.

/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor (https://docs.kernel.org/admin-guide/pm/cpufreq.html),
/sys/devices/system/node/node*/{meminfo,cpulist}, /proc/sys/kernel/numa_balancing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from pydantic import Field

from agent.checks import advice
from agent.checks.host_text import listed, meminfo, numbered
from agent.checks.registry import Limits, check
from agent.errors import DeviceAbsent, ParseError
from agent.model import Basis, Finding, ServingClass, Verdict
from agent.node_profile import NodeProfile
from agent.sources import Sources

CPUS = "sys/devices/system/cpu"
NODES = "sys/devices/system/node"
BALANCING = "proc/sys/kernel/numa_balancing"
_GOVERNOR = advice.play(
    "kernel",
    "Run cpupower frequency-set -g with the profile's governor, and see that a service sets it at each boot.",
)
_NO_GOVERNOR = advice.person(
    "Look in the BIOS for who sets the CPU's frequency, or take host.cpu_governor out of the profile."
)
_LAYOUT = advice.person(
    "Compare BIOS settings for NUMA (nodes per socket, interleaving) and the fitted memory with the profile."
)
_BALANCING = advice.play("kernel", "Set kernel.numa_balancing to 0 with sysctl -w and in /etc/sysctl.d.")


@check(
    "host.governor",
    title="CPU frequency governor",
    source="/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
    serving_class=ServingClass.INFO,
    period_s=60.0,
    fail_for_s=60.0,
    skip=lambda p: None if p.host.cpu_governor else "the profile does not compare it",
    action=_GOVERNOR,
)
def host_governor(sources: Sources, profile: NodeProfile, _limits: Limits) -> Iterator[Finding]:
    """Every CPU that is online must have the profile's frequency governor."""
    want = profile.host.cpu_governor or ""
    basis = Basis.profile("host.cpu_governor")
    cpus = numbered(sources.tree.names(CPUS), "cpu")
    if not cpus:
        raise ParseError(f"/{CPUS} lists no CPU")
    found = {cpu: governor for cpu in cpus if (governor := _governor(sources, cpu)) is not None}
    without = [cpu for cpu, governor in found.items() if not governor]
    wrong = [cpu for cpu, governor in found.items() if governor != want]
    if without:
        whose = "the CPUs have" if len(without) == len(found) else f"{listed(without)} has"
        summary = f"{whose} no frequency governor, expected {want}"
        yield Finding("node", Verdict.FAIL, summary, "none", want, action=_NO_GOVERNOR, basis=basis)
    elif wrong:
        seen = Counter(found[cpu] for cpu in wrong).most_common(1)[0][0]
        summary = f"{len(wrong)} of {len(found)} CPUs have governor {seen} ({listed(wrong)}), expected {want}"
        yield Finding("node", Verdict.FAIL, summary, seen, want, action=_GOVERNOR, basis=basis)
    else:
        yield Finding("node", Verdict.PASS, f"{want} on {len(found)} CPUs", want, want, basis=basis)


def _governor(sources: Sources, cpu: str) -> str | None:
    """The CPU's governor, empty when it has none, None when the CPU is offline."""
    try:
        return sources.tree.text(f"{CPUS}/{cpu}/cpufreq/scaling_governor")
    except DeviceAbsent:
        try:  # a CPU that cannot be taken offline has no such file
            return None if sources.tree.text(f"{CPUS}/{cpu}/online") == "0" else ""
        except DeviceAbsent:
            return ""


class NumaLimits(Limits):
    """Tolerances of host.numa."""

    balancing: bool = Field(
        False,
        description="Whether automatic NUMA balancing may be on: it moves pages that engines have bound",
    )


@check(
    "host.numa",
    title="NUMA layout",
    source="/sys/devices/system/node/node*/{meminfo,cpulist}, /proc/sys/kernel/numa_balancing",
    serving_class=ServingClass.INFO,
    limits=NumaLimits,
    period_s=60.0,
    fail_for_s=60.0,
    skip=lambda p: None if p.host.numa_nodes else "the profile does not say how many nodes",
    action=_LAYOUT,
)
def host_numa(sources: Sources, profile: NodeProfile, limits: NumaLimits) -> Iterator[Finding]:
    """The host must have the profile's NUMA nodes, memory on each that has CPUs, and no page balancing."""
    want = profile.host.numa_nodes or 0
    basis = Basis.profile("host.numa_nodes")
    nodes = numbered(sources.tree.names(NODES), "node")
    with_memory = [node for node in nodes if _memory_kb(sources, node) > 0]
    bare = [
        node for node in nodes if node not in with_memory and sources.tree.text(f"{NODES}/{node}/cpulist")
    ]
    balancing = _balancing(sources)
    if bare:
        summary = f"{listed(bare)} has CPUs and no memory: {len(with_memory)} of {want} nodes have memory"
        yield Finding("node", Verdict.FAIL, summary, len(with_memory), want, action=_LAYOUT, basis=basis)
    elif len(with_memory) != want:
        summary = f"NUMA nodes with memory: {len(with_memory)}, expected {want}"
        yield Finding("node", Verdict.FAIL, summary, len(with_memory), want, action=_LAYOUT, basis=basis)
    elif balancing and not limits.balancing:
        summary = f"automatic NUMA balancing is on (kernel.numa_balancing {balancing})"
        off = Basis.limit("balancing")
        yield Finding("node", Verdict.WARN, summary, balancing, 0, action=_BALANCING, basis=off)
    else:
        yield Finding("node", Verdict.PASS, f"NUMA nodes with memory: {want}", want, want, basis=basis)


def _memory_kb(sources: Sources, node: str) -> int:
    path = f"{NODES}/{node}/meminfo"
    return meminfo(sources.tree.text(path), path)["MemTotal"]


def _balancing(sources: Sources) -> int:
    """0 is off; a kernel without the setting balances nothing."""
    try:
        return sources.tree.integer(BALANCING)
    except DeviceAbsent:
        return 0
