#!/usr/bin/python3 -ES
"""Stand-in for modinfo: the version of the driver that is installed, which the next boot loads. SIMULATED."""

from __future__ import annotations

import standin
import standin_table as table
from standin import Machine, Refused


def work(words: list[str], machine: Machine) -> str:
    name = words[-1].replace("-", "_")
    if name not in table.VERSIONED:
        raise Refused(f"modinfo: ERROR: Module {name} not found.", 1)
    return f"{machine.own['driver_version']}\n"


if __name__ == "__main__":
    standin.main("modinfo", work)
