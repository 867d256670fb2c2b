"""What is looked at while GPUs are under load: the soak's checks and more, curves, clocks, throttling, heat.

The checks' limits hold as the profile sets them. What is added here is stricter than a serving gate, for a
load that is made to find faults: with `no_throttle` a single moment of throttling counts, and a busy GPU must
keep the share of its highest clock that gpu.clocks asks for, whatever reason it states.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from statistics import median

from agent.check_plan import plan_check
from agent.checks import advice
from agent.checks.gpu_clocks import ClockLimits
from agent.checks.gpu_throttle import HW_SLOWDOWN, HW_THERMAL, POWER_BRAKE, SW_THERMAL
from agent.checks.gpus import GpuSlot, count_of, mask_of, read
from agent.checks.registry import Check
from agent.errors import SourceError
from agent.launch.soak_watch import CONFIRMED, FABRIC, LINKS, WATCHING, HardwareWatch, watch_plans
from agent.model import Action, Basis, Finding, Verdict
from agent.profile_loader import LoadedProfile
from agent.sources import Sources
from agent.sources.gpu_reading import NvmlGroup

#: Besides what a soak looks at: what a load can bring out.
MORE = ("gpu.thermal_trend", "gpu.clocks", "gpu.lost", "xid", "gpu.ecc", "gpu.remap", "gpu.pcie_errors")
#: What a BMC tells takes seconds to read: a watch of its own, in a thread of its own.
COOLING = ("bmc.coolant", "bmc.air")
#: Readings over which the clock of a busy GPU is judged: a dip of seconds is throttling's matter.
CLOCK_READINGS = 30
Keep = Callable[[str, str, str, float], None]

#: Field -> curve and unit.
_CURVES = {
    "temperature_c": ("gpu_temperature", "C"),
    "memory_temperature_c": ("gpu_memory_temperature", "C"),
    "sm_clock_mhz": ("gpu_sm_clock", "MHz"),
    "draw_w": ("gpu_power", "W"),
}
#: Measure of a check -> curve and unit.
_COOLING_CURVES = {
    "coolant_inlet_celsius": ("coolant_inlet", "C"),
    "coolant_outlet_celsius": ("coolant_outlet", "C"),
    "coolant_flow_liters_per_minute": ("coolant_flow", "L/min"),
    "air_inlet_celsius": ("air_inlet", "C"),
}
_SLOWING = HW_SLOWDOWN | SW_THERMAL | HW_THERMAL | POWER_BRAKE
_LIFETIMES = {
    "sw_thermal_ns": "software thermal slowdown",
    "hw_thermal_ns": "hardware thermal slowdown",
    "hw_brake_ns": "hardware power brake",
}
_COOL_OR_POWER = advice.person(
    "Check coolant flow, inlet temperature and air flow of this GPU, then PDU and power supply alarms."
)


@dataclass(frozen=True)
class Strictness:
    """What is asked beyond the checks; None = not compared."""

    no_throttle: bool = True
    max_temperature_c: float | None = None


class LoadWatch(HardwareWatch):
    """Watches GPUs under a load that is there to find faults."""

    readings: Mapping[str, NvmlGroup] = {
        "temperature_c": NvmlGroup.THERMAL,
        "memory_temperature_c": NvmlGroup.THERMAL,
        "margin_c": NvmlGroup.THERMAL,
        "draw_w": NvmlGroup.POWER,
        "sm_clock_mhz": NvmlGroup.POWER,
    }

    def __init__(
        self,
        loaded: LoadedProfile,
        gpus: Collection[int],
        sources: Sources,
        checks: Mapping[str, Check],
        duration_s: float,
        keep: Keep,
        strict: Strictness,
        *,
        rdma: bool = False,
    ) -> None:
        """Plan the checks; `keep` gets one point of each curve a look; `rdma` adds the fabric's counters."""
        profile = loaded.profile
        wanted = (*WATCHING, *LINKS, *MORE, *(FABRIC if rdma else ()))
        super().__init__(profile, gpus, sources, watch_plans(profile, checks, wanted), duration_s)
        self._keep = keep
        self._strict = strict
        limits = plan_check(checks["gpu.clocks"], profile).limits
        assert isinstance(limits, ClockLimits)
        self._clock_limits = limits
        self._clocks: dict[str, deque[float]] = {}
        self._hot: dict[str, int] = {}
        self._lifetimes: dict[tuple[str, str], int] = {}

    def _seen(self, slot: GpuSlot, name: str, value: float) -> None:
        super()._seen(slot, name, value)
        if name in _CURVES:
            curve, unit = _CURVES[name]
            self._keep(curve, slot.subject, unit, value)
        if name == "temperature_c":
            self._judge_heat(slot, value)
        if name == "sm_clock_mhz":
            self._judge_clock(slot, value)
            if self._strict.no_throttle:
                self._judge_throttle(slot)

    def _judge_heat(self, slot: GpuSlot, value_c: float) -> None:
        most_c = self._strict.max_temperature_c
        if most_c is None:
            return
        self._hot[slot.subject] = self._hot.get(slot.subject, 0) + 1 if value_c > most_c else 0
        if self._hot[slot.subject] >= CONFIRMED:
            text = f"{value_c:.0f} C under load, at most {most_c:g} C wanted"
            self.blame("load.temperature", _fault(slot, text, value_c, f"<= {most_c:g}", "C"))

    def _judge_clock(self, slot: GpuSlot, value_mhz: float) -> None:
        """A GPU that is busy for long and slow, though it may state a reason."""
        try:
            power = read(self._sources, slot, NvmlGroup.POWER)
            most_mhz, busy = count_of(power, "max_sm_clock_mhz"), count_of(power, "gpu_utilization_percent")
        except SourceError:  # gpu.clocks tells what it cannot read
            return
        seen = self._clocks.setdefault(slot.subject, deque(maxlen=CLOCK_READINGS))
        if busy < self._clock_limits.busy_percent:
            seen.clear()
            return
        seen.append(value_mhz)
        floor_mhz = most_mhz * self._clock_limits.least_percent / 100
        if len(seen) == CLOCK_READINGS and median(seen) < floor_mhz:
            text = f"busy at {median(seen):.0f} of {most_mhz} MHz, at least {floor_mhz:.0f} MHz wanted"
            self.blame("load.clocks", _fault(slot, text, median(seen), f">= {floor_mhz:.0f}", "MHz"))

    def _judge_throttle(self, slot: GpuSlot) -> None:
        """One moment of it counts: by the reasons now, and by the lifetime counters between two looks."""
        told = [*self._reasons(slot), *self._grown(slot)]
        if told:
            text = f"throttled: {', '.join(told)}"
            self.blame("load.throttle", _fault(slot, text, None, "none", "", _COOL_OR_POWER))

    def _reasons(self, slot: GpuSlot) -> Iterator[str]:
        try:
            reasons = mask_of(read(self._sources, slot, NvmlGroup.POWER), "event_reasons") & _SLOWING
        except SourceError:  # gpu.throttle tells what it cannot read
            return
        if reasons:
            yield f"event reasons 0x{reasons:x}"

    def _grown(self, slot: GpuSlot) -> Iterator[str]:
        for field, words in _LIFETIMES.items():
            try:
                now = count_of(read(self._sources, slot, NvmlGroup.SLOWDOWNS), field)
            except SourceError:  # older drivers have none; what is unreadable gpu.power_dips tells
                continue
            grown_s = (now - self._lifetimes.setdefault((slot.subject, field), now)) / 1e9
            if grown_s > 0:
                yield f"{words} for {grown_s:.2f} s"


class CoolingWatch(HardwareWatch):
    """Coolant and air, as the BMC tells them, with curves; the profile's limits hold."""

    def __init__(
        self,
        loaded: LoadedProfile,
        sources: Sources,
        checks: Mapping[str, Check],
        duration_s: float,
        keep: Keep,
    ) -> None:
        """Plan the two checks; none runs where the profile asks for nothing."""
        super().__init__(
            loaded.profile, (), sources, watch_plans(loaded.profile, checks, COOLING), duration_s
        )
        self._keep = keep

    def sample(self, *, last: bool = False) -> None:
        """Look, and keep what was read."""
        super().sample(last=last)
        for _, finding in self.last_findings:
            for measured in finding.measures:
                if measured.name in _COOLING_CURVES:
                    curve, unit = _COOLING_CURVES[measured.name]
                    self._keep(curve, finding.subject, unit, measured.value)


def _fault(
    slot: GpuSlot, text: str, observed: float | None, expected: str, unit: str, action: Action = advice.COOL
) -> Finding:
    basis = Basis.standard("a GPU under load")
    return Finding(slot.subject, Verdict.FAIL, text, observed, expected, unit, action, basis=basis)
