"""host.disk_health: do the disks answer? NVMe controllers in sysfs, and what the kernel log says of disks.

/sys/class/nvme/nvme*/state is `live` for a controller that works (drivers/nvme/host/sysfs.c).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from pydantic import Field

from agent.checks import advice
from agent.checks.host_text import listed, numbered
from agent.checks.registry import Limits, check
from agent.errors import DeviceAbsent
from agent.model import Basis, Finding, ServingClass, Verdict
from agent.node_profile import NodeProfile
from agent.sources import KmsgRecord, Sources
from agent.sources.kmsg_host import DISK, family_of

NVME = "sys/class/nvme"
LIVE = "live"
_DISK = advice.reseat(
    "Read journalctl -k and smartctl or nvme smart-log of the disk: save what is on it, then replace it."
)
_DEVICE = re.compile(r"\b(nvme\d+(?:n\d+)?|sd[a-z]{1,3}|dm-\d+|md\d+)\b")


class DiskHealthLimits(Limits):
    """Tolerances of host.disk_health."""

    window_s: float = Field(
        3600.0, description="Window in which log lines are counted, in seconds", gt=0, le=30 * 86400
    )
    errors: int = Field(10, description="Disk error lines in the window that fail; fewer are told", ge=1)


@check(
    "host.disk_health",
    title="Disks answer",
    source="/sys/class/nvme/*/state, /dev/kmsg",
    serving_class=ServingClass.SOFT,
    limits=DiskHealthLimits,
    period_s=30.0,
    fail_for_s=60.0,
    unknown_blocks_admission=False,  # the kernel log may be out of reach
    triggers=("kmsg.host",),
    skip=lambda p: None if p.host.disks else "the profile names no disks",
    action=_DISK,
)
def host_disk_health(sources: Sources, _profile: NodeProfile, limits: DiskHealthLimits) -> Iterator[Finding]:
    """No NVMe controller may be dead or resetting, and the kernel must report no disk errors."""
    bad = _not_live(sources)
    if bad:
        summary = f"NVMe controllers do not work: {listed(bad)}"
        basis = Basis.device("state")
        yield Finding("node", Verdict.FAIL, summary, listed(bad), LIVE, action=_DISK, basis=basis)
        return
    since_s = sources.clock.mono_s() - limits.window_s
    lines = [r for r in sources.kmsg.records() if r.mono_s > since_s and family_of(r.text) == DISK]
    basis = Basis.limit("errors")
    if lines:
        count = len(lines)
        summary = f"{count} disk errors in the log in {limits.window_s / 3600:g} h{_named(lines)}"
        bad_verdict = Verdict.FAIL if count >= limits.errors else Verdict.WARN
        yield Finding("node", bad_verdict, summary, count, limits.errors, action=_DISK, basis=basis)
        return
    yield Finding("node", Verdict.PASS, "no disk errors", 0, limits.errors, basis=basis)


def _not_live(sources: Sources) -> list[str]:
    """`nvme3 (dead)`, for each controller in another state than live; a host may have none."""
    sources.tree.names("sys/class")  # without it nothing is known of any disk
    try:
        controllers = numbered(sources.tree.names(NVME), "nvme")
    except DeviceAbsent:
        return []
    states = {name: sources.tree.text(f"{NVME}/{name}/state") for name in controllers}
    return [f"{name} ({state[:20] or 'no state'})" for name, state in states.items() if state != LIVE]


def _named(lines: list[KmsgRecord]) -> str:
    """The disks that lines name."""
    names = {match[1] for line in lines if (match := _DEVICE.search(line.text))}
    return f": {listed(sorted(names))}" if names else f", last: {lines[-1].text[:80]}"
