"""all_reduce_perf of nccl-tests, where no engine's environment can measure: one process with a thread a GPU.

Its table has, from the left, size, elements, type, operation, root, then time in us, algorithm and bus
bandwidth in GB/s and the number of wrong results, once out of place and once in place.
https://github.com/NVIDIA/nccl-tests
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence

from agent.errors import LaunchError
from agent.launch.gpu_pins import gpu_env, slot_gpus
from agent.launch.nccl_env import topology_env
from agent.measure.attend import Attendance
from agent.measure.place import Place
from agent.node_profile import Engine, NodeProfile
from agent.sources import Sources

_PROGRAM = "all_reduce_perf"
_COLUMNS = 13


def nccl_tests_place(
    profile: NodeProfile, sources: Sources, gpus: Sequence[int], size_mib: int, iterations: int
) -> Place | None:
    """How it is started; None where it is not installed or the GPUs cannot be named."""
    program = shutil.which(_PROGRAM)
    if program is None:
        return None
    stand_in = Engine(gpus=list(gpus), port=1)
    try:
        env = gpu_env(profile, _PROGRAM, stand_in, slot_gpus(profile, stand_in, sources.nvml))
    except LaunchError:
        return None
    kept = {key: os.environ[key] for key in ("PATH", "HOME", "LD_LIBRARY_PATH") if key in os.environ}
    size = f"{size_mib}M"
    argv = (program, "-b", size, "-e", size, "-n", str(iterations), "-g", str(len(gpus)), "-c", "1")
    return Place(_PROGRAM, argv, {**kept, **env, **topology_env(profile.topology)}, None)


def read_nccl_tests(found: Attendance, world: int) -> None:
    """Turn its table into a worker's result; without a table there is none."""
    rows = [words for line in found.reports.other if (words := line.split()) and _is_row(words)]
    if not rows or found.status != 0 or found.cancelled:
        return
    row = rows[-1]
    found.problem = ""
    found.reports.done = {
        "done": True, "backend": _PROGRAM, "world": world, "bytes": int(row[0]),
        "bus_gb_s": min(float(row[7]), float(row[11])), "right": row[8] == "0" and row[12] == "0",
    }  # fmt: skip


def _is_row(words: list[str]) -> bool:
    """Whether a line is one of its table."""
    if len(words) != _COLUMNS or not words[0].isdecimal():
        return False
    try:
        return all(float(words[at]) >= 0 for at in (5, 6, 7, 9, 10, 11))
    except ValueError:
        return False
