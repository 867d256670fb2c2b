"""The end of a life: grace, SIGTERM, SIGKILL, then proof that the GPUs are free."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from agent.launch.gpu_release import Release, gpu_release
from agent.launch.supervisor import EngineRun, Supervisor
from agent.sources import Sources


@dataclass(frozen=True, slots=True)
class LifeEnd:
    """How a life ends: `grace_s` for load balancers to notice, then `term_s` between SIGTERM and SIGKILL."""

    term_s: float
    grace_s: float = 0.0


@dataclass(frozen=True, slots=True)
class CleanUp:
    """What came of it; `stuck`: something of the engine is still there and only a person can help."""

    stuck: bool = False
    note: str = ""


async def clean_up(
    supervisor: Supervisor,
    run: EngineRun,
    end: LifeEnd,
    sources: Sources,
    gpu_uuids: Sequence[str],
    broken: asyncio.Event,
) -> CleanUp:
    """End the engine; the grace is cut short when it breaks meanwhile."""
    if end.grace_s > 0:
        try:
            async with asyncio.timeout(end.grace_s):
                await broken.wait()
        except TimeoutError:
            pass  # the grace is over, which is the usual end of it
    survivors = await supervisor.stop(run, end.term_s)
    if survivors:
        named = ", ".join(f"{stat.pid} ({stat.comm}, state {stat.state})" for stat in survivors)
        return CleanUp(True, f"SIGKILL does not end {named}; reboot the node")
    if sources.simulated or not gpu_uuids:  # a replayed GPU knows nothing of this machine's processes
        return CleanUp(note=run.end_note)
    release, text = await gpu_release(sources.nvml, gpu_uuids, {pid for pid, _ in run.tree.known})
    if release is Release.HELD:
        return CleanUp(True, f"{text}; reset the GPUs or reboot the node")
    return CleanUp(note="; ".join(filter(None, (run.end_note, text))))
