"""Writes a journal until it is killed; prints each number once flush has acknowledged all up to it."""

from __future__ import annotations

import sys
from pathlib import Path

from agent.journal import Journal


def main() -> None:
    """`journal_victim.py PATH FIRST`: numbers from FIRST on."""
    journal = Journal.open(Path(sys.argv[1]))
    number = int(sys.argv[2])
    while True:
        for _ in range(7):
            journal.record_mark("number", str(number), boot_id="boot-a")
            journal.record_operator("drain", str(number), "test", boot_id="boot-a")
            number += 1
        if journal.flush(60.0):
            sys.stdout.write(f"{number - 1}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
