"""engine.memory: does an engine's host memory grow without end, and how much does the host have left?

procfs: RssAnon of /proc/PID/status for every process of the engine (memory of its own; shared memory and
mapped weights are not counted), MemTotal and MemAvailable of /proc/meminfo.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from agent.checks import advice
from agent.checks.engine_processes import judge_running, kib, no_engine, pids_of, status_field
from agent.checks.registry import Limits, check
from agent.errors import DeviceAbsent, ParseError, SourceUnavailable
from agent.model import Basis, Finding, Measure, Phase, ServingClass, Verdict
from agent.node_profile import Engine, NodeProfile
from agent.sources import EngineObservation, Sources

MEMINFO = "proc/meminfo"
_RESTART = advice.person(
    "Plan a restart of the engine at a quiet time (nodegate engine restart) before the kernel's OOM killer "
    "chooses the moment; a cache in host memory that is never freed is the usual cause."
)
_OTHERS = advice.person(
    "Find what else takes the host's memory (ps, smem) and stop it; it is not the engine."
)


class MemoryLimits(Limits):
    """Tolerances of engine.memory."""

    window_s: float = Field(3600.0, description="Seconds over which growth is judged", ge=60, le=14400)
    growth_percent: float = Field(
        5.0, description="Growth in the window, in percent of the host's memory, that is told", gt=0, le=100
    )
    low_percent: float = Field(
        5.0, description="Available memory of the host in percent below which an engine is in danger", ge=0
    )


@check(
    "engine.memory",
    title="Host memory of the engine",
    source="/proc/PID/status RssAnon of the engine; /proc/meminfo",
    serving_class=ServingClass.SOFT,
    limits=MemoryLimits,
    phases=(Phase.SERVING,),
    period_s=30.0,
    deadline_s=10.0,
    fail_for_s=60.0,
    clear_for_s=60.0,
    unknown_blocks_admission=False,
    skip=no_engine,
    action=_RESTART,
)
def engine_memory(sources: Sources, profile: NodeProfile, limits: MemoryLimits) -> Iterator[Finding]:
    """The host must have memory left, and no engine's own may grow steadily."""

    def judge(subject: str, name: str, engine: Engine, seen: EngineObservation) -> Finding:
        pids = pids_of(sources, profile, engine, seen)
        return _judge(subject, name, pids, sources, limits)

    yield from judge_running(sources, profile, judge, by_process=True)


def _judge(subject: str, name: str, pids: list[int], sources: Sources, limits: MemoryLimits) -> Finding:
    text = sources.tree.text(MEMINFO)
    total_kib = kib(status_field(text, "MemTotal", f"/{MEMINFO}"), "MemTotal")
    available_kib = kib(status_field(text, "MemAvailable", f"/{MEMINFO}"), "MemAvailable")
    if total_kib == 0 or available_kib > total_kib:
        raise ParseError(f"/{MEMINFO} reads {available_kib} of {total_kib} kB available")
    own_kib = _own_kib(sources, pids)
    share = 100 * own_kib / total_kib
    # An engine that was started anew begins a history of its own: its first process has another number.
    history = sources.series.record(
        f"engine.memory/{name}/{pids[0]}", share, sources.clock.mono_s(), limits.window_s
    )
    left = 100 * available_kib / total_kib
    grown = history.values[-1] - min(history.values)
    own = (Measure("engine_host_memory_bytes", own_kib * 1024.0),)
    words = f"{own_kib / 2**20:.1f} GiB of its own, {left:.0f} % of the host's memory available"
    if left < limits.low_percent:
        action = _RESTART if share >= 50 else _OTHERS
        return Finding(
            subject, Verdict.FAIL, words, round(left, 1), f">= {limits.low_percent:g}", "% available",
            action, measures=own, basis=Basis.limit("low_percent"),
        )  # fmt: skip
    first, middle, last = history.thirds()
    if grown >= limits.growth_percent and first < middle < last:
        summary = f"grew by {grown:.1f} % of the host's memory in {history.span_s / 60:.0f} min; {words}"
        return Finding(
            subject, Verdict.WARN, summary, round(grown, 1), f"< {limits.growth_percent:g}", "% grown",
            _RESTART, measures=own, basis=Basis.limit("growth_percent"),
        )  # fmt: skip
    basis = Basis.limit("low_percent")
    want = f">= {limits.low_percent:g}"
    return Finding(
        subject, Verdict.PASS, words, round(left, 1), want, "% available", measures=own, basis=basis
    )


def _own_kib(sources: Sources, pids: list[int]) -> int:
    """Memory of all processes that are still there. Raises SourceUnavailable when none is."""
    found: list[int] = []
    for pid in pids:
        path = f"proc/{pid}/status"
        try:
            text = sources.tree.text(path)
        except DeviceAbsent:
            continue
        found.append(kib(status_field(text, "RssAnon", f"/{path}"), f"RssAnon of {pid}"))
    if not found:
        raise SourceUnavailable("none of its processes is there any more")
    return sum(found)
