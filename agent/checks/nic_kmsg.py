"""nic.kmsg: what has the NIC's driver reported in the kernel log, one finding a data port?

A link may stay up for days while the driver cannot reach its firmware, so the log alone is judged. Firmware
that has died, command timeouts that keep coming, and a card that stopped sending while a CPU hung in its
driver stay a failure until the driver is loaded again or repairs itself; other troubles fade. Lines of cards
that carry no data port are left out; stack traces name no card and are the node's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pydantic import Field

from agent.checks import advice
from agent.checks.kernel_log import NO_LOG
from agent.checks.nic_kmsg_lines import NicLine, Trouble, events, most_within, nic_lines
from agent.checks.pci import normal_address
from agent.checks.ports import address_of, no_ports, subject_of
from agent.checks.registry import Limits, check, unknown
from agent.checks.shared_tree import reading_once
from agent.errors import DeviceAbsent, SourceError
from agent.model import Action, Basis, Finding, ServingClass, Verdict
from agent.node_profile import NicPort, NodeProfile
from agent.sources import Sources

NODE = "node"
_WEDGED = advice.person(
    "Drain the node and reload mlx5_core, or reboot; update the firmware if it comes back."
)
_POWER = advice.reseat("Reseat the card and check the slot's power limit in the BIOS and its power cable.")
_COOL = advice.person("Look at the air flow past the card and its transceivers.")
_MODULE = advice.reseat("Reseat or replace the transceiver or cable of this port.")
_FIRMWARE = advice.person(
    "Compare firmware and driver in nic.firmware; one such line now and then is harmless."
)
_BASIS = Basis.standard("kernel log lines of mlx5")


@dataclass(frozen=True, slots=True)
class _Rule:
    """How one kind of trouble is judged: how many make a failure, of which class, and whether it lasts."""

    serving_class: ServingClass
    action: Action
    lasts: bool = False
    first_fails: bool = False
    never_fails: bool = False


_RULES: dict[Trouble, _Rule] = {
    Trouble.DEAD: _Rule(ServingClass.HARD, _WEDGED, lasts=True, first_fails=True),
    Trouble.COMMAND: _Rule(ServingClass.HARD, _WEDGED, lasts=True),
    Trouble.STUCK: _Rule(ServingClass.HARD, _WEDGED),
    Trouble.TRANSMIT: _Rule(ServingClass.HARD, _WEDGED),
    Trouble.POWER: _Rule(ServingClass.SOFT, _POWER),
    Trouble.HOT: _Rule(ServingClass.SOFT, _COOL),
    Trouble.MODULE: _Rule(ServingClass.SOFT, _MODULE),
    Trouble.ACCESS: _Rule(ServingClass.INFO, _FIRMWARE, never_fails=True),
}


class KmsgLimits(Limits):
    """Tolerances of nic.kmsg."""

    fail_count: int = Field(3, description="Events of one kind within window_s that are a failure", ge=1)
    window_s: float = Field(3600.0, description="Seconds within which events are counted", gt=0)
    warn_for_s: float = Field(86_400.0, description="Seconds that a single event is told for", gt=0)
    collapse_s: float = Field(10.0, description="Lines closer together than this are one event", ge=0)


@check(
    "nic.kmsg",
    title="NIC driver in the kernel log",
    source="/dev/kmsg: mlx5 health, command and transmit timeouts, module events, NETDEV WATCHDOG",
    serving_class=ServingClass.HARD,
    limits=KmsgLimits,
    network=True,
    period_s=10.0,
    fail_for_s=10.0,
    clear_for_s=10.0,
    triggers=("kmsg.nic",),
    skip=no_ports,
    action=_WEDGED,
    if_unreadable=NO_LOG.format("nic.kmsg"),
)
def nic_kmsg(sources: Sources, profile: NodeProfile, limits: KmsgLimits) -> Iterator[Finding]:
    """No driver of a data port may have reported a failure that still lasts, nor one that keeps coming."""
    sources = reading_once(sources)
    subjects = [*map(subject_of, profile.fabric.ports), NODE]
    try:
        lines = nic_lines(sources.kmsg.records())
    except SourceError as cause:
        yield from (unknown(subject, cause) for subject in subjects)
        return
    now_mono_s = sources.clock.mono_s()
    stuck = [line for line in lines if line.trouble is Trouble.STUCK]
    for port in profile.fabric.ports:
        try:
            names = _names(sources, port)
        except SourceError as cause:
            yield unknown(subject_of(port), cause)
            continue
        own = _since_recovery([line for line in lines if line.names & names])
        yield _judge(subject_of(port), own, stuck, now_mono_s, limits)
    yield _judge(NODE, [line for line in lines if not line.names], [], now_mono_s, limits)


def _names(sources: Sources, port: NicPort) -> frozenset[str]:
    """What lines may call this port's card; its address from sysfs, or the profile's where it has gone."""
    try:
        address = address_of(sources, port)
    except DeviceAbsent:
        if port.pci_bus_id is None:
            raise
        address = normal_address(port.pci_bus_id)
    return frozenset({address, port.device, port.netdev or address})


def _since_recovery(lines: Sequence[NicLine]) -> list[NicLine]:
    """The lines after the newest start or repair of the driver."""
    last = max((i for i, line in enumerate(lines) if line.trouble is None), default=-1)
    return list(lines[last + 1 :])


def _judge(
    subject: str, lines: Sequence[NicLine], stuck: Sequence[NicLine], now_mono_s: float, limits: KmsgLimits
) -> Finding:
    found = [
        finding
        for trouble, rule in _RULES.items()
        if (mine := [line for line in lines if line.trouble is trouble])
        if (finding := _told(subject, trouble, rule, mine, stuck, now_mono_s, limits)) is not None
    ]
    # The rules stand in order of badness, and a failure goes before any warning.
    found.sort(key=lambda finding: finding.verdict is not Verdict.FAIL)
    if found:
        return found[0]
    faded = len({line.trouble for line in lines if line.trouble is not None})
    note = f" now ({faded} kinds of trouble since boot are over)" if faded else ""
    return Finding(subject, Verdict.PASS, f"no trouble of the NIC in the kernel log{note}", 0, 0)


def _told(
    subject: str,
    trouble: Trouble,
    rule: _Rule,
    lines: list[NicLine],
    stuck: Sequence[NicLine],
    now_mono_s: float,
    limits: KmsgLimits,
) -> Finding | None:
    """A failure, a warning, or nothing any more."""
    times = events(lines, limits.collapse_s)
    recent = [time for time in times if now_mono_s - time <= limits.window_s]
    count = most_within(times, limits.window_s) if rule.lasts else len(recent)
    wedged = trouble is Trouble.TRANSMIT and _hangs(times, stuck, limits)
    fails = not rule.never_fails and (rule.first_fails or wedged or count >= limits.fail_count)
    if not fails and now_mono_s - times[-1] > limits.warn_for_s:
        return None
    ago_s = max(0.0, now_mono_s - times[-1])
    also = ", with a CPU stuck in the driver" if wedged else ""
    summary = f"{trouble}{also}: {len(times)} times since boot, {_ago(ago_s)}: {_shown(lines[-1].text)}"
    finding_class = rule.serving_class if fails else ServingClass.INFO
    verdict = Verdict.FAIL if fails else Verdict.WARN
    most, basis = (
        (0, _BASIS) if rule.first_fails or wedged else (limits.fail_count, Basis.limit("fail_count"))
    )
    seen = max(count, 1)
    return Finding(subject, verdict, summary, seen, most, "events", rule.action, finding_class, basis=basis)


def _hangs(times: Sequence[float], stuck: Sequence[NicLine], limits: KmsgLimits) -> bool:
    """Whether a CPU hung in the driver about when the card stopped sending: that does not end by itself."""
    return any(abs(line.mono_s - time) <= limits.window_s for line in stuck for time in times)


def _ago(seconds: float) -> str:
    return f"last {seconds / 3600:.1f} h ago" if seconds >= 3600 else f"last {seconds / 60:.0f} min ago"


def _shown(text: str) -> str:
    """A line short enough for a summary."""
    return " ".join(text.split())[:110]
