#!/usr/bin/python3 -ES
"""Stand-in for swapoff: /proc/swaps of the stand-in is a file. SIMULATED."""

from __future__ import annotations

import standin
from standin import Machine


def work(words: list[str], machine: Machine) -> str:
    path = standin.BASE / "proc/swaps"
    head, *rows = path.read_text(encoding="utf-8").splitlines()
    every = any(word in ("-a", "--all") for word in words)
    machine.poke(path, "\n".join([head, *(row for row in rows if not every and row.split()[0] not in words)]))
    return ""


if __name__ == "__main__":
    standin.main("swapoff", work)
