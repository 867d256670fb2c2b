"""host.memory, host.hugepages, host.thp, host.swap: the host's memory as the profile has it.

/proc/meminfo, /proc/swaps (proc(5)); /sys/kernel/mm/{hugepages,transparent_hugepage}
(https://docs.kernel.org/admin-guide/mm/hugetlbpage.html, .../transhuge.html).
"""

from __future__ import annotations

from collections.abc import Iterator

from agent.checks import advice
from agent.checks.host_text import chosen, listed, meminfo
from agent.checks.registry import Limits, check
from agent.errors import DeviceAbsent, ParseError
from agent.model import Basis, Finding, ServingClass, Verdict
from agent.node_profile import NodeProfile
from agent.sources import Sources

KIB_PER_GIB = 1 << 20
HUGEPAGES = "sys/kernel/mm/hugepages"
THP = "sys/kernel/mm/transparent_hugepage/enabled"
_MEMORY = advice.reseat(
    "Compare the modules that dmidecode -t memory lists with those that are fitted: reseat what is missing."
)
_HUGEPAGES = advice.play(
    "kernel",
    "Set vm.nr_hugepages, or hugepages= on the kernel's command line, which also works when memory is full.",
)
_THP = advice.play("kernel", f"Write the value to /{THP}, and transparent_hugepage= into the boot loader.")
_SWAP = advice.play(
    "kernel", "Run swapoff -a and take the swap space out of /etc/fstab and of systemd's swap units."
)


@check(
    "host.memory",
    title="Memory of the host",
    source="/proc/meminfo: MemTotal",
    serving_class=ServingClass.INFO,
    period_s=60.0,
    fail_for_s=60.0,
    skip=lambda p: None if p.host.memory_gib is not None else "the profile does not say how much memory",
    action=_MEMORY,
)
def host_memory(sources: Sources, profile: NodeProfile, _limits: Limits) -> Iterator[Finding]:
    """The host must have the profile's memory: a module that failed at boot is simply missing."""
    path = "proc/meminfo"
    seen_gib = round(meminfo(sources.tree.text(path), path)["MemTotal"] / KIB_PER_GIB, 1)
    want_gib = profile.host.memory_gib or 0.0
    basis = Basis.profile("host.memory_gib")
    if seen_gib < want_gib:
        summary = f"{seen_gib:g} GiB of memory, expected at least {want_gib:g} GiB"
        yield Finding("node", Verdict.FAIL, summary, seen_gib, want_gib, "GiB", _MEMORY, basis=basis)
        return
    yield Finding("node", Verdict.PASS, f"{seen_gib:g} GiB", seen_gib, want_gib, "GiB", basis=basis)


@check(
    "host.hugepages",
    title="Huge pages",
    source="/sys/kernel/mm/hugepages/hugepages-*kB/nr_hugepages",
    serving_class=ServingClass.INFO,
    period_s=60.0,
    fail_for_s=60.0,
    skip=lambda p: None if p.host.hugepages else "the profile asks for no huge pages",
    action=_HUGEPAGES,
)
def host_hugepages(sources: Sources, profile: NodeProfile, _limits: Limits) -> Iterator[Finding]:
    """As many huge pages of each size must exist as the profile says."""
    sources.tree.names(HUGEPAGES)  # without it nothing is known of any size
    for size_kb, want in profile.host.hugepages.items():
        basis = Basis.profile(f"host.hugepages.{size_kb}")
        try:
            seen = sources.tree.integer(f"{HUGEPAGES}/hugepages-{size_kb}kB/nr_hugepages")
        except DeviceAbsent:
            summary = f"this kernel has no huge pages of {size_kb} kB"
            yield Finding("node", Verdict.FAIL, summary, "absent", want, action=_HUGEPAGES, basis=basis)
            return
        if seen < 0:
            raise ParseError(f"the number of huge pages of {size_kb} kB reads {seen}")
        if seen < want:
            summary = f"{seen} huge pages of {size_kb} kB, expected {want}"
            yield Finding("node", Verdict.FAIL, summary, seen, want, action=_HUGEPAGES, basis=basis)
            return
    yield Finding("node", Verdict.PASS, "as the profile says", basis=Basis.profile("host.hugepages"))


@check(
    "host.thp",
    title="Transparent huge pages",
    source=f"/{THP}",
    serving_class=ServingClass.INFO,
    period_s=60.0,
    fail_for_s=60.0,
    skip=lambda p: None if p.host.transparent_hugepage else "the profile does not compare them",
    action=_THP,
)
def host_thp(sources: Sources, profile: NodeProfile, _limits: Limits) -> Iterator[Finding]:
    """Transparent huge pages must be used as the profile says."""
    seen, want = chosen(sources.tree.text(THP), THP), profile.host.transparent_hugepage
    basis = Basis.profile("host.transparent_hugepage")
    if seen != want:
        summary = f"transparent huge pages are set to {seen}, expected {want}"
        yield Finding("node", Verdict.FAIL, summary, seen, want, action=_THP, basis=basis)
        return
    yield Finding("node", Verdict.PASS, f"set to {seen}", seen, want, basis=basis)


@check(
    "host.swap",
    title="Swap space",
    source="/proc/swaps",
    serving_class=ServingClass.INFO,
    period_s=60.0,
    fail_for_s=60.0,
    skip=lambda p: None if p.host.swap is False else "the profile allows swap space",
    action=_SWAP,
)
def host_swap(sources: Sources, _profile: NodeProfile, _limits: Limits) -> Iterator[Finding]:
    """There must be no swap space: an engine that is swapped out answers too late, not never."""
    lines = sources.tree.text("proc/swaps").splitlines()
    if not lines or not lines[0].startswith("Filename"):
        raise ParseError("/proc/swaps has no heading")
    spaces = [line.split()[0] for line in lines[1:] if line.split()]
    basis = Basis.profile("host.swap")
    if spaces:
        summary = f"swap space is in use: {listed(spaces)}"
        yield Finding("node", Verdict.FAIL, summary, listed(spaces), "none", action=_SWAP, basis=basis)
        return
    yield Finding("node", Verdict.PASS, "no swap space", "none", "none", basis=basis)
