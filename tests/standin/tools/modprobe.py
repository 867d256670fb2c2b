#!/usr/bin/python3 -ES
"""Stand-in for modprobe: loads and removes modules, those of standin_table.py. SIMULATED."""

from __future__ import annotations

import shutil

import standin
import standin_boot
import standin_table as table
from standin import Machine, Refused


def work(words: list[str], machine: Machine) -> str:
    names = [word.replace("-", "_") for word in words if not word.startswith("-")]
    removes = "-r" in words or "--remove" in words
    for name in names[: None if removes or "-a" in words else 1]:
        if name not in table.KNOWN:
            kernel = table.KERNEL.partition("vmlinuz-")[2].partition(" ")[0]
            raise Refused(f"modprobe: FATAL: Module {name} not found in directory /lib/modules/{kernel}", 1)
        if machine.lie:
            continue
        if removes:
            shutil.rmtree(standin.sysfs(f"module/{name}"), ignore_errors=True)
        else:
            standin_boot.load_module(name)
    return ""


if __name__ == "__main__":
    standin.main("modprobe", work)
