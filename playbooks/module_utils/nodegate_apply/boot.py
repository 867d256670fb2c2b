"""`python3 -m nodegate_apply NAME`: apply the settings of a role, or look at them, and record what is there.

Run at boot by nodegate-apply@NAME.service. A problem is one line in the journal and exit status 1.
"""

from __future__ import annotations

import argparse
import importlib
import json
import pathlib
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from .host import Host, HostError
from .record import write_record
from .setting import Report, settle

_AGAIN_AFTER_S = 5.0
Batches = Callable[[], list[list[Any]]]


def main(argv: Sequence[str] | None = None) -> int:
    """Apply or look once; until the deadline again and again while something is missing."""
    asked = _arguments(argv)
    try:
        document = _document(asked.settings, asked.name)
        host = Host(document["sys_root"])
        role = importlib.import_module(f".{asked.name}", __package__)
        deadline_s = 0.0 if asked.check else float(document["deadline_s"])
        reports = until_settled(lambda: role.batches(host, document["part"]), asked.check, deadline_s)
        if asked.record:
            write_record(host, asked.name, reports, asked.record)
    except HostError as cause:
        _say(str(cause))
        return 1
    return _told(reports, asked.check)


def until_settled(
    batches: Batches,
    check: bool,
    deadline_s: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> list[Report]:
    """Settle each batch for itself: a card that is not there keeps no other from its settings."""
    end = clock() + deadline_s
    drift: list[list[dict[str, Any]]] = []
    while True:
        reports = [settle(batch, check=check) for batch in batches()]
        drift = drift or [[] for _ in reports]
        for known, report in zip(drift, reports, strict=True):
            # What an earlier round has put right is part of what this start did.
            report.drift = [*known, *(one for one in report.drift if one not in known)]
            report.changed = bool(report.drift)
            known[:] = report.drift
        if not any(report.problems for report in reports) or clock() + _AGAIN_AFTER_S > end:
            return reports
        sleep(_AGAIN_AFTER_S)


def _told(reports: list[Report], check: bool) -> int:
    """A line for each problem and each difference that is left; what was set is counted. The exit status.

    At a boot nearly everything is set: a line for each would hide the one that failed.
    """
    bad, done = False, 0
    for report in reports:
        for line in report.problems:
            _say(line)
        left = check or bool(report.problems)
        for one in report.drift if left else []:
            _say(f"{one['name']} ({one['field']}): is {one['before']!r}, wanted {one['after']!r}")
        for line in report.pending:
            _say(f"{line}: takes effect at the next reboot")
        done += 0 if left else len(report.drift)
        bad = bad or bool(report.problems) or (check and bool(report.drift))
    if done:
        _say(f"{done} settings were set and read back")
    return 1 if bad else 0


def _document(path: str, name: str) -> dict[str, Any]:
    try:
        document = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    except OSError as cause:
        raise HostError(f"{path}: cannot be read: {cause.strerror}; run the role {name} again") from cause
    except ValueError as cause:
        raise HostError(f"{path}: is no JSON: {cause}; run the role {name} again") from cause
    if not isinstance(document, dict) or {"part", "sys_root", "deadline_s"} - set(document):
        raise HostError(f"{path}: is not what the role {name} writes; run it again")
    if document.get("name") != name:
        raise HostError(f"{path}: holds settings of {document.get('name')}, not {name}; run the role again")
    return document


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="nodegate_apply", description="Apply settings of a node.")
    parser.add_argument("name", choices=("gpu", "kernel", "nic"))
    parser.add_argument("--settings", required=True, metavar="FILE")
    parser.add_argument("--check", action="store_true", help="look only")
    parser.add_argument("--record", metavar="FILE", help="where to leave what was read")
    return parser.parse_args(argv)


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
