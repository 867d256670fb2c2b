"""What a restarted agent makes of a unit that it finds: which launch it is, and what else belongs to it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from pathlib import Path

from agent.launch.process_tree import Key
from agent.launch.run_record import RunRecord
from agent.launch.spare_thread import in_spare_thread
from agent.launch.unit_plan import Receipt
from agent.sources.cgroup import group_pids
from agent.sources.processes import ProcessStat, marked
from agent.sources.systemd import UnitNow

logger = logging.getLogger("nodegate.launch")

_MARKS_DEADLINE_S = 5.0


def unit_name(engine: str) -> str:
    """The unit of an engine."""
    return f"nodegate-engine@{engine}.service"


def proof(
    unit: UnitNow, record: RunRecord | None, receipt: Receipt | None, engine: str, boot_id: str
) -> RunRecord | None:
    """Which launch this run of the unit is: by the agent's record, else by the starter's receipt (pure).

    None when neither is about this run: such an engine is not taken over.
    """
    if unit.active_state != "active" or not unit.invocation_id:
        return None
    if record is not None and record.invocation_id == unit.invocation_id:
        return record
    if receipt is None or receipt.error or receipt.invocation_id != unit.invocation_id:
        return None
    if record is not None and record.token == receipt.token:
        return record
    return RunRecord(
        engine=engine,
        boot_id=boot_id,
        token=receipt.token,
        launch_hash=receipt.launch_hash,
        started_mono_s=receipt.started_mono_s,
    )


def group_table(
    group: Path | None, known: Collection[Key], look: Callable[[int], ProcessStat | None]
) -> list[ProcessStat]:
    """The processes in a control group, and those of the known ones that live on outside of it."""
    pids = set(group_pids(group)) if group is not None else set()
    stats = [stat for pid in sorted(pids | {pid for pid, _ in known}) if (stat := look(pid)) is not None]
    return [stat for stat in stats if stat.pid in pids or stat.key in known]


async def marked_keys(engine: str, mark: str) -> list[Key]:
    """Processes that carry the engine's mark, wherever they are; none when that cannot be read in time."""
    try:
        found = await in_spare_thread(lambda: marked(mark), _MARKS_DEADLINE_S)
    except TimeoutError:  # a process of anybody that is stuck in the kernel; the control group counts
        logger.warning("engine %s: the marks of processes could not be read in time", engine)
        return []
    return [stat.key for stat in found]
