"""Proof that a dead engine's GPU memory is free: NVML lists none of its processes any more.

The processes' own end is no proof: on an H200 NVML showed a killed engine's memory for 0.12 s after its pid
was gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from enum import StrEnum

from agent.errors import SourceError
from agent.launch.spare_thread import in_spare_thread
from agent.sources import Nvml
from agent.sources.clock import LiveClock
from agent.sources.gpu_reading import NvmlGroup

RELEASE_DEADLINE_S = 30.0
#: NVML that does not answer is asked again for this long only: admission checks need it too and say so.
SILENCE_DEADLINE_S = 5.0
_POLL_S = 0.05
_READ_DEADLINE_S = 10.0


class Release(StrEnum):
    """What NVML says of the memory of ended processes."""

    FREE = "free"
    HELD = "held"
    UNKNOWN = "unknown"


async def gpu_release(nvml: Nvml, uuids: Sequence[str], pids: Collection[int]) -> tuple[Release, str]:
    """Wait until no GPU lists any of the processes; the outcome and what to say of it."""
    clock = LiveClock()
    started = clock.mono_s()
    while True:
        waited_s = clock.mono_s() - started
        try:
            held = await in_spare_thread(lambda: _holders(nvml, uuids, pids), _READ_DEADLINE_S)
        except (SourceError, TimeoutError) as cause:
            if waited_s >= SILENCE_DEADLINE_S:
                return Release.UNKNOWN, f"NVML cannot say whether GPU memory is free: {cause or 'no answer'}"
        else:
            if not held:
                return Release.FREE, ""
            if waited_s >= RELEASE_DEADLINE_S:
                return Release.HELD, f"NVML still lists ended processes: {held}"
        await asyncio.sleep(_POLL_S)


def _holders(nvml: Nvml, uuids: Sequence[str], pids: Collection[int]) -> str:
    """Which of the processes hold which GPU, in words; empty for none."""
    found = []
    for uuid in uuids:
        for pid in nvml.read(uuid, NvmlGroup.PROCESSES).integers("pids"):
            if pid in pids:
                found.append(f"{pid} on {uuid}")
    return ", ".join(found)
