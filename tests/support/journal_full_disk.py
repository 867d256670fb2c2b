"""A journal on a disk that fills up: the size limit of files (RLIMIT_FSIZE) makes real writes fail."""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path

from agent.journal import Journal

LIMIT_S = 60.0


def main() -> None:
    """`journal_full_disk.py PATH`: prints what it saw as JSON."""
    path = Path(sys.argv[1])
    journal = Journal.open(path, retry_s=0.02)
    for number in range(10):
        journal.record_mark("n", str(number))
    if not journal.flush(LIMIT_S):
        raise SystemExit("the journal does not work before the disk is full")
    wal = path.with_name(path.name + "-wal")
    resource.setrlimit(resource.RLIMIT_FSIZE, (wal.stat().st_size, resource.RLIM_INFINITY))
    for number in range(10, 60):
        journal.record_mark("n", f"{number} " + "x" * 5000)
    deadline_s = time.monotonic() + LIMIT_S
    while journal.healthy and time.monotonic() < deadline_s:
        time.sleep(0.005)
    seen = {"healthy_while_full": journal.healthy, "flushed": journal.flush(0.2)}
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    seen["ok"] = _works_again(journal)
    seen["kept"] = len([e for e in journal.history(0.0) if e.get("mark") == "n"])
    sys.stdout.write(json.dumps(seen, sort_keys=True))


def _works_again(journal: Journal) -> bool:
    """Whether the journal recovers by itself."""
    deadline_s = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline_s:
        if journal.healthy and journal.flush(LIMIT_S):
            return True
        time.sleep(0.005)
    return False


if __name__ == "__main__":
    main()
