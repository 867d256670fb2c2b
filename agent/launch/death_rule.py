"""Which process's end is a fault of the engine (pure).

- The process that was started, and any that names itself as one of vLLM's (`VLLM::EngineCore`,
`VLLM::Worker`): always. - Any other (the resource tracker, an unknown helper): when it was there at the
moment the engine became warm. Helpers
  that come and go (compilers, lscpu) are seldom there at that moment, and known ones never count.
"""

from __future__ import annotations

from collections.abc import Collection

from agent.sources.processes import ProcessStat

ENGINE_PREFIXES = ("VLLM::", "SIM::")
#: Programs that engines run for a while (compilers, linkers, hardware queries), as the kernel names them.
HELPERS = frozenset(
    ("as", "c++", "cc", "cc1", "cc1plus", "cicc", "collect2", "cudafe++", "fatbinary", "g++", "gcc", "ld")
) | frozenset(
    ("lscpu", "lspci", "ninja", "numactl", "nvcc", "nvidia-smi", "nvlink", "ptxas", "sh", "uname", "which")
)


def core_of(alive: Collection[ProcessStat]) -> frozenset[tuple[int, int]]:
    """The processes without which the engine is not whole, chosen when it becomes warm."""
    return frozenset(stat.key for stat in alive if stat.comm not in HELPERS)


def fault_of_death(dead: ProcessStat, root: tuple[int, int], core: Collection[tuple[int, int]]) -> str | None:
    """Why this end is a fault, None when it is not one; `core` is empty until the engine is warm."""
    what = f"process {dead.pid} ({dead.comm})"
    if dead.key == root:
        return f"{what}, the engine's first, ended"
    if dead.comm.startswith(ENGINE_PREFIXES):
        return f"{what} ended"
    if dead.key in core:
        return f"{what}, there since warm-up, ended"
    return None
