"""host.services, host.time: are systemd's units in the profile's states, and is the clock right?

systemctl show (org.freedesktop.systemd1(5)); adjtimex(2): STA_UNSYNC, offset, maximum error.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from pydantic import Field

from agent.checks import advice
from agent.checks.registry import Limits, check, each
from agent.errors import ParseError
from agent.model import Basis, Finding, ServingClass, Verdict
from agent.node_profile import NodeProfile
from agent.sources import Sources

#: A unit in one of these states does its work.
_ACTIVE = frozenset({"active", "reloading", "refreshing"})
_INACTIVE = frozenset({"inactive", "failed"})
_START_HOW = "Read systemctl status and journalctl -u of the unit, then systemctl enable --now it."
_STOP_HOW = "Run systemctl disable --now for the unit; systemctl mask if another unit starts it."
_START, _STOP = advice.play("kernel", _START_HOW), advice.play("kernel", _STOP_HOW)
#: Units that come with the GPU driver's packages.
_OF_GPU = ("nvidia-", "nvlsm.")
_INSTALL = advice.person("Install the package that has this unit, or correct host.services in the profile.")
_SYNC = advice.play(
    "kernel",
    "Look at chronyc tracking or timedatectl: a time service must reach its servers (chrony: with rtcsync)."
    " host.time_sync says whether that may keep a gate closed (true) or is not compared (false).",
)


@check(
    "host.services",
    title="System services",
    source="systemctl show: LoadState, ActiveState, SubState, NRestarts",
    serving_class=ServingClass.INFO,
    period_s=60.0,
    deadline_s=15.0,
    fail_for_s=60.0,
    skip=lambda p: None if p.host.services else "the profile names no services",
    action=_START,
)
def host_services(sources: Sources, profile: NodeProfile, _limits: Limits) -> Iterator[Finding]:
    """Each systemd unit of the profile must be active, or inactive, as it says."""
    yield from each(profile.host.services.items(), lambda name, want: _judge_unit(sources, name, want))


def _judge_unit(sources: Sources, name: str, want: str) -> Finding:
    unit = sources.host.unit(name)
    basis = Basis.profile(f"host.services.{name}")
    seen = unit.active_state
    if unit.load_state == "not-found" and want == "active":
        summary = "there is no such unit"
        return Finding(name, Verdict.FAIL, summary, "absent", want, action=_INSTALL, basis=basis)
    if seen in (_ACTIVE if want == "active" else _INACTIVE):
        return Finding(name, Verdict.PASS, seen, seen, want, basis=basis)
    often = f", restarted {unit.restarts} times" if unit.restarts else ""
    summary = f"{seen} ({unit.sub_state}{often}), expected {want}"
    action = _START if want == "active" else _STOP
    if name.startswith(_OF_GPU):
        action = replace(action, play="gpu")
    return Finding(name, Verdict.FAIL, summary, seen, want, action=action, basis=basis)


class TimeLimits(Limits):
    """Tolerances of host.time."""

    max_offset_s: float = Field(0.1, description="Largest offset of the clock in seconds", gt=0, le=60)
    warn_error_s: float = Field(
        1.0, description="Estimated error of the clock in seconds from which it is told", gt=0, le=16
    )


@check(
    "host.time",
    title="Clock synchronised",
    source="adjtimex(2): STA_UNSYNC, offset, maxerror",
    serving_class=ServingClass.INFO,
    limits=TimeLimits,
    period_s=60.0,
    fail_for_s=120.0,
    unknown_blocks_admission=False,  # a container's sandbox may refuse adjtimex
    skip=lambda p: None if p.host.time_sync is not False else "the profile does not compare the clock",
    action=_SYNC,
)
def host_time(sources: Sources, profile: NodeProfile, limits: TimeLimits) -> Iterator[Finding]:
    """The kernel's clock must be synchronised: logs of several nodes are worth nothing without.

    A failure only where the profile says true: an outage of the site's time servers must keep no gate closed.
    """
    bad = Verdict.FAIL if profile.host.time_sync else Verdict.WARN
    clock = sources.host.clock_sync()
    if not math.isfinite(clock.offset_s) or not math.isfinite(clock.max_error_s):
        raise ParseError(f"the clock's offset reads {clock.offset_s}, its error {clock.max_error_s}")
    basis = Basis.profile("host.time_sync")
    if not clock.synchronised:
        summary = "the clock is not synchronised"
        seen, want = "unsynchronised", "synchronised"
        yield Finding("node", bad, summary, seen, want, action=_SYNC, basis=basis)
        return
    offset_s = round(abs(clock.offset_s), 6)
    if offset_s > limits.max_offset_s:
        summary = f"the clock is {offset_s:g} s off, allowed are {limits.max_offset_s:g} s"
        basis, want_s = Basis.limit("max_offset_s"), limits.max_offset_s
        yield Finding("node", bad, summary, offset_s, want_s, "s", _SYNC, basis=basis)
        return
    if clock.max_error_s > limits.warn_error_s:
        error_s, want_s = round(clock.max_error_s, 3), limits.warn_error_s
        summary = f"the clock may be {error_s:g} s off: its servers have not been reached for long"
        basis = Basis.limit("warn_error_s")
        yield Finding("node", Verdict.WARN, summary, error_s, want_s, "s", _SYNC, basis=basis)
        return
    yield Finding("node", Verdict.PASS, "synchronised", offset_s, limits.max_offset_s, "s", basis=basis)
