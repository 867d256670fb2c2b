"""Whether GPUs are free for a measured test: none is run beside an engine that serves, or over its memory."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from agent.checks.engine_slots import process_name
from agent.checks.gpus import read, slots
from agent.errors import SourceError
from agent.node_profile import NodeProfile
from agent.sources import Sources
from agent.sources.gpu_reading import NvmlGroup

HINT = "Stop what uses the GPUs (nodegate maintenance enter stops the engines), then run this again."
#: NVML shows memory of a process for some tenths of a second after the process has gone.
POLL_S, _LOOKS = 0.2, 50


def in_use(sources: Sources, profile: NodeProfile, gpus: Collection[int]) -> str:
    """Who uses these GPUs, in words; empty when nobody does. Raises SourceError: it cannot be known."""
    told = []
    for slot in slots(sources, profile):
        if slot.number in gpus:
            pids = read(sources, slot, NvmlGroup.PROCESSES).integers("pids")
            told += [f"{slot.subject} is in use by {process_name(sources, pid)}" for pid in pids[:1]]
    return ", ".join(told)


async def given_back(sources: Sources, profile: NodeProfile, gpus: Collection[int]) -> str:
    """Wait until nothing uses the GPUs any more; who still does after a while, empty for nobody."""
    held = ""
    for _ in range(_LOOKS):
        try:
            held = in_use(sources, profile, gpus)
        except SourceError as cause:
            held = f"whether the GPUs are free is not known: {cause}"
        if not held:
            break
        await asyncio.sleep(POLL_S)
    return held
