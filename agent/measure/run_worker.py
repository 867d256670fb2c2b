"""A measured test with a worker: GPUs free, a look before, the worker attended and ended, GPUs given back."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from agent.checklist.measure import MeasureContext
from agent.errors import SourceError
from agent.launch.spare_thread import in_spare_thread
from agent.measure.attend import Attendance, Attendant
from agent.measure.free_gpus import given_back, in_use
from agent.measure.place import Place
from agent.sources.workload import Workload

#: A process that survives SIGKILL for so long is stuck in the kernel.
STOP_S = 20.0
_ASK_S = 10.0


class Refused(Exception):
    """Nothing was started; the text says why."""


async def run_worker(
    context: MeasureContext,
    gpus: Collection[int],
    place: Place | None,
    attendant: Attendant,
    duration_s: float | None,
) -> Attendance:
    """Run a worker and look on; without a place (a replayed node) only look on. Raises Refused.

    Whatever happens, nothing of the worker is left; what cannot be ended is the attendance's problem.
    """
    await _refuse_in_use(context, gpus)
    late = await attendant.begin()
    if late:
        raise Refused(late)
    if place is None:
        return await attendant.attend(None, duration_s)
    try:
        workload = context.sources.workloads.start(place.argv, place.env, place.working_dir)
    except SourceError as cause:
        raise Refused(str(cause)) from cause
    left = ""
    try:
        found = await attendant.attend(workload, duration_s)
    finally:
        left = await _end(workload)
    left = left or await given_back(context.sources, context.profile.profile, gpus)
    return found if not left else replace(found, problem=f"after the test {left}")


async def _refuse_in_use(context: MeasureContext, gpus: Collection[int]) -> None:
    """Raise Refused where somebody uses the GPUs or that cannot be known."""
    sources, profile = context.sources, context.profile.profile
    try:
        held = await in_spare_thread(lambda: in_use(sources, profile, gpus), _ASK_S)
    except (SourceError, TimeoutError) as cause:
        why = str(cause) or f"no answer within {_ASK_S:g} s"
        raise Refused(f"whether the GPUs are free is not known: {why}") from cause
    if held:
        raise Refused(held)


async def _end(workload: Workload) -> str:
    """End it; what is left of it, in words."""
    try:
        survivors = await in_spare_thread(lambda: workload.stop(STOP_S), STOP_S + _ASK_S)
    except TimeoutError:
        return "it is not known whether the worker has ended: /proc gives no answer"
    return f"SIGKILL does not end {', '.join(survivors)}; reboot the node" if survivors else ""
