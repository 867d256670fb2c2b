"""The process that waits for NVML events; nvml_events.py starts it and kills it when a call hangs.

It says one JSON object a line: which GPU it is about to touch, that it waits, that something happened, that
nothing did for a while, or what NVML refused, and ends when its standard input does. Arguments: the library
to load ("" for the usual one), how often to say at least that nothing happened, in seconds, and the NVML
indexes of GPUs that it must not touch.
Event sets: https://docs.nvidia.com/deploy/nvml-api/group__nvmlEvents.html
"""

from __future__ import annotations

import ctypes
import json
import signal
import sys
import time
from typing import Any

import pynvml as nv

from agent.sources.nvml_child_calls import demand
from agent.sources.nvml_child_loop import Refused, claim_stdout, follow_parent, write_all

#: nvmlEventType*: Xid and double-bit ECC errors, which every driver has.
CLASSIC = 0x8 | 0x2
#: Also retired memory and its failure, fatal poison, GPU unavailable, another recovery action.
WANTED = CLASSIC | 0x400 | 0x800 | 0x2000 | 0x4000 | 0x8000
#: Events come in bursts: what follows one within this time is told together.
CALM_S = 0.2


class Speaker:
    """Says objects on what was standard output."""

    def __init__(self) -> None:
        self._to = claim_stdout()

    def __call__(self, what: str, **more: Any) -> None:
        """One object on one line."""
        write_all(self._to, json.dumps({"say": what, **more}).encode() + b"\n")


def register(say: Speaker, skip: set[int]) -> Any:
    """An event set that all GPUs take part in which have events; Refused when none has."""
    event_set = demand("nvmlEventSetCreate")
    refusals, registered = set(), 0
    for index in range(demand("nvmlDeviceGetCount")):
        if index in skip:
            continue
        say("touch", gpu=index)
        try:
            _register_one(demand("nvmlDeviceGetHandleByIndex", index), event_set)
            registered += 1
        except Refused as no:  # this GPU has no events, or is lost: the others may still have some
            refusals.add(no.name)
            say("refused", gpu=index, name=no.name)
    if not registered:
        raise Refused(refusals.pop() if len(refusals) == 1 else "NO_EVENTS")
    return event_set


def _register_one(handle: Any, event_set: Any) -> None:
    types = demand("nvmlDeviceGetSupportedEventTypes", handle) & WANTED
    if not types:
        raise Refused("NOT_SUPPORTED")
    try:
        demand("nvmlDeviceRegisterEvents", handle, types, event_set)
    except Refused:
        if not types & CLASSIC or types == types & CLASSIC:
            raise
        demand("nvmlDeviceRegisterEvents", handle, types & CLASSIC, event_set)


def happened(event_set: Any, wait_s: float) -> bool:
    """Whether an event came within this time."""
    try:
        demand("nvmlEventSetWait_v2", event_set, round(wait_s * 1000))
    except Refused as no:
        if no.name == "TIMEOUT":
            return False
        raise
    return True


def follow(say: Speaker, event_set: Any, beat_s: float) -> None:
    """Tell of events until NVML refuses."""
    while True:
        if not happened(event_set, beat_s):
            say("beat")
            continue
        more = True
        while more:
            say("event")
            time.sleep(CALM_S)
            more = False
            while happened(event_set, 0.0):
                more = True


def main(library: str, beat_s: str, *skip: str) -> None:
    """Register and follow."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C at a terminal is for the parent alone
    say = Speaker()
    follow_parent()
    try:
        if library:
            nv.nvmlLib = ctypes.CDLL(library)
        demand("nvmlInit")
        event_set = register(say, {int(index) for index in skip})
        say("wait")
        follow(say, event_set, float(beat_s))
    except OSError:
        say("error", name="LIBRARY_NOT_FOUND")
    except Refused as no:
        say("error", name=no.name)


if __name__ == "__main__":
    main(*sys.argv[1:])
