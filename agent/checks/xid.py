"""xid: what the NVIDIA driver has reported in the kernel log since boot, one finding a GPU, each fault once.

Source: /dev/kmsg, lines `NVRM: Xid (PCI:dddd:bb:dd): CODE, ...`, and "fallen off the bus" without an Xid too.
NVML is asked only where it tells more of a fault that the log has: the row remapper (63, 64) and field 230,
the recovery action (154). The records stay until a reboot, a reset that log or NVML shows, or an operator's
word, so a fault does not heal by itself. What a full ring lost before it was read is not known; the driver's
present state (gpu.recovery_action, gpu.remap, gpu.lost) stands for it, and a PASS says since when it knows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from pydantic import Field

from agent.checks import advice
from agent.checks.gpus import GpuSlot, no_gpus, read, slots
from agent.checks.kernel_log import NO_LOG, reach_note, shortened
from agent.checks.nvlink_domains import engine_of_slot
from agent.checks.pci import normal_address
from agent.checks.registry import Limits, check, unknown
from agent.checks.xid_faults import FATAL, Evidence, Fault, Rules, fatal_times, faults_of, needs_nvml
from agent.checks.xid_lines import XidEvent, parse
from agent.checks.xid_table import TABLE_VERSION, XidClass
from agent.errors import ParseError, SourceError
from agent.model import Basis, EnginePhase, Finding, ServingClass, Verdict, gpu_slot_of
from agent.node_profile import NodeProfile
from agent.sources import Sources
from agent.sources.gpu_reading import GpuReading, NvmlGroup

NODE = "node"
#: Faults told by name before the rest is only counted.
_TOLD = 3


class XidLimits(Limits):
    """Tolerances of xid."""

    classes: dict[int, XidClass] = Field(
        default_factory=dict,
        description="Class by code: immediate, hard, restart, watch, info or ignore",
    )
    repeat_count: int = Field(2, description="Times that a repeating code points at the hardware", ge=2)
    repeat_window_s: float = Field(86400.0, description="Seconds within which repeats are counted", gt=0)
    fatal_count: int = Field(
        5, description="Fatal faults of one GPU in that time that are a case for the vendor", ge=2
    )
    burst_s: float = Field(
        180.0, description="Lines of a code with less silence between them are one time it happened", ge=0
    )
    settle_s: float = Field(
        30.0, description="Seconds after an Xid 154 until NVML's recovery action is believed over it", ge=0
    )


@check(
    "xid",
    title="Xid errors",
    source=f"/dev/kmsg: `NVRM: Xid`, `fallen off the bus`; NVML field 230; Xid table {TABLE_VERSION}",
    serving_class=ServingClass.IMMEDIATE,
    limits=XidLimits,
    period_s=5.0,
    clear_for_s=0.0,
    triggers=("kmsg.xid",),
    skip=no_gpus,
    action=advice.REBOOT,
    if_unreadable=NO_LOG.format("xid"),
)
def xid(sources: Sources, profile: NodeProfile, limits: XidLimits) -> Iterator[Finding]:
    """No GPU may have reported a fault since boot that the table calls immediate or hard."""
    subjects = [f"gpu{number}" for number in range(profile.gpus.count)] + [NODE]
    try:
        events, garbled = parse(sources.kmsg.records())
        note = reach_note(sources)
    except SourceError as cause:
        yield from (unknown(subject, cause) for subject in subjects)
        return
    by_subject: defaultdict[str, list[XidEvent]] = defaultdict(list)
    where = _subjects_of(sources, profile, {event.address for event in events if event.address})
    for event in events:
        by_subject[where.get(event.address or "", NODE)].append(event)
    nvml = _NvmlWord(sources, profile)
    rules = Rules(
        limits.classes, limits.repeat_count, limits.repeat_window_s, limits.burst_s, limits.settle_s
    )
    for subject in subjects:
        lines = by_subject[subject]
        known = _evidence(sources, profile, subject, nvml.of(subject, lines))
        faults = faults_of(lines, rules, known)
        times = fatal_times(lines, rules, known.now_mono_s) if lines else 0
        times += _earlier_boots(sources, profile, subject, limits) if times else 0
        yield _judge(subject, faults, garbled if subject == NODE else [], times, limits, note)


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


class _NvmlWord:
    """NVML's memory group of a GPU, asked only for faults that it explains.

    After one call has failed no other is made in this run: a hung GPU must not keep the log unjudged.
    """

    def __init__(self, sources: Sources, profile: NodeProfile) -> None:
        self._sources, self._profile = sources, profile
        self._slots: dict[str, GpuSlot] | None = None
        self._failed = False

    def of(self, subject: str, lines: Sequence[XidEvent]) -> GpuReading | None:
        """The reading; None where it is of no use or could not be had."""
        if self._failed or subject == NODE or not needs_nvml(lines):
            return None
        try:
            if self._slots is None:
                self._slots = {slot.subject: slot for slot in slots(self._sources, self._profile)}
            return read(self._sources, self._slots[subject], NvmlGroup.MEMORY)
        except SourceError:
            # Not judged as UNKNOWN: the log alone is judged then, as bad as it reads.
            self._failed = True
            return None


def _evidence(sources: Sources, profile: NodeProfile, subject: str, memory: GpuReading | None) -> Evidence:
    """What is known of the GPU besides its lines."""
    known = Evidence(sources.clock.mono_s())
    slot = gpu_slot_of(subject)
    if slot is None:
        return known
    if memory is not None:
        known = replace(
            known,
            remap_pending=_yes_or_no(memory, "remap_pending"),
            remap_failure=_yes_or_no(memory, "remap_failure"),
            recovery_action=_whole(memory, "recovery_action"),
        )
    engine = engine_of_slot(profile, slot)
    since = _in_service_since(sources, engine) if engine is not None else None
    return replace(known, engine=engine, engine_since_mono_s=since)


def _yes_or_no(memory: GpuReading, field: str) -> bool | None:
    try:
        return memory.boolean(field)
    except SourceError:
        return None  # not said: the line is judged as it reads


def _whole(memory: GpuReading, field: str) -> int | None:
    try:
        return memory.integer(field)
    except SourceError:
        return None


def _in_service_since(sources: Sources, engine: str) -> float | None:
    """Since when an engine has been up; None when it is not, or nothing is known of it."""
    try:
        status = sources.engines.observe(engine).status
    except SourceError:
        return None
    return status.since_mono_s if status.phase in (EnginePhase.UP, EnginePhase.WARM) else None


def _earlier_boots(sources: Sources, profile: NodeProfile, subject: str, limits: XidLimits) -> int:
    """Fatal faults of the same GPU that the journal has of earlier boots within the window."""
    slot = gpu_slot_of(subject)
    pin = profile.gpus.pins.get(slot) if slot is not None else None
    if pin is None:
        return 0
    boot = sources.clock.boot_id()
    try:
        faults = sources.history.faults(sources.clock.wall_s() - limits.repeat_window_s)
    except SourceError:
        return 0  # only an escalation of what fails anyhow
    return sum(f.check == "xid" and f.part == pin.uuid and f.boot_id != boot for f in faults)


def _judge(
    subject: str,
    faults: Sequence[Fault],
    garbled: Sequence[str],
    times: int,
    limits: XidLimits,
    note: str,
) -> Finding:
    words = shortened([fault.words() for fault in faults], _TOLD)
    if subject == NODE and faults:
        address = faults[0].event.address or "an unknown address"
        words = f"{words[:150]} of a GPU at {address}, in no slot"
    if faults and faults[0].xid_class in FATAL:
        return _fatal(subject, words, faults, times, limits)
    if garbled:
        text = f"an Xid line cannot be read: {garbled[-1][:80]!r}"
        return Finding(subject, Verdict.UNKNOWN, text)
    if times >= limits.fatal_count:
        return _offender(subject, words, times, limits)
    if faults and faults[0].xid_class in (XidClass.RESTART, XidClass.WATCH):
        return _finding(subject, Verdict.WARN, words, faults[0], ServingClass.SOFT, limits)
    if faults:
        return Finding(subject, Verdict.PASS, f"only informational: {words}", faults[0].event.code, "none")
    return Finding(subject, Verdict.PASS, f"no open Xid in the kernel log{note}", "none", "none")


def _fatal(subject: str, words: str, faults: Sequence[Fault], times: int, limits: XidLimits) -> Finding:
    worst = faults[0]
    hard = worst.xid_class is XidClass.HARD
    cls = ServingClass.HARD if hard else ServingClass.IMMEDIATE
    found = _finding(subject, Verdict.FAIL, words, worst, cls, limits)
    asked = next((f for f in faults if f.event.code == 154 and f.xid_class in FATAL), None)
    if times >= limits.fatal_count:
        text = f"{shortened([words], 1)[:190]}; {times} fatal in {_hours(limits)}"
        return replace(found, summary=text, action=advice.SUPPORT, basis=Basis.limit("fatal_count"))
    # The driver's own word on what is needed goes before that of a table.
    return replace(found, action=asked.action) if asked is not None else found


def _offender(subject: str, words: str, times: int, limits: XidLimits) -> Finding:
    """Every fault has been dealt with, and too many of them came."""
    text = f"{times} fatal faults in {_hours(limits)}, all dealt with: {words}"[:230]
    basis = Basis.limit("fatal_count")
    return Finding(
        subject, Verdict.WARN, text, times, limits.fatal_count, "faults", advice.SUPPORT,
        ServingClass.SOFT, basis=basis,
    )  # fmt: skip


def _hours(limits: XidLimits) -> str:
    return f"{limits.repeat_window_s / 3600:.0f} h"


def _finding(
    subject: str, verdict: Verdict, words: str, fault: Fault, cls: ServingClass, limits: XidLimits
) -> Finding:
    basis = Basis.standard(f"Xid table {TABLE_VERSION}")
    if fault.event.code in limits.classes:
        basis = Basis.limit("classes")
    elif fault.repeated:
        basis = Basis.limit("repeat_count")
    code, action = fault.event.code, fault.action
    return Finding(subject, verdict, words, code, "none", "Xid", action, cls, basis=basis)
