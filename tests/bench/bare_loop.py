"""Seconds of each pass of a bare loop over NVML groups and files, given as JSON on standard input.

Before any group come the versions and who the GPUs are, as in a pass.

A program of its own, because the loader looks for the SIMULATED library only when a process starts.
"""

from __future__ import annotations

import json
import os
import sys
import time
from functools import partial

import pynvml as nv

from agent.sources.nvml_child import GROUPS, P2P_NVLINK, P2P_READ, identity, system


def peers(everybody: list[object], handle: object) -> None:
    """How one GPU reaches every other."""
    for other in everybody:
        if other is not handle:
            nv.nvmlDeviceGetP2PStatus(handle, other, P2P_NVLINK)
            nv.nvmlDeviceGetP2PStatus(handle, other, P2P_READ)
            nv.nvmlDeviceGetTopologyCommonAncestor(handle, other)


def main() -> None:
    """Print the seconds of each pass as JSON."""
    given = json.load(sys.stdin)
    nv.nvmlInit()
    handles = {}
    for index in range(nv.nvmlDeviceGetCount()):
        handle = nv.nvmlDeviceGetHandleByIndex(index)
        handles[nv.nvmlDeviceGetUUID(handle)] = handle
    groups = {**GROUPS, "peers": partial(peers, list(handles.values()))}
    calls = [(groups[group], handles[uuid]) for uuid, group in given["groups"]]
    files = [os.open(path, os.O_RDONLY) for path in given["files"]]
    times_s = []
    for number in range(given["passes"] + 1):
        began_s = time.perf_counter()
        if calls:
            system()
            for index in range(len(handles)):
                identity(index)
        for read, handle in calls:
            read(handle)
        for descriptor in files:
            os.pread(descriptor, 4096, 0)
        if number:  # the first call of a family is slower on real hardware too
            times_s.append(time.perf_counter() - began_s)
    print(json.dumps(times_s))


if __name__ == "__main__":
    main()
