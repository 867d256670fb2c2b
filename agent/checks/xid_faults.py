"""From Xid lines of one GPU to its faults, pure: each code once, with repeats, resets and NVML's word on it.

One fault writes many lines: lines of one code that follow each other within `burst_s` are one time that it
happened (NVIDIA's fleet tools use three minutes of silence). A reset of the GPU ends what a reset repairs:
the driver writes Xid 154 "... to 0x0 (None)", or NVML's recovery action is none some time after a 154.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from agent.checks import advice
from agent.checks.xid_lines import XidEvent, judged, named, recovery_of
from agent.checks.xid_table import REPLACE, WORST_FIRST, Refine, XidClass
from agent.model import NO_ACTION, Action, ActionKind

RECOVERY_CODE = 154
#: What a GPU reset repairs; it ends the engine too, so what an engine's restart repairs is over as well.
_ENDED_BY_RESET = (ActionKind.RESET_GPU, ActionKind.RESTART_ENGINE)
FATAL = (XidClass.IMMEDIATE, XidClass.HARD)


@dataclass(frozen=True, slots=True)
class Rules:
    """How repeats are counted, and classes that the profile changes."""

    classes: Mapping[int, XidClass]
    repeat_count: int
    repeat_window_s: float
    burst_s: float
    settle_s: float


@dataclass(frozen=True, slots=True)
class Evidence:
    """What else is known of the GPU; None where NVML does not say."""

    now_mono_s: float
    remap_pending: bool | None = None
    remap_failure: bool | None = None
    recovery_action: int | None = None
    #: The engine that owns the GPU, and since when it has been in service.
    engine: str | None = None
    engine_since_mono_s: float | None = None


@dataclass(frozen=True, slots=True)
class Fault:
    """One code on one GPU, however many lines it wrote; `times` is how often it happened."""

    event: XidEvent
    times: int
    xid_class: XidClass
    action: Action
    note: str = ""
    repeated: bool = False

    def words(self) -> str:
        """The fault in words, with how often and what else is known."""
        often = f", {self.times} times" if self.times > 1 else ""
        return f"{named(self.event)}{often}{self.note}"


def faults_of(events: Sequence[XidEvent], rules: Rules, known: Evidence) -> list[Fault]:
    """The faults of one GPU, worst first."""
    reset_mono_s = _last_reset(events, rules, known)
    by_code: defaultdict[int, list[XidEvent]] = defaultdict(list)
    for event in events:
        by_code[event.code].append(event)
    found = [_fault(code, lines, reset_mono_s, rules, known) for code, lines in by_code.items()]
    told = [fault for fault in found if fault.xid_class is not XidClass.IGNORE]
    return sorted(told, key=lambda fault: WORST_FIRST.index(fault.xid_class))


def fatal_times(events: Sequence[XidEvent], rules: Rules, now_mono_s: float) -> int:
    """How often any fatal fault has hit the GPU within the window, resets or not."""
    fatal = [
        event.mono_s
        for event in events
        if event.code != RECOVERY_CODE
        and now_mono_s - event.mono_s <= rules.repeat_window_s
        and rules.classes.get(event.code, judged(event)[0]) in FATAL
    ]
    return bursts(fatal, rules.burst_s)


def bursts(times_mono_s: Iterable[float], gap_s: float) -> int:
    """Groups of times with more than `gap_s` of silence between them."""
    count, last = 0, float("-inf")
    for time in sorted(times_mono_s):
        count += time - last > gap_s
        last = time
    return count


def _last_reset(events: Sequence[XidEvent], rules: Rules, known: Evidence) -> float:
    """Until when faults count as ended by a reset; minus infinity when no reset has been seen."""
    changes = [event for event in events if event.code == RECOVERY_CODE]
    taken_back = [event.mono_s for event in changes if recovery_of(event) == 0]
    ended = max(taken_back, default=float("-inf"))
    last = changes[-1] if changes else None
    if last is None or recovery_of(last) in (0, None) or known.recovery_action != 0:
        return ended
    # NVML may lag behind the line for a moment: it is believed once the line has settled.
    settled = known.now_mono_s - last.mono_s >= rules.settle_s
    return max(ended, last.mono_s) if settled else ended


def _fault(code: int, lines: Sequence[XidEvent], reset_mono_s: float, rules: Rules, known: Evidence) -> Fault:
    if code == RECOVERY_CODE:
        return _recovery(lines, reset_mono_s, rules)
    open_lines = [line for line in lines if line.mono_s > reset_mono_s]
    fault = _worst(code, open_lines or lines, rules)
    if fault.event.rule.refine is Refine.REMAP and code not in rules.classes:
        fault = _remap(fault, known)
    if not open_lines and fault.action.kind in _ENDED_BY_RESET:
        return replace(fault, xid_class=XidClass.INFO, action=NO_ACTION, note=", cleared by a reset")
    return _for_engine(_repeats(fault, open_lines or lines, rules, known), known)


def _worst(code: int, lines: Sequence[XidEvent], rules: Rules) -> Fault:
    """The code's worst line, the newest of several as bad, and how often it happened."""
    worst = min(reversed(lines), key=lambda line: WORST_FIRST.index(judged(line)[0]))
    xid_class, action = judged(worst)
    times = bursts((line.mono_s for line in lines), rules.burst_s)
    return Fault(worst, times, rules.classes.get(code, xid_class), action)


def _repeats(fault: Fault, lines: Sequence[XidEvent], rules: Rules, known: Evidence) -> Fault:
    """An application's fault that comes again on the same GPU points at the hardware."""
    code = fault.event.code
    recent = [line.mono_s for line in lines if known.now_mono_s - line.mono_s <= rules.repeat_window_s]
    again = bursts(recent, rules.burst_s) >= rules.repeat_count
    if not (fault.event.rule.repeats and again) or code in rules.classes:
        return fault
    return replace(fault, xid_class=XidClass.HARD, action=advice.RESET_GPU, repeated=True)


def _recovery(lines: Sequence[XidEvent], reset_mono_s: float, rules: Rules) -> Fault:
    """Xid 154: the newest line counts, it takes back the ones before."""
    last = lines[-1]
    xid_class, action = judged(last)
    xid_class = rules.classes.get(RECOVERY_CODE, xid_class)
    if last.mono_s <= reset_mono_s and recovery_of(last) != 0:
        return Fault(last, 1, XidClass.INFO, NO_ACTION, ", done: NVML asks for nothing now")
    return Fault(last, 1, xid_class, action)


def _remap(fault: Fault, known: Evidence) -> Fault:
    """Xid 63 and 64 with what NVML says: a remap waits for a reset, or it has failed for good."""
    if known.remap_failure:
        return replace(fault, xid_class=XidClass.IMMEDIATE, action=REPLACE, note=", remapping has failed")
    if known.remap_pending:
        waits = ", a remap waits for a reset"
        worse = min(fault.xid_class, XidClass.WATCH, key=WORST_FIRST.index)
        return replace(fault, xid_class=worse, action=advice.RESET_GPU, note=waits)
    if known.remap_pending is False and known.remap_failure is False:
        # Of 64, too, nothing is left to do but a reset: NVML knows no failure.
        action = NO_ACTION if fault.xid_class is XidClass.INFO else advice.RESET_GPU
        return replace(fault, action=action, note=", no remap waits")
    return fault


def _for_engine(fault: Fault, known: Evidence) -> Fault:
    """An application's fault concerns the engine on that GPU, and is over once it has been started anew."""
    if fault.xid_class is not XidClass.RESTART or fault.action.kind is not ActionKind.RESTART_ENGINE:
        return fault
    if known.engine is None:
        return fault
    since = known.engine_since_mono_s
    if since is not None and fault.event.mono_s < since:
        note = f", before engine {known.engine} was started"
        return replace(fault, xid_class=XidClass.INFO, action=NO_ACTION, note=note)
    action = Action(ActionKind.RESTART_ENGINE, f"Restart engine {known.engine}, which uses this GPU.")
    return replace(fault, action=action)


def needs_nvml(events: Iterable[XidEvent]) -> bool:
    """Whether NVML's word would change what the lines mean."""
    rules = (event.rule.refine for event in events)
    return any(refine in (Refine.REMAP, Refine.RECOVERY_ACTION) for refine in rules)


def open_faults(faults: Iterable[Fault]) -> Iterator[Fault]:
    """Those that are more than information."""
    return (fault for fault in faults if fault.xid_class not in (XidClass.INFO, XidClass.IGNORE))
