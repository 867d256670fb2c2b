"""Seconds that one pass over all groups of all GPUs takes in a bare loop of the NVML calls.

A program of its own, because the loader looks for the SIMULATED library only when a process starts.
"""

from __future__ import annotations

import json
import sys
import time

import pynvml as nv

from agent.sources.nvml_child import GROUPS, reach


def one_pass(handles: list[object]) -> None:
    """Read everything once."""
    for handle in handles:
        for read in GROUPS.values():
            read(handle)
        for other in handles:
            if other is not handle:
                reach(handle, other)


def main() -> None:
    """Print the seconds of each of argv[1] passes as JSON."""
    nv.nvmlInit()
    handles = [nv.nvmlDeviceGetHandleByIndex(index) for index in range(nv.nvmlDeviceGetCount())]
    one_pass(handles)  # the first call of a family is slower on real hardware too
    times_s = []
    for _ in range(int(sys.argv[1])):
        began_s = time.perf_counter()
        one_pass(handles)
        times_s.append(time.perf_counter() - began_s)
    print(json.dumps(times_s))


if __name__ == "__main__":
    main()
