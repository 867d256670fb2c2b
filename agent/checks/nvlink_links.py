"""nvlink.links: are all NVLinks of each GPU active, and at full speed?

NVML: nvmlDeviceGetFieldValues with NVML_FI_DEV_NVLINK_GET_STATE and NVML_FI_DEV_NVLINK_GET_SPEED by link. How
many links a GPU has depends on the SKU (18 on an HGX baseboard, 12 or none on PCIe cards): see the profile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from pydantic import Field

from agent.checks import advice
from agent.checks.gpus import GpuSlot, judge_readings, no_gpus
from agent.checks.registry import Limits, check
from agent.errors import NotSupported, ParseError
from agent.model import Action, ActionKind, Basis, Finding, ServingClass, Verdict
from agent.node_profile import NodeProfile
from agent.sources import Sources
from agent.sources.gpu_reading import GpuReading, NvmlGroup

_REPAIR = Action(
    ActionKind.RESET_GPU,
    "Stop the engine, restart nvidia-fabricmanager, reset the GPU; if links stay down, reseat or replace it.",
)

_CORRECT = advice.person("Correct nvlink.links_per_gpu in the profile.")
_OFF = advice.person(
    "A GPU without NVLink (PCIe card, single-GPU partition) has `nvlink: {links_per_gpu: 0, fabric: false}`;"
    " else look why the driver has switched NVLink off: NVreg_NvLinkDisable, nvidia-fabricmanager's log."
)


class LinkLimits(Limits):
    """Tolerances of nvlink.links."""

    speed_tolerance_percent: float = Field(
        1.0,
        description="Percent that a link may be below its speed",
        ge=0,
        le=50,
    )


def no_nvlink(profile: NodeProfile) -> str | None:
    """Skip rule: a node without NVLink."""
    return no_gpus(profile) or (None if profile.nvlink.links_per_gpu else "the profile has no NVLink")


@check(
    "nvlink.links",
    title="NVLinks active and at speed",
    source="nvmlDeviceGetFieldValues: NVML_FI_DEV_NVLINK_GET_STATE, NVML_FI_DEV_NVLINK_GET_SPEED",
    serving_class=ServingClass.HARD,
    limits=LinkLimits,
    # A look takes NVML 2 ms a GPU; a link that fails makes an Xid, which brings the next look forward.
    period_s=10.0,
    fail_for_s=10.0,
    triggers=("kmsg.xid",),
    skip=no_nvlink,
    action=_REPAIR,
    if_unreadable="A GPU without NVLink has `nvlink: {links_per_gpu: 0, fabric: false}` in the profile.",
)
def nvlink_links(sources: Sources, profile: NodeProfile, limits: LinkLimits) -> Iterator[Finding]:
    """Each GPU must have the profile's number of active links, each at the profile's speed."""
    yield from judge_readings(
        sources, profile, NvmlGroup.NVLINK, lambda slot, now: _judge(slot, now, profile, limits)
    )


def _judge(slot: GpuSlot, now: GpuReading, profile: NodeProfile, limits: LinkLimits) -> Finding:
    want = profile.nvlink.links_per_gpu
    try:
        states = now.booleans("states")
    except NotSupported:
        return _finding(
            slot, Verdict.FAIL, f"NVLink is off: the driver has no links, {want} expected", 0, want, _OFF
        )
    active = [link for link, up in enumerate(states) if up]
    if len(active) < want:
        down = [link for link, up in enumerate(states) if not up]
        names = f"; down: {_listed(down)}" if down else ""
        return _finding(slot, Verdict.FAIL, f"{len(active)} of {want} links active{names}", len(active), want)
    slow = _slow_links(now, active, profile, limits)
    if slow:
        return _too_slow(slot, slow, profile)
    if len(active) > want:
        summary = f"{len(active)} links active, the profile has {want}: correct the profile"
        return replace(_finding(slot, Verdict.WARN, summary, len(active), want), action=_CORRECT)
    speed = f"{profile.nvlink.speed_mb_s} MB/s" if profile.nvlink.speed_mb_s else "speed not compared"
    return _finding(slot, Verdict.PASS, f"{len(active)} links active, {speed}", len(active), want)


def _slow_links(
    now: GpuReading, active: Sequence[int], profile: NodeProfile, limits: LinkLimits
) -> dict[int, int]:
    """Speed in MB/s of each active link that is too slow: for the profile, else beside the fastest one."""
    want = profile.nvlink.speed_mb_s
    if want is None and not now.supported("speeds_mb_s"):
        return {}
    speeds = now.integers("speeds_mb_s")
    if len(speeds) <= max(active):
        raise ParseError(f"NVML gives {len(speeds)} link speeds but link {max(active)} is active")
    if min(speeds[link] for link in active) < 0 or not any(speeds[link] for link in active):
        raise ParseError("NVML gives no speed of links that are active")
    least = (want or max(speeds[link] for link in active)) * (1 - limits.speed_tolerance_percent / 100)
    return {link: speeds[link] for link in active if speeds[link] < least}


def _too_slow(slot: GpuSlot, slow: dict[int, int], profile: NodeProfile) -> Finding:
    want, worst = profile.nvlink.speed_mb_s, min(slow.values())
    if want is None:
        summary = f"{len(slow)} links slower than the fastest of this GPU: {_speeds(slow)}"
        basis, expected = Basis.device("speed of the GPU's fastest NVLink"), "one speed"
        return Finding(slot.subject, Verdict.FAIL, summary, worst, expected, "MB/s", _REPAIR, basis=basis)
    summary = f"{len(slow)} links below {want} MB/s: {_speeds(slow)}"
    basis = Basis.profile("nvlink.speed_mb_s")
    return Finding(slot.subject, Verdict.FAIL, summary, worst, want, "MB/s", _REPAIR, basis=basis)


def _listed(links: Sequence[int]) -> str:
    """At most six links by number: NVML lists more slots than a board wires."""
    more = f" and {len(links) - 6} more" if len(links) > 6 else ""
    return ", ".join(str(link) for link in links[:6]) + more


def _speeds(slow: dict[int, int]) -> str:
    first = list(slow.items())[:6]
    return ", ".join(f"link {link} at {speed}" for link, speed in first) + (", ..." if len(slow) > 6 else "")


def _finding(
    slot: GpuSlot, verdict: Verdict, summary: str, observed: int, want: int, action: Action = _REPAIR
) -> Finding:
    basis = Basis.profile("nvlink.links_per_gpu")
    return Finding(slot.subject, verdict, summary, observed, want, "links", action, basis=basis)
