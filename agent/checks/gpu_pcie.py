"""gpu.pcie: has the GPU all its PCIe lanes, and its speed when it works?

NVML: nvmlDeviceGetCurrPcieLinkWidth and Generation against Max, or against the profile. An idle GPU lowers
its generation to save power, so that counts under load only; lanes are never given up to save power.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from agent.checks import advice
from agent.checks.gpus import GpuSlot, count_of, judge_readings, no_gpus, read
from agent.checks.registry import Limits, check
from agent.errors import ParseError
from agent.model import Basis, Finding, ServingClass, Verdict
from agent.node_profile import NodeProfile
from agent.sources import Sources
from agent.sources.gpu_reading import GpuReading, NvmlGroup

_LANES = advice.reseat("Drain the node and reseat the GPU or its riser: PCIe lanes do not come up.")
_SLOT = advice.reseat(
    "Drain the node and check slot, riser and BIOS of this GPU, or correct gpus.pcie_generation."
)
_SPEED = advice.person(
    "Check the kernel log and gpu.pcie_errors of this GPU: its link has fallen back to a lower speed."
)


class PcieLimits(Limits):
    """Tolerances of gpu.pcie."""

    busy_percent: int = Field(
        20, description="Utilisation from which the link must run at full speed", ge=1, le=100
    )


def no_pcie(profile: NodeProfile) -> str | None:
    """Skip rule: what the platform tells of the GPU's PCIe link is a placeholder."""
    return no_gpus(profile) or (
        None if profile.gpus.pcie else "PCIe readings of this platform are placeholders"
    )


@check(
    "gpu.pcie",
    title="PCIe link",
    source="nvmlDeviceGetCurrPcieLinkWidth, nvmlDeviceGetCurrPcieLinkGeneration and their maxima",
    serving_class=ServingClass.HARD,
    limits=PcieLimits,
    period_s=30.0,
    fail_for_s=30.0,
    triggers=("kmsg.pcie",),
    skip=no_pcie,
    action=_LANES,
    if_unreadable="Where a virtual machine hides the link, write `gpus: {pcie: false}` into the profile.",
)
def gpu_pcie(sources: Sources, profile: NodeProfile, limits: PcieLimits) -> Iterator[Finding]:
    """The link must have all its lanes, and its generation while the GPU works."""
    yield from judge_readings(
        sources, profile, NvmlGroup.PCIE, lambda slot, now: _judge(slot, sources, profile, now, limits)
    )


def _judge(
    slot: GpuSlot, sources: Sources, profile: NodeProfile, now: GpuReading, limits: PcieLimits
) -> Finding:
    width, most_width = link_part(now, "width"), link_part(now, "max_width")
    generation, most = link_part(now, "generation"), link_part(now, "max_generation")
    want_width, width_basis = most_width, Basis.device("highest PCIe link width")
    if profile.gpus.pcie_width is not None:
        want_width, width_basis = profile.gpus.pcie_width, Basis.profile("gpus.pcie_width")
    want, basis = most, Basis.device("highest PCIe link generation")
    if profile.gpus.pcie_generation is not None:
        want, basis = profile.gpus.pcie_generation, Basis.profile("gpus.pcie_generation")
    if width < want_width:
        return Finding(
            slot.subject, Verdict.FAIL, f"x{width}, expected x{want_width}", width, want_width, "lanes",
            _LANES, basis=width_basis,
        )  # fmt: skip
    if most < want:
        summary = f"the slot allows Gen{most} at most, expected Gen{want}"
        return Finding(slot.subject, Verdict.FAIL, summary, most, want, action=_SLOT, basis=basis)
    if generation >= want:
        text = f"Gen{generation} x{width}"
        return Finding(slot.subject, Verdict.PASS, text, generation, want, basis=basis)
    busy = count_of(read(sources, slot, NvmlGroup.POWER), "gpu_utilization_percent")
    if busy < limits.busy_percent:
        text = f"Gen{generation} x{width} at {busy} % utilisation: an idle link saves power"
        return Finding(slot.subject, Verdict.PASS, text, generation, want, basis=basis)
    summary = f"Gen{generation} at {busy} % utilisation, expected Gen{want}"
    return Finding(slot.subject, Verdict.WARN, summary, generation, want, action=_SPEED, basis=basis)


def link_part(now: GpuReading, field: str) -> int:
    """A width or generation. Raises ParseError for one that no link has."""
    value = count_of(now, field)
    if not 1 <= value <= 64:
        raise ParseError(f"{now.group}.{field} reads {value}, which no PCIe link has")
    return value
