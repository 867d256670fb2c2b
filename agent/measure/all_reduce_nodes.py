"""nccl.all_reduce_nodes: the same all-reduce over all nodes of a group, by every node at the same time.

Each node runs this step of its own checklist; they meet at the head's address in the data network and at the
group's master port, which the engine uses when it runs, and wait for each other for `rendezvous_s`. Nobody
starts anything on another node.
"""

from __future__ import annotations

import asyncio
import re

from pydantic import BaseModel, ConfigDict, Field

from agent.checklist.measure import MeasureContext, MeasureOutcome, measure
from agent.checks.registry import load_all
from agent.launch.soak_watch import FABRIC, LINKS, HardwareWatch, watch_plans
from agent.measure.all_reduce import INSTALL, SIMULATED_S
from agent.measure.attend import Attendance, Attendant
from agent.measure.bandwidth import Expectation, judge_result, limit_s
from agent.measure.free_gpus import HINT
from agent.measure.outcome import NOT_MEASURED, Evidence, unknown
from agent.measure.place import NoPlace, find_place
from agent.measure.run_worker import Refused, run_worker
from agent.model import Verdict
from agent.node_profile import Engine, Group, NodeProfile

NAME = "nccl.all_reduce_nodes"
#: Packets out of order are told; errors of links and ports fail the test.
_WATCHED = (*LINKS, *FABRIC, "roce.oos", "gpu.lost", "xid")
_NODE = re.compile(r"\bnode (\d+)\b")


class AllReduceNodes(BaseModel):
    """Parameters of nccl.all_reduce_nodes."""

    model_config = ConfigDict(extra="forbid")

    size_mib: int = Field(1024, description="Size of the message in MiB", ge=1, le=16_384)
    iterations: int = Field(20, description="All-reduces that are timed", ge=1, le=10_000)
    min_bus_gb_s: float | None = Field(
        None, description="Least bus bandwidth in GB/s; null = the profile's nccl.min_nodes_bus_gb_s", gt=0
    )
    engine: str | None = Field(None, description="Engine whose group it is; null = the first with a group")
    rendezvous_s: float = Field(600.0, description="Seconds to wait for the other nodes", gt=0, le=7200)


@measure(NAME, "NCCL all-reduce across nodes", AllReduceNodes)
def all_reduce_nodes(context: MeasureContext, params: AllReduceNodes) -> MeasureOutcome:
    """Meet the other nodes and measure; SKIP on a node that belongs to no group."""
    profile = context.profile.profile
    found = _grouped(profile, params.engine)
    if found is None:
        return MeasureOutcome(Verdict.SKIP, "the profile has no engine that spans several nodes")
    evidence = Evidence()
    try:
        told = asyncio.run(_measure(context, params, *found, evidence))
    except Refused as cause:
        return unknown(f"{cause}: {NOT_MEASURED}", HINT)
    except NoPlace as cause:
        return unknown(f"{NOT_MEASURED}: {cause}", INSTALL)
    late = "Start the same checklist on every node of the group, within the time they wait for each other."
    return evidence.outcome(told, late)


def _grouped(profile: NodeProfile, wanted: str | None) -> tuple[str, Engine, Group] | None:
    for name, engine in profile.engines.items():
        if engine.group is not None and engine.gpus and wanted in (None, name):
            return name, engine, engine.group
    return None


async def _measure(
    context: MeasureContext,
    params: AllReduceNodes,
    name: str,
    engine: Engine,
    group: Group,
    evidence: Evidence,
) -> str:
    profile, sources = context.profile.profile, context.sources
    plans = watch_plans(profile, load_all(), _WATCHED)
    watch = HardwareWatch(profile, engine.gpus, sources, plans, params.rendezvous_s)
    names = [member.node for member in group.members]
    head = group.members[0]
    seconds = limit_s(params.iterations) + params.rendezvous_s
    order = {
        "gpus": len(engine.gpus), "size_mib": params.size_mib, "iterations": params.iterations,
        "backend": "nccl", "limit_s": seconds, "rendezvous_s": params.rendezvous_s, "node": group.rank,
        "nodes": len(names), "host": head.data_address or head.address, "port": group.master_port,
    }  # fmt: skip
    place = None
    if not sources.simulated:
        place = find_place(profile, sources, engine.gpus, "all_reduce.py", order, name)
    context.say(f"all-reduce of {params.size_mib} MiB over {', '.join(names)}: waiting for each other")
    attendant = Attendant(context, watch)
    found = await run_worker(context, engine.gpus, place, attendant, SIMULATED_S if place is None else None)
    evidence.add_watch(watch, (*LINKS, *FABRIC), ended=not found.cancelled and not found.problem)
    expected = Expectation.of(
        params.min_bus_gb_s, profile.nccl.min_nodes_bus_gb_s, params.size_mib, nodes=True
    )
    return judge_result(evidence, _named(found, names), "nodes", expected, sources, NAME)


def _named(found: Attendance, names: list[str]) -> Attendance:
    """The worker knows nodes by number; people by name."""

    def name(match: re.Match[str]) -> str:
        rank = int(match[1])
        return f"node {names[rank]}" if rank < len(names) else match[0]

    found.problem = _NODE.sub(name, found.problem)
    return found
