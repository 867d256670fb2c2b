"""gpu.foreign: does a process that is not the engine's use the GPU, or does memory of a dead one?

NVML: nvmlDeviceGetComputeRunningProcesses, nvmlDeviceGetMemoryInfo; names and parents of processes from
/proc/PID/{comm,stat}. The agent's own NVML client computes nothing and is not in that list.
nvmlDeviceGetMemoryInfo counts what the driver keeps for itself as used: 615 MiB on an idle H200.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from agent.checks import advice
from agent.checks.engine_slots import RUNNING, belongs_to, engine_of_slot, process_name
from agent.checks.gpus import GpuSlot, count_of, judge_readings, no_gpus, read
from agent.checks.registry import Limits, check
from agent.errors import ParseError, SourceError, SourceUnavailable
from agent.model import Basis, EnginePhase, Finding, ServingClass, Verdict
from agent.node_profile import Mode, NodeProfile
from agent.sources import EngineObservation, Sources
from agent.sources.gpu_reading import GpuReading, NvmlGroup

MIB = 2**20
#: Its own processes are being ended, and the agent itself waits until NVML shows none of them.
_ENDING = frozenset({EnginePhase.STOPPING, EnginePhase.EXITED})
_BASIS = Basis.standard("only its engine uses a GPU")
_END = advice.person("Find out whose these processes are and end them; they hold memory the engine needs.")
_FREE = advice.person(
    "End what still holds memory of this GPU (fuser -v /dev/nvidia*); reset the GPU if nothing does."
)


class ForeignLimits(Limits):
    """Tolerances of gpu.foreign."""

    max_idle_mib: int = Field(
        1024,
        description="Memory in use, in MiB, of a GPU without processes: what its driver keeps for itself",
        ge=0,
    )
    max_idle_percent: float = Field(
        0.7, description="The same in percent of its memory, which counts where that is more", ge=0, le=100
    )
    allowed: tuple[str, ...] = Field(
        (), description="Names of processes (/proc/PID/comm) that may use any GPU, e.g. nvidia-cuda-mps"
    )


def _not_ours(profile: NodeProfile) -> str | None:
    if profile.mode is not Mode.MANAGE:
        return no_gpus(profile) or f"engines are not started by nodegate in mode {profile.mode}"
    return no_gpus(profile)


@check(
    "gpu.foreign",
    title="Processes that are not the engine's",
    source="nvmlDeviceGetComputeRunningProcesses, nvmlDeviceGetMemoryInfo; /proc/PID/stat",
    serving_class=ServingClass.SOFT,
    limits=ForeignLimits,
    period_s=10.0,
    fail_for_s=20.0,
    triggers=("engine",),
    needed_to_start=True,
    skip=_not_ours,
    action=_END,
)
def gpu_foreign(sources: Sources, profile: NodeProfile, limits: ForeignLimits) -> Iterator[Finding]:
    """Before launch nothing may use a GPU; beside an engine that serves, a foreign process is a warning."""
    yield from judge_readings(
        sources, profile, NvmlGroup.PROCESSES, lambda slot, now: _judge(slot, sources, profile, now, limits)
    )


def _judge(
    slot: GpuSlot, sources: Sources, profile: NodeProfile, now: GpuReading, limits: ForeignLimits
) -> Finding:
    pids = now.integers("pids")
    if any(pid <= 0 for pid in pids):
        raise ParseError(f"NVML lists process {min(pids)}")
    engine = engine_of_slot(profile, slot.number)
    if engine is None:
        text = f"{len(pids)} processes; no engine uses this GPU"
        return Finding(slot.subject, Verdict.PASS, text, len(pids), basis=_BASIS)
    seen = _observed(sources, engine, pids)
    phase = seen.status.phase if seen else None
    if seen and pids and not seen.looked:
        raise SourceUnavailable(f"{len(pids)} processes: whether engine {engine} runs is being looked for")
    if seen and pids and phase in _ENDING:
        raise SourceUnavailable(f"engine {engine} is being ended: its GPUs are looked at when it is gone")
    # Just started or just found again, the others of its processes are known only as children of the first.
    first = () if seen is None or seen.status.pid is None else (seen.status.pid,)
    own = frozenset((*first, *seen.pids)) if seen and phase in RUNNING else frozenset[int]()
    foreign = [pid for pid in pids if not belongs_to(sources, pid, own)]
    foreign = [pid for pid in foreign if not _is_allowed(sources, pid, limits)]
    if foreign:
        names = ", ".join(process_name(sources, pid) for pid in foreign[:3])
        more = f" and {len(foreign) - 3} more" if len(foreign) > 3 else ""
        owner = f"not by engine {engine}" if phase in RUNNING else f"while engine {engine} is {phase}"
        # Beside an engine that serves it is too late to withhold anything: the engine has its memory.
        return Finding(
            slot.subject, Verdict.WARN if phase is EnginePhase.WARM else Verdict.FAIL,
            f"used by {names}{more}, {owner}", len(foreign), 0, "processes", _END, basis=_BASIS,
        )  # fmt: skip
    if pids or profile.gpus.unified_memory or phase in RUNNING:
        text = f"{len(pids)} processes, none foreign to engine {engine}"
        return Finding(slot.subject, Verdict.PASS, text, 0, 0, "processes", basis=_BASIS)
    return _judge_idle_memory(slot, sources, limits)


def _observed(sources: Sources, engine: str, pids: list[int]) -> EngineObservation | None:
    """What is known of the engine; without processes on the GPU nothing needs to be known of it."""
    try:
        return sources.engines.observe(engine)
    except SourceError as cause:
        if pids:
            raise SourceUnavailable(f"{len(pids)} processes, but whose is not known: {cause}") from None
        return None


def _is_allowed(sources: Sources, pid: int, limits: ForeignLimits) -> bool:
    return bool(limits.allowed) and any(
        process_name(sources, pid) == f"{name} ({pid})" for name in limits.allowed
    )


def _judge_idle_memory(slot: GpuSlot, sources: Sources, limits: ForeignLimits) -> Finding:
    """A GPU without processes whose memory is in use all the same: of a process that is dying or hidden."""
    now = read(sources, slot, NvmlGroup.MEMORY)
    used_mib, total_mib = count_of(now, "used_b") / MIB, count_of(now, "total_b") / MIB
    by_size = total_mib * limits.max_idle_percent / 100
    most_mib = max(limits.max_idle_mib, by_size)
    basis = Basis.limit("max_idle_percent" if by_size > limits.max_idle_mib else "max_idle_mib")
    want = f"<= {most_mib:.0f}"
    if used_mib > most_mib:
        summary = f"{used_mib:.0f} MiB in use although no process runs on it"
        return Finding(slot.subject, Verdict.FAIL, summary, round(used_mib), want, "MiB", _FREE, basis=basis)
    text = f"no processes, {used_mib:.0f} MiB kept by the driver"
    return Finding(slot.subject, Verdict.PASS, text, round(used_mib), want, "MiB", basis=basis)
