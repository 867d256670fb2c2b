"""Which engine a GPU slot belongs to, and which processes are an engine's."""

from __future__ import annotations

from contextlib import suppress

from agent.errors import SourceError
from agent.model import EnginePhase
from agent.node_profile import NodeProfile
from agent.sources import Sources

#: An engine in one of these has processes of its own on its GPUs.
RUNNING = frozenset({EnginePhase.STARTING, EnginePhase.UP, EnginePhase.WARM, EnginePhase.STOPPING})
#: A chain of parents longer than this is a loop of garbled data.
_MOST_PARENTS = 32


def engine_of_slot(profile: NodeProfile, slot: int) -> str | None:
    """The engine whose GPUs include a slot."""
    return next((name for name, engine in profile.engines.items() if slot in engine.gpus), None)


def parent_of(sources: Sources, pid: int) -> int:
    """The parent of a process (/proc/PID/stat). Raises a SourceError when it has ended or is garbled."""
    # The name in parentheses may hold anything, so the fields are counted from its end.
    fields = sources.tree.text(f"proc/{pid}/stat").rpartition(")")[2].split()
    return int(fields[1]) if len(fields) > 1 and fields[1].isdigit() else 0


def belongs_to(sources: Sources, pid: int, pids: frozenset[int]) -> bool:
    """Whether a process is one of `pids` or descends from one; workers start between two looks."""
    with suppress(SourceError):
        for _ in range(_MOST_PARENTS):
            if pid in pids:
                return True
            if pid <= 1:
                return False
            pid = parent_of(sources, pid)
    return False


def process_name(sources: Sources, pid: int) -> str:
    """`python3 (4711)`; only the number when the name cannot be read."""
    with suppress(SourceError):
        return f"{sources.tree.text(f'proc/{pid}/comm')[:32]} ({pid})"
    return f"process {pid}"
