"""The table of the load-balancer scenes at the end of the run, and in bench-results/lb.json."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

from lb_table import ROWS, as_json, table

RESULTS = Path(__file__).parents[2] / "bench-results" / "lb.json"


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
