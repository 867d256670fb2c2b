"""load.gpu: matrix products on every GPU for a while, and all that a soak or a burn-in looks at meanwhile.

A fault ends the load at once, for a GPU that overheats is not to be heated on.
"""

from __future__ import annotations

import asyncio
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from agent.checklist.measure import MeasureContext, MeasureOutcome, measure
from agent.checklist.record import Value
from agent.checks.registry import load_all
from agent.launch.soak_watch import HardwareWatch
from agent.measure.all_reduce import INSTALL
from agent.measure.attend import START_S, Attendance, Attendant
from agent.measure.free_gpus import HINT
from agent.measure.load_watch import CoolingWatch, LoadWatch, Strictness
from agent.measure.outcome import NOT_MEASURED, Evidence, unknown
from agent.measure.place import NoPlace, Place, find_place
from agent.measure.run_worker import Refused, run_worker
from agent.measure.throughput import Throughput
from agent.model import Finding, Verdict

NAME = "load.gpu"
_CHECK = "load.throughput"
#: A worker that nobody ends any more does so itself, so long after its time.
_MARGIN_S = 120.0


class GpuLoad(BaseModel):
    """Parameters of load.gpu."""

    model_config = ConfigDict(extra="forbid")

    duration_s: float = Field(description="Seconds of load", gt=0, le=172_800)
    size: Literal["small", "full"] = Field(
        "full", description="small: a few rows, as decoding; full: large products, at the power limit"
    )
    max_temperature_c: float | None = Field(
        None, description="Highest GPU temperature; null = only the limits of the checks", ge=30, le=120
    )
    no_throttle: bool = Field(True, description="A single moment of throttling for heat or power fails")
    max_drop_percent: float = Field(
        15.0,
        description="Most that a GPU's throughput may fall from the first third to the last",
        gt=0,
        le=100,
    )
    engine: str | None = Field(
        None, description="Engine whose GPUs and environment are used; null = all GPUs of the node"
    )


@measure(NAME, "GPU load", GpuLoad)
def gpu_load(context: MeasureContext, params: GpuLoad) -> MeasureOutcome:
    """Load the GPUs and judge what was seen."""
    profile = context.profile.profile
    if params.engine is not None and params.engine not in profile.engines:
        known = ", ".join(profile.engines) or "none"
        return unknown(f"{NOT_MEASURED}: the profile has no engine {params.engine}; it has: {known}")
    gpus = (
        list(range(profile.gpus.count))
        if params.engine is None
        else sorted(profile.engines[params.engine].gpus)
    )
    if not gpus:
        return MeasureOutcome(Verdict.SKIP, "there are no GPUs to load")
    try:
        return asyncio.run(_load(context, params, gpus))
    except Refused as cause:
        return unknown(f"{cause}: {NOT_MEASURED}", HINT)
    except NoPlace as cause:
        return unknown(f"{NOT_MEASURED}: {cause}", INSTALL)


async def _load(context: MeasureContext, params: GpuLoad, gpus: list[int]) -> MeasureOutcome:
    sources, checks = context.sources, load_all()
    strict = Strictness(params.no_throttle, params.max_temperature_c)
    watch = LoadWatch(context.profile, gpus, sources, checks, params.duration_s, context.keep, strict)
    cooling = CoolingWatch(context.profile, sources, checks, params.duration_s, context.keep)
    place = None if sources.simulated else _place(context, params, gpus)
    throughput = Throughput()

    def hear(report: dict[str, Any]) -> None:
        number = report.get("gpu")
        if isinstance(number, int) and 0 <= number < len(gpus):
            subject = f"gpu{gpus[number]}"
            rate = throughput.take(subject, report)
            if rate is not None:
                context.keep("gpu_throughput", subject, "TFLOP/s", rate)

    words = "SIMULATED load" if place is None else f"{params.size} load by the Python of {place.engine}"
    context.say(f"{words} on {len(gpus)} GPUs for {params.duration_s:g} s")
    attendant = Attendant(context, watch, cooling=cooling, hear=hear)
    found = await run_worker(context, gpus, place, attendant, params.duration_s)
    return judge_load(params, found, watch, cooling, throughput, words, len(gpus) if place else 0)


def _place(context: MeasureContext, params: GpuLoad, gpus: list[int]) -> Place:
    order = {
        "gpus": len(gpus), "size": params.size, "duration_s": params.duration_s + _MARGIN_S,
        "limit_s": params.duration_s + _MARGIN_S + START_S,
    }  # fmt: skip
    profile, sources = context.profile.profile, context.sources
    return find_place(profile, sources, gpus, "gpu_load.py", order, params.engine)


def judge_load(
    params: GpuLoad,
    found: Attendance,
    watch: HardwareWatch,
    cooling: HardwareWatch,
    throughput: Throughput,
    words: str,
    reporting: int,
    evidence: Evidence | None = None,
) -> MeasureOutcome:
    """The verdict of a load; `reporting` GPUs must have told their throughput."""
    evidence = evidence or Evidence()
    ended = not found.cancelled and not found.problem and not watch.faults and not cooling.faults
    if found.cancelled:
        evidence.missing.append(f"called off after {found.seconds:.0f} s")
    elif found.problem:
        evidence.missing.append(f"{found.problem} (after {found.seconds:.0f} s of load)")
    elif ended and len(throughput.subjects) < reporting:
        silent = reporting - len(throughput.subjects)
        evidence.missing.append(f"{silent} of {reporting} GPUs have not told their throughput")
    elif ended and found.seconds < params.duration_s:
        evidence.missing.append(f"the load ended by itself after {found.seconds:.0f} s")
    evidence.add_watch(watch, ended=ended)
    evidence.add_watch(cooling, ended=ended)
    own: list[Finding] = throughput.wrong()
    if ended:
        own += [*throughput.fallen(params.max_drop_percent), *throughput.behind()]
    for finding in own:
        evidence.judge(_CHECK, finding)
    evidence.values += [*throughput.values(), *_extremes(watch)]
    return evidence.outcome(f"{found.seconds:.0f} s of {words}{_hottest(watch)}")


def _extremes(watch: HardwareWatch) -> list[Value]:
    """Extremes of each GPU."""
    found = []
    for peak in watch.peaks:
        for name, value, unit in (
            ("highest_temperature", peak.max_temperature_c, "C"),
            ("least_margin", peak.min_margin_c, "C"),
            ("highest_power", peak.max_draw_w, "W"),
        ):
            if value is not None:
                found.append(Value(name=name, subject=peak.subject, value=round(value, 1), unit=unit))
    return found


def _hottest(watch: HardwareWatch) -> str:
    degrees = [peak.max_temperature_c for peak in watch.peaks if peak.max_temperature_c is not None]
    return f", hottest GPU {max(degrees):.0f} C" if degrees else ""
