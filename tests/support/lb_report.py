"""The table of the load-balancer scenes at the end of a run, and in bench-results/lb.json.

Scenes may run in several workers of xdist: each gives its rows to the process that prints.
"""

from __future__ import annotations

import os
import platform
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from lb_table import ROWS, Row, as_json, table

RESULTS = Path(__file__).parents[2] / "bench-results" / "lb.json"
_KEY = "load_balancer_rows"


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker hands its rows over."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[_KEY] = [asdict(row) for row in ROWS]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A worker has ended: take its rows."""
    ROWS.extend(Row(**row) for row in getattr(node, "workeroutput", {}).get(_KEY, ()))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print it, whether the scenes held or not."""
    if not ROWS:
        return
    terminalreporter.section("load balancers: what was lost, and when it was seen (SIMULATED nodes)")
    for line in table():
        terminalreporter.write_line(line)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(as_json(machine=platform.platform(), cpus=os.cpu_count(), simulated=True))
    terminalreporter.write_line(f"as JSON: {RESULTS}")
