"""gpu.memory_growth: does one GPU's memory fill up while those of the same engine stay?

NVML: nvmlDeviceGetMemoryInfo. The ranks of an engine allocate alike: what one holds more than the median of
the others, now against when the engine began to serve, is a leak of that rank. Stages of a pipeline may
differ for good, which the comparison with the beginning takes out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from statistics import median

from pydantic import Field

from agent.checks.engine_slots import engine_of_slot
from agent.checks.gpus import GpuSlot, count_of, judge_slots, no_gpus, read, slots
from agent.checks.registry import Limits, check
from agent.errors import BaselineOnly, ParseError, SourceError
from agent.model import (
    Action,
    ActionKind,
    Basis,
    EnginePhase,
    Finding,
    Measure,
    Phase,
    ServingClass,
    Verdict,
)
from agent.node_profile import Mode, NodeProfile
from agent.sources import Sources
from agent.sources.gpu_reading import NvmlGroup

_RESTART = Action(
    ActionKind.RESTART_ENGINE,
    "Restart the engine at a quiet time: one of its ranks takes more and more GPU memory.",
)
_APART = Basis.limit("max_apart_percent")


class GrowthLimits(Limits):
    """Tolerances of gpu.memory_growth."""

    max_apart_percent: float = Field(
        5.0, description="Growth beyond the other GPUs of the engine, in percent of all memory", gt=0, le=100
    )
    full_percent: float = Field(
        95.0, description="Memory in use that is nearly all, in percent", gt=0, le=100
    )
    least_growth_percent: float = Field(
        1.0, description="Growth that is not worth a word, in percent of all memory", ge=0, le=100
    )


@dataclass(frozen=True, slots=True)
class Use:
    """Memory in use of one GPU of an engine in percent: now, and when the engine began to serve."""

    engine: str
    now_percent: float
    first_percent: float

    @property
    def grown_percent(self) -> float:
        """Growth since then."""
        return self.now_percent - self.first_percent


def _left_out(profile: NodeProfile) -> str | None:
    if profile.gpus.unified_memory:
        return "GPU and CPU share their memory: engine.memory watches it"
    if profile.mode is Mode.OBSERVE:
        return "engines are not watched in mode observe"
    return no_gpus(profile)


@check(
    "gpu.memory_growth",
    title="Memory growth of one rank",
    source="nvmlDeviceGetMemoryInfo of all GPUs of an engine, since it began to serve",
    serving_class=ServingClass.SOFT,
    limits=GrowthLimits,
    phases=(Phase.SERVING, Phase.MAINTENANCE),
    period_s=30.0,
    fail_for_s=60.0,
    clear_for_s=60.0,
    needs_interval_s=2.0,
    skip=_left_out,
    action=_RESTART,
)
def gpu_memory_growth(sources: Sources, profile: NodeProfile, limits: GrowthLimits) -> Iterator[Finding]:
    """No GPU may take ever more memory than those of the same engine, least of all until it is full."""
    found = slots(sources, profile)
    uses = {slot.number: _use(sources, slot, profile) for slot in found}
    yield from judge_slots(found, lambda slot: _judge(slot, uses, profile, limits))


def _judge(
    slot: GpuSlot, uses: Mapping[int, Use | str | SourceError], profile: NodeProfile, limits: GrowthLimits
) -> Finding:
    own = uses[slot.number]
    if isinstance(own, SourceError):
        raise own
    if isinstance(own, str):
        return Finding(slot.subject, Verdict.PASS, own, basis=_APART)
    # A GPU of the engine that cannot be read says so itself; the others are compared without it.
    siblings = [
        use
        for number in profile.engines[own.engine].gpus
        if number != slot.number and isinstance(use := uses.get(number), Use)
    ]
    used = Measure("gpu_memory_used_ratio", own.now_percent / 100)
    return replace(_judge_use(slot, own, siblings, limits), measures=(used,))


def _use(sources: Sources, slot: GpuSlot, profile: NodeProfile) -> Use | str | SourceError:
    """Memory of one GPU, why there is nothing to compare, or what kept it from being read."""
    try:
        slot.known()
        engine = engine_of_slot(profile, slot.number)
        if engine is None:
            return "no engine uses this GPU"
        status = sources.engines.observe(engine).status
        now = read(sources, slot, NvmlGroup.MEMORY)
        used_b, total_b = count_of(now, "used_b"), count_of(now, "total_b")
        if total_b <= 0 or used_b > total_b:
            raise ParseError(f"{used_b} bytes of memory in use of {total_b}")
        if status.phase is not EnginePhase.WARM:
            return f"engine {engine} is {status.phase}: nothing to compare yet"
        name = f"gpu.memory_growth/{now.uuid}/{engine}/{status.pid}"
        first = sources.series.first(name, used_b, now.mono_s)
        if first.mono_s == now.mono_s:
            raise BaselineOnly(f"first look at the memory of {slot.subject}")
        return Use(engine, used_b * 100 / total_b, first.value * 100 / total_b)
    except SourceError as cause:
        return cause


def _judge_use(slot: GpuSlot, own: Use, siblings: list[Use], limits: GrowthLimits) -> Finding:
    """Apart from the others and nearly full is a failure, either alone a warning."""
    grown = own.grown_percent
    apart = grown - median(use.grown_percent for use in siblings) if siblings else 0.0
    is_apart = apart > limits.max_apart_percent
    is_full = own.now_percent > limits.full_percent and grown > limits.least_growth_percent
    text = f"{own.now_percent:.1f} % in use, {grown:+.1f} points since engine {own.engine} began to serve"
    if is_apart:
        summary = f"{text}, {apart:.1f} points more than the median of its other GPUs"
        return Finding(
            slot.subject, Verdict.FAIL if is_full else Verdict.WARN, summary, round(apart, 1),
            f"<= {limits.max_apart_percent:g}", "% of memory", _RESTART, basis=_APART,
        )  # fmt: skip
    if is_full:
        return Finding(
            slot.subject, Verdict.WARN, f"{text}: nearly full", round(own.now_percent, 1),
            f"<= {limits.full_percent:g}", "% of memory", _RESTART, basis=Basis.limit("full_percent"),
        )  # fmt: skip
    want = f"<= {limits.max_apart_percent:g}"
    return Finding(slot.subject, Verdict.PASS, text, round(apart, 1), want, "% of memory", basis=_APART)
