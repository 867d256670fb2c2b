"""What the hardware does during a soak: the node's own checks, run on counters of their own, and extremes.

The checks' limits hold as the profile sets them, so a soak fails by what would close or degrade the gate. A
level (heat, throttling) must be seen in two readings in a row; a counter that grows is there to stay.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from agent.check_plan import CheckPlan, plan_check
from agent.check_run import perform
from agent.checks.gpus import GpuSlot, read, slots
from agent.checks.registry import Check
from agent.engine_evidence import SoakPeaks
from agent.errors import SourceError
from agent.model import Finding, Verdict, gpu_slot_of
from agent.node_profile import Engine, NodeProfile
from agent.sources import Sources
from agent.sources.counters import CounterBook
from agent.sources.gpu_reading import NvmlGroup
from agent.sources.series import SeriesBook

#: Heat and power of the GPUs; links between GPUs; ports of the fabric, only for a launch that uses RDMA.
WATCHING = ("gpu.throttle", "gpu.thermal_margin", "gpu.hbm_temp", "gpu.power_limit", "gpu.power_dips")
LINKS = ("nvlink.errors", "nvlink.ber")
FABRIC = ("roce.errors", "roce.lossless_drop", "ib.errors")
#: Readings in a row that make a level count.
CONFIRMED = 2
#: Kept of a soak's faults; more of them say nothing new.
MOST_FAULTS = 32
_PEAKS = {"temperature_c": NvmlGroup.THERMAL, "margin_c": NvmlGroup.THERMAL,
          "draw_w": NvmlGroup.POWER, "sm_clock_mhz": NvmlGroup.POWER}  # fmt: skip


@dataclass
class _Watched:
    """One check of the soak."""

    plan: CheckPlan
    period_s: float
    counts: bool
    due_mono_s: float = 0.0
    runs: int = 0
    failing: dict[str, int] = field(default_factory=dict)
    last: dict[str, Finding] = field(default_factory=dict)
    error: str | None = None


class HardwareWatch:
    """Watches GPUs under load, and the network where the plans do. Used from one thread at a time."""

    #: What is read of each GPU besides the checks, for extremes and curves.
    readings: Mapping[str, NvmlGroup] = _PEAKS

    def __init__(
        self,
        profile: NodeProfile,
        gpus: Collection[int],
        sources: Sources,
        plans: Iterable[CheckPlan],
        duration_s: float,
    ) -> None:
        """Plan the checks; counters begin anew, so that growth before the load is not its own."""
        self._gpus = frozenset(gpus)
        self._profile = profile
        self._sources = replace(sources, counters=CounterBook(), series=SeriesBook())
        self._watched = [
            _Watched(plan, max(0.5, min(plan.period_s, duration_s / 3)), plan.check.needs_interval_s > 0)
            for plan in plans
        ]
        self._faults: dict[tuple[str, str], Finding] = {}
        self._peaks: dict[str, dict[str, list[float]]] = {}

    @property
    def watched(self) -> tuple[str, ...]:
        """Ids of the checks that watch."""
        return tuple(item.plan.check.id for item in self._watched)

    @property
    def faults(self) -> tuple[str, ...]:
        """What speaks against the hardware so far, oldest first."""
        return tuple(f"{id_} {finding.subject}: {finding.summary}" for id_, finding in self.fault_findings)

    @property
    def fault_findings(self) -> tuple[tuple[str, Finding], ...]:
        """The same as findings, each with its check."""
        return tuple((id_, finding) for (id_, _), finding in self._faults.items())[:MOST_FAULTS]

    @property
    def last_findings(self) -> tuple[tuple[str, Finding], ...]:
        """What each check said last."""
        return tuple(
            (item.plan.check.id, finding) for item in self._watched for finding in item.last.values()
        )

    @property
    def peaks(self) -> tuple[SoakPeaks, ...]:
        """The extremes of each GPU."""
        return tuple(
            SoakPeaks(
                subject,
                _end(max, seen.get("temperature_c")),
                _end(min, seen.get("margin_c")),
                _end(max, seen.get("draw_w")),
                _end(min, seen.get("sm_clock_mhz")),
            )
            for subject, seen in sorted(self._peaks.items())
        )

    def sample(self, *, last: bool = False) -> None:
        """Run the checks that are due, all of them at the last time; note the extremes. Never raises."""
        now_mono_s = self._sources.clock.mono_s()
        for item in self._watched:
            if last or now_mono_s >= item.due_mono_s:
                item.due_mono_s = now_mono_s + item.period_s
                self._run(item)
        self._note_peaks()

    def missing(self) -> tuple[str, ...]:
        """What could not be seen at the end: missing evidence is no pass."""
        told: list[str] = []
        for item in self._watched:
            id_ = item.plan.check.id
            if not item.plan.check.unknown_blocks_admission:
                continue
            if item.error is not None or item.runs < CONFIRMED:
                told.append(f"{id_}: {item.error or 'not looked at twice'}")
            told += [
                f"{id_} {finding.subject}: {finding.summary}"
                for finding in item.last.values()
                if finding.verdict is Verdict.UNKNOWN
            ]
        return tuple(told)[:MOST_FAULTS]

    def _run(self, item: _Watched) -> None:
        outcome = perform(item.plan, self._sources)
        item.runs += 1
        item.error = outcome.error if not outcome.findings else None
        item.last = {finding.subject: finding for finding in outcome.findings if self._concerns(finding)}
        for subject, finding in item.last.items():
            failed = finding.verdict is Verdict.FAIL
            item.failing[subject] = item.failing.get(subject, 0) + 1 if failed else 0
            if failed and (item.counts or item.failing[subject] >= CONFIRMED):
                self.blame(item.plan.check.id, finding)

    def blame(self, check: str, finding: Finding) -> None:
        """A finding that speaks against the hardware; the first one of a check and subject is kept."""
        self._faults.setdefault((check, finding.subject), finding)

    def _concerns(self, finding: Finding) -> bool:
        """Other GPUs are not this load's matter."""
        slot = gpu_slot_of(finding.subject)
        return slot is None or slot in self._gpus

    def _note_peaks(self) -> None:
        try:
            gpus = [slot for slot in slots(self._sources, self._profile) if slot.number in self._gpus]
        except SourceError:  # the checks tell that NVML is silent; there is nothing to note
            return
        for slot in gpus:
            for name, group in self.readings.items():
                value = self._number(slot, group, name)
                if value is not None:
                    self._seen(slot, name, value)

    def _seen(self, slot: GpuSlot, name: str, value: float) -> None:
        """One more reading of a GPU."""
        seen = self._peaks.setdefault(slot.subject, {})
        low, high = seen.get(name, [value, value])
        seen[name] = [min(low, value), max(high, value)]

    def _number(self, slot: GpuSlot, group: NvmlGroup, name: str) -> float | None:
        try:
            return read(self._sources, slot, group).number(name)
        except SourceError:  # a GPU without this reading, or a lost one, which the checks tell
            return None


class SoakWatch(HardwareWatch):
    """Watches the hardware of one engine."""

    def __init__(
        self,
        profile: NodeProfile,
        engine: Engine,
        sources: Sources,
        checks: Mapping[str, Check],
        duration_s: float,
    ) -> None:
        """Watch its GPUs, and the fabric only for a launch that uses RDMA."""
        wanted = (*WATCHING, *LINKS, *(FABRIC if engine.launch.rdma else ())) if engine.gpus else ()
        super().__init__(profile, engine.gpus, sources, watch_plans(profile, checks, wanted), duration_s)


def watch_plans(
    profile: NodeProfile, checks: Mapping[str, Check], wanted: Iterable[str]
) -> Iterable[CheckPlan]:
    """The checks to run: none that the profile leaves out or runs in shadow."""
    for id_ in wanted:
        if id_ in checks:
            plan = plan_check(checks[id_], profile)
            if plan.skip_reason is None and not plan.shadow:
                yield plan


def _end(pick: Callable[[list[float]], float], values: list[float] | None) -> float | None:
    return pick(values) if values else None
