"""nccl.all_reduce: is the sum right, how fast is it, and do links count errors meanwhile? Within the node.

By the PyTorch of an engine's environment (torch.distributed, backend nccl, one process a GPU) with the
variables that the engine gets; where no engine's environment can, by all_reduce_perf of nccl-tests if it is
installed. Each NVLink domain is measured by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, Field

from agent.checklist.measure import MeasureContext, MeasureOutcome, measure
from agent.checks.registry import load_all
from agent.launch.soak_watch import LINKS, HardwareWatch, watch_plans
from agent.measure.attend import Attendant
from agent.measure.bandwidth import Expectation, judge_result, limit_s, span_name
from agent.measure.free_gpus import HINT
from agent.measure.nccl_tests import nccl_tests_place, read_nccl_tests
from agent.measure.outcome import NOT_MEASURED, Evidence, unknown
from agent.measure.place import NoPlace, Place, find_place
from agent.measure.run_worker import Refused, run_worker
from agent.model import Verdict
from agent.node_profile import NodeProfile

NAME = "nccl.all_reduce"
#: What the links and their ends tell.
WATCHED = (*LINKS, "gpu.lost", "xid", "gpu.pcie_errors")
#: Seconds that one domain takes about, start of the worker included.
_ABOUT_S = 30.0
INSTALL = "Install the engine (role engine), or all_reduce_perf of nccl-tests for a test within the node."
#: On a replayed node: long enough for two looks at counters.
SIMULATED_S = 3.0


class AllReduce(BaseModel):
    """Parameters of nccl.all_reduce."""

    model_config = ConfigDict(extra="forbid")

    size_mib: int = Field(1024, description="Size of the message in MiB", ge=1, le=16_384)
    iterations: int = Field(20, description="All-reduces that are timed", ge=1, le=10_000)
    min_bus_gb_s: float | None = Field(
        None, description="Least bus bandwidth in GB/s; null = the profile's nccl.min_bus_gb_s", gt=0
    )
    gpus: list[int] | None = Field(None, description="GPU slots; null = all, one NVLink domain at a time")


@measure(NAME, "NCCL all-reduce within the node", AllReduce)
def all_reduce(context: MeasureContext, params: AllReduce) -> MeasureOutcome:
    """Measure each domain in turn; the worst of them is the verdict."""
    profile = context.profile.profile
    if strange := [slot for slot in params.gpus or () if not 0 <= slot < profile.gpus.count]:
        return unknown(f"{NOT_MEASURED}: the profile has no GPU slot {strange[0]}", "Correct `gpus`.")
    domains = [domain for domain in _domains(profile, params.gpus) if len(domain) > 1]
    if not domains:
        return MeasureOutcome(Verdict.SKIP, "there are no two GPUs to reduce over within this node")
    evidence, told = Evidence(), []
    for domain in domains:
        if context.cancelled():
            break
        try:
            told.append(asyncio.run(_domain(context, params, domain, evidence)))
        except Refused as cause:
            return unknown(f"{cause}: {NOT_MEASURED}", HINT, evidence.values)
        except NoPlace as cause:
            return unknown(f"{NOT_MEASURED}: {cause}", INSTALL, evidence.values)
    return evidence.outcome("; ".join(told))


def _domains(profile: NodeProfile, wanted: Sequence[int] | None) -> list[list[int]]:
    """The slots of each NVLink domain; those that were asked for are one."""
    if wanted is not None:
        return [sorted(set(wanted))]
    if profile.nvlink.links_per_gpu and profile.nvlink.domains:
        return [sorted(domain) for domain in profile.nvlink.domains]
    return [list(range(profile.gpus.count))]


async def _domain(context: MeasureContext, params: AllReduce, gpus: list[int], evidence: Evidence) -> str:
    """One domain; what is said of it where all is well."""
    profile, sources = context.profile.profile, context.sources
    watch = HardwareWatch(profile, gpus, sources, watch_plans(profile, load_all(), WATCHED), _ABOUT_S)
    expected = Expectation.of(params.min_bus_gb_s, profile.nccl.min_bus_gb_s, params.size_mib)
    subject = span_name(gpus)
    place, by_nccl_tests = (None, False) if sources.simulated else _place(context, params, gpus)
    context.say(f"all-reduce of {params.size_mib} MiB over {subject}")
    attendant = Attendant(context, watch)
    found = await run_worker(context, gpus, place, attendant, SIMULATED_S if place is None else None)
    evidence.add_watch(watch, LINKS, ended=not found.cancelled and not found.problem)
    if by_nccl_tests:
        read_nccl_tests(found, len(gpus))
    return judge_result(evidence, found, subject, expected, sources, NAME)


def _place(context: MeasureContext, params: AllReduce, gpus: list[int]) -> tuple[Place, bool]:
    """Where it runs, and whether that is nccl-tests. Raises NoPlace."""
    seconds = limit_s(params.iterations)
    order = {
        "gpus": len(gpus), "size_mib": params.size_mib, "iterations": params.iterations, "backend": "nccl",
        "limit_s": seconds, "rendezvous_s": seconds,
    }  # fmt: skip
    profile, sources = context.profile.profile, context.sources
    try:
        return find_place(profile, sources, gpus, "all_reduce.py", order), False
    except NoPlace as cause:
        place = nccl_tests_place(profile, sources, gpus, params.size_mib, params.iterations)
        if place is None:
            raise NoPlace(f"{cause}; all_reduce_perf of nccl-tests is not installed either") from cause
        return place, True
