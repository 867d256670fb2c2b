"""The processes of an engine, and how procfs lists CPUs and nodes (proc(5)); shared by engine checks."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from agent.checks.gpus import read, slots
from agent.checks.registry import unknown
from agent.errors import DeviceAbsent, DeviceLost, ParseError, SourceError, SourceUnavailable
from agent.model import EnginePhase, Finding, Verdict
from agent.node_profile import Engine, Mode, NodeProfile
from agent.sources import EngineObservation, Sources
from agent.sources.gpu_reading import GpuReading, NvmlGroup

RUNNING = frozenset({EnginePhase.UP, EnginePhase.WARM})
#: No engine has more; a list beyond it is not one of processes.
MAX_PIDS = 4096


def no_engine(profile: NodeProfile) -> str | None:
    """Skip rule: nobody watches an engine."""
    if profile.mode is Mode.OBSERVE:
        return "mode observe watches no engine"
    return None if profile.engines else "the profile has no engines"


def judge_running(
    sources: Sources,
    profile: NodeProfile,
    judge: Callable[[str, str, Engine, EngineObservation], Finding],
    *,
    by_http: bool = False,
    by_process: bool = False,
) -> Iterator[Finding]:
    """Judge (subject, name, engine, observation) of every engine that runs; the others are SKIP.

    With `by_http` so are ranks of a group that have none, with `by_process` engines beside a replayed node:
    their processes are this machine's, which is another.
    """
    for name, engine in profile.engines.items():
        subject = f"engine:{name}"
        if by_http and engine.follows:
            yield Finding(subject, Verdict.SKIP, "a rank without HTTP: the head of its group is looked at")
            continue
        try:
            seen = sources.engines.observe(name)
            if by_process and _elsewhere(sources, seen):
                yield Finding(subject, Verdict.SKIP, "its processes are not the replayed node's")
            elif seen.status.phase not in RUNNING:
                words = f"the engine is {seen.status.phase.value}: nothing to judge"
                yield Finding(subject, Verdict.SKIP, words)
            else:
                yield judge(subject, name, engine, seen)
        except SourceError as cause:
            yield unknown(subject, cause)


def _elsewhere(sources: Sources, seen: EngineObservation) -> bool:
    """Whether the engine runs on this machine beside a node that is replayed, whose /proc has none of it."""
    if not (sources.simulated and seen.pids):
        return False
    return not any(sources.tree.exists(f"proc/{pid}") for pid in seen.pids)


def pids_of(sources: Sources, profile: NodeProfile, engine: Engine, seen: EngineObservation) -> list[int]:
    """Its processes: those its supervisor knows, else those that NVML shows on its GPUs.

    Raises SourceUnavailable when none is known.
    """
    found = list(seen.pids)
    if not found:
        by_slot = gpu_pids(sources, profile, engine) if engine.gpus else {}
        found = sorted({pid for pids in by_slot.values() for pid in pids})
    if not found:
        raise SourceUnavailable("its processes are not known: the agent does not run it and NVML shows none")
    if len(found) > MAX_PIDS:
        raise ParseError(f"{len(found)} processes of one engine cannot be")
    return found


def gpu_pids(sources: Sources, profile: NodeProfile, engine: Engine) -> dict[int, list[int]]:
    """Compute processes by GPU slot of the engine (nvmlDeviceGetComputeRunningProcesses)."""
    return {
        number: found.integers("pids")
        for number, found in gpu_readings(sources, profile, engine, NvmlGroup.PROCESSES).items()
    }


def gpu_readings(
    sources: Sources, profile: NodeProfile, engine: Engine, group: NvmlGroup
) -> dict[int, GpuReading]:
    """One group of every GPU of the engine, by slot. Raises SourceError when one cannot be read."""
    wanted = [slot for slot in slots(sources, profile) if slot.number in engine.gpus]
    try:
        return {slot.number: read(sources, slot, group) for slot in wanted}
    except (DeviceLost, DeviceAbsent) as cause:
        raise SourceUnavailable(f"{cause}: see gpu.lost") from cause


def id_list(text: str, what: str) -> frozenset[int]:
    """`0-3,8` as the numbers it names (cpulist format). Raises ParseError; empty text names none."""
    found: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, dash, last = part.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ParseError(f"{what} reads {text[:40]!r}, not a list like 0-3,8")
        begin, end = int(first), int(last or first)
        if not 0 <= begin <= end < 1 << 16:
            raise ParseError(f"{what} reads {text[:40]!r}, not a list like 0-3,8")
        found.update(range(begin, end + 1))
    return frozenset(found)


def status_field(text: str, key: str, what: str) -> str:
    """A field of /proc/PID/status or /proc/meminfo. Raises ParseError when it is not there."""
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon and name == key:
            return value.strip()
    raise ParseError(f"{what} has no {key}")


def kib(text: str, what: str) -> int:
    """`1234 kB` as a number of KiB. Raises ParseError."""
    number, _, unit = text.partition(" ")
    if not number.isdecimal() or unit.strip() != "kB":
        raise ParseError(f"{what} reads {text[:40]!r}, not a size in kB")
    return int(number)
