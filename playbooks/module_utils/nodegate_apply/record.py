"""The record of a look at settings: evidence for checks of what only root can read."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import Any

from .host import Host, HostError
from .setting import Report

FOLDER = "/run/nodegate-apply"
_BOOT_ID = "/proc/sys/kernel/random/boot_id"


def record_text(host: Host, name: str, reports: Iterable[Report]) -> str:
    """JSON of what was read: of which boot, when, and every setting with current, staged and wanted value."""
    boot_id = host.read(_BOOT_ID)
    if not boot_id:
        raise HostError(f"{_BOOT_ID}: cannot be read; without it a record proves nothing")
    settings: list[dict[str, Any]] = []
    problems: list[str] = []
    for report in reports:
        settings += report.records
        problems += report.problems
    return json.dumps(
        {
            "schema": 1,
            "name": name,
            "boot_id": boot_id.strip(),
            "taken_mono_s": round(time.clock_gettime(time.CLOCK_BOOTTIME), 3),
            "taken_s": round(time.time(), 3),
            "settings": settings,
            "problems": problems,
        },
        indent=1,
    ) + "\n"  # fmt: skip


def write_record(host: Host, name: str, reports: Iterable[Report], path: str = "") -> None:
    """Leave the record where checks look for it (/run, so that no other boot's is ever found)."""
    host.write(path or f"{FOLDER}/{name}.json", record_text(host, name, reports))
