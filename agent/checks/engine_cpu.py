"""engine.cpu: is one CPU thread of the engine the bottleneck while its GPUs wait?

procfs: /proc/PID/task/TID/stat, utime and stime (fields 14 and 15 of proc(5)) in ticks of 1/100 s, and
nvmlDeviceGetUtilizationRates. vLLM's EngineCore may spin one CPU at full load and that is fine: only a busy
thread beside idle GPUs and running requests is told.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import Field

from agent.checks import advice
from agent.checks.engine_processes import gpu_readings, judge_running, no_engine, pids_of
from agent.checks.registry import Limits, check
from agent.errors import BaselineOnly, DeviceAbsent, ParseError, SourceUnavailable
from agent.model import Basis, Finding, Phase, ServingClass, Verdict
from agent.node_profile import Engine, NodeProfile
from agent.sources import EngineObservation, Sources
from agent.sources.gpu_reading import NvmlGroup

#: USER_HZ, what procfs counts CPU time in on every architecture that serves models.
TICKS_PER_S = 100
_CPU = advice.person(
    "Look at the governor (host.governor), at NUMA binding (engine.numa) and at other load on these CPUs; "
    "more API server processes help when that one is the busy one."
)


class CpuLimits(Limits):
    """Tolerances of engine.cpu."""

    thread_percent: float = Field(95.0, description="Load of one thread that counts as full", gt=0, le=100)
    gpu_percent: float = Field(
        60.0, description="Mean GPU utilisation in percent below which the GPUs wait", ge=0, le=100
    )
    window_s: float = Field(60.0, description="Seconds over which the load is taken", ge=5, le=600)


@dataclass(frozen=True, slots=True)
class _Thread:
    """The busiest thread found."""

    name: str
    pid: int
    percent: float


@check(
    "engine.cpu",
    title="CPU thread as the bottleneck",
    source="/proc/PID/task/*/stat of the engine; nvmlDeviceGetUtilizationRates",
    serving_class=ServingClass.INFO,
    limits=CpuLimits,
    phases=(Phase.SERVING,),
    period_s=30.0,
    deadline_s=10.0,
    needs_interval_s=10.0,
    fail_for_s=60.0,
    unknown_blocks_admission=False,
    skip=no_engine,
    action=_CPU,
)
def engine_cpu(sources: Sources, profile: NodeProfile, limits: CpuLimits) -> Iterator[Finding]:
    """No thread of an engine may be at full load while requests run and its GPUs wait."""

    def judge(subject: str, name: str, engine: Engine, seen: EngineObservation) -> Finding:
        del name
        busiest = _busiest(sources, pids_of(sources, profile, engine, seen), limits)
        text = f"busiest thread {busiest.name} (pid {busiest.pid}) at {busiest.percent:.0f} %"
        observed, basis = round(busiest.percent, 1), Basis.limit("thread_percent")
        want = f"< {limits.thread_percent:g}"
        if busiest.percent < limits.thread_percent or not engine.gpus:
            return Finding(subject, Verdict.PASS, text, observed, want, "%", basis=basis)
        if seen.requests_running is None:
            raise SourceUnavailable(f"{text}, and the engine does not say whether requests run")
        gpus = _utilisation(sources, profile, engine)
        if gpus >= limits.gpu_percent or seen.requests_running == 0:
            waits = f"GPUs at {gpus:.0f} %, {seen.requests_running:g} requests running"
            return Finding(subject, Verdict.PASS, f"{text}; {waits}", observed, want, "%", basis=basis)
        summary = f"{text} while the GPUs are at {gpus:.0f} % with {seen.requests_running:g} requests running"
        return Finding(subject, Verdict.WARN, summary, observed, want, "%", _CPU, basis=basis)

    yield from judge_running(sources, profile, judge, by_process=True)


def _busiest(sources: Sources, pids: list[int], limits: CpuLimits) -> _Thread:
    """The busiest thread. Raises BaselineOnly when no thread has been sampled twice."""
    found: list[_Thread] = []
    first: BaselineOnly | None = None
    for pid in pids:
        for tid, text in _stats(sources, pid):
            name, started, ticks = _parsed(text, f"/proc/{pid}/task/{tid}/stat")
            counter = f"engine.cpu/{pid}/{tid}/{started}"
            try:
                grown = sources.counters.delta(counter, ticks, sources.clock.mono_s(), limits.window_s)
            except BaselineOnly as cause:
                first = first or cause
                continue
            found.append(_Thread(name, pid, 100 * grown.per_second / TICKS_PER_S))
    if not found:
        raise first or SourceUnavailable("none of its processes is there any more")
    return max(found, key=lambda thread: thread.percent)


def _stats(sources: Sources, pid: int) -> Iterator[tuple[str, str]]:
    """The stat line of every thread; those that end meanwhile are left out."""
    try:
        tids = sources.tree.names(f"proc/{pid}/task")
    except DeviceAbsent:
        return
    for tid in tids:
        try:
            yield tid, sources.tree.text(f"proc/{pid}/task/{tid}/stat")
        except DeviceAbsent:
            continue


def _parsed(text: str, path: str) -> tuple[str, str, int]:
    """Name, start time and CPU ticks of a stat line; the name may hold blanks and parentheses."""
    head, _, rest = text.rpartition(")")
    fields = rest.split()
    name = head.partition("(")[2]
    numbers = [fields[index] for index in (11, 12, 19)] if len(fields) > 19 else []
    if not name or not numbers or not all(number.isdecimal() for number in numbers):
        raise ParseError(f"{path} reads {text[:40]!r}, not a stat line")
    return name, numbers[2], int(numbers[0]) + int(numbers[1])


def _utilisation(sources: Sources, profile: NodeProfile, engine: Engine) -> float:
    """Mean utilisation of the engine's GPUs in percent."""
    found = gpu_readings(sources, profile, engine, NvmlGroup.POWER).values()
    values = [reading.number("gpu_utilization_percent") for reading in found]
    if not values or not all(0 <= value <= 100 for value in values):
        raise ParseError("NVML gives no utilisation of the engine's GPUs between 0 and 100 %")
    return sum(values) / len(values)
