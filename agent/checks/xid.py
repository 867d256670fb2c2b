"""xid: what the NVIDIA driver has reported in the kernel log since boot, one finding a GPU.

Source: /dev/kmsg, lines `NVRM: Xid (PCI:dddd:bb:dd): CODE, ...`, and "fallen off the bus" without an Xid too.
The records stay until reboot or until an operator clears them, so a fault does not heal by itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pydantic import Field

from agent.checks import advice
from agent.checks.gpus import no_gpus, slots
from agent.checks.pci import normal_address
from agent.checks.registry import Limits, check, unknown
from agent.checks.xid_lines import XidEvent, judged, named, parse
from agent.checks.xid_table import TABLE_VERSION, WORST_FIRST, XidClass
from agent.errors import ParseError, SourceError
from agent.model import Action, Finding, ServingClass, Verdict
from agent.node_profile import NodeProfile
from agent.sources import Sources

NODE = "node"


class XidLimits(Limits):
    """Tolerances of xid."""

    classes: dict[int, XidClass] = Field(
        default_factory=dict,
        description="Class by code: immediate, hard, restart, watch, info or ignore",
    )
    repeat_count: int = Field(2, description="Times that a repeating code points at the hardware", ge=2)
    repeat_window_s: float = Field(86400.0, description="Seconds within which repeats are counted", gt=0)


@dataclass(frozen=True, slots=True)
class Fault:
    """One code on one GPU, however many lines it wrote."""

    event: XidEvent
    times: int
    xid_class: XidClass
    action: Action

    def words(self) -> str:
        """The fault in words, with how often."""
        often = f", {self.times} times" if self.times > 1 else ""
        return f"{named(self.event)}{often}"


@check(
    "xid",
    title="Xid errors",
    source=f"/dev/kmsg: `NVRM: Xid`, `fallen off the bus`; Xid table {TABLE_VERSION}",
    serving_class=ServingClass.IMMEDIATE,
    limits=XidLimits,
    period_s=5.0,
    clear_for_s=0.0,
    triggers=("kmsg.xid",),
    skip=no_gpus,
    action=advice.REBOOT,
)
def xid(sources: Sources, profile: NodeProfile, limits: XidLimits) -> Iterator[Finding]:
    """No GPU may have reported a fault since boot that the table calls immediate or hard."""
    subjects = [f"gpu{number}" for number in range(profile.gpus.count)] + [NODE]
    try:
        events, garbled = parse(sources.kmsg.records())
    except SourceError as cause:
        yield from (unknown(subject, cause) for subject in subjects)
        return
    by_subject: defaultdict[str, list[XidEvent]] = defaultdict(list)
    where = _subjects_of(sources, profile, {event.address for event in events if event.address})
    for event in events:
        by_subject[where.get(event.address or "", NODE)].append(event)
    for subject in subjects:
        yield _judge(subject, by_subject[subject], garbled if subject == NODE else [], sources, limits)


def _subjects_of(sources: Sources, profile: NodeProfile, addresses: set[str]) -> dict[str, str]:
    """PCI address -> subject: from the pins first, because NVML may hang on the very GPU that has failed."""
    known: dict[str, str] = {}
    for number, pin in profile.gpus.pins.items():
        if pin.pci_bus_id is not None:
            _add(known, pin.pci_bus_id, f"gpu{number}")
    if addresses - known.keys():
        for slot in slots(sources, profile):
            if slot.identity is not None and slot.identity.pci_bus_id is not None:
                _add(known, slot.identity.pci_bus_id, slot.subject)
    return known


def _add(known: dict[str, str], address: str, subject: str) -> None:
    try:
        known[normal_address(address)] = subject
    except ParseError:
        # An address that cannot be read names no GPU: its Xid lines then count for the whole node.
        return


def _judge(
    subject: str, events: Sequence[XidEvent], garbled: Sequence[str], sources: Sources, limits: XidLimits
) -> Finding:
    faults = [
        fault
        for fault in _faults(events, sources.clock.mono_s(), limits)
        if fault.xid_class is not XidClass.IGNORE
    ]
    faults.sort(key=lambda fault: WORST_FIRST.index(fault.xid_class))
    words = "; ".join(fault.words() for fault in faults)
    if subject == NODE and faults:
        words = f"{words} of a GPU at {faults[0].event.address or 'an unknown address'}, in no slot"
    if faults and faults[0].xid_class in (XidClass.IMMEDIATE, XidClass.HARD):
        hard = faults[0].xid_class is XidClass.HARD
        cls = ServingClass.HARD if hard else ServingClass.IMMEDIATE
        return _finding(subject, Verdict.FAIL, words, faults[0], cls)
    if garbled:
        text = f"an Xid line cannot be read: {garbled[-1][:80]!r}"
        return Finding(subject, Verdict.UNKNOWN, text)
    if faults and faults[0].xid_class in (XidClass.RESTART, XidClass.WATCH):
        return _finding(subject, Verdict.WARN, words, faults[0], ServingClass.SOFT)
    if faults:
        return Finding(subject, Verdict.PASS, f"only informational: {words}", faults[0].event.code)
    return Finding(subject, Verdict.PASS, "no open Xid in the kernel log")


def _finding(subject: str, verdict: Verdict, words: str, fault: Fault, cls: ServingClass) -> Finding:
    return Finding(subject, verdict, words, fault.event.code, "none", "Xid", fault.action, cls)


def _faults(events: Sequence[XidEvent], now_mono_s: float, limits: XidLimits) -> Iterator[Fault]:
    """One fault for each code: its worst line, or its newest where a later line takes an earlier one back."""
    by_code: defaultdict[int, list[XidEvent]] = defaultdict(list)
    for event in events:
        by_code[event.code].append(event)
    for code, lines in by_code.items():
        if code == 154:
            lines = lines[-1:]
        worst = min(lines, key=lambda line: WORST_FIRST.index(judged(line)[0]))
        xid_class, action = judged(worst)
        recent = sum(now_mono_s - line.mono_s <= limits.repeat_window_s for line in lines)
        if worst.rule.repeats and recent >= limits.repeat_count:
            xid_class, action = XidClass.HARD, advice.RESET_GPU
        yield Fault(worst, len(lines), limits.classes.get(code, xid_class), action)
