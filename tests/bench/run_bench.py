"""`make bench`: how nodegate compares with the least that could do the same, measured in the same run.

Numbers of one machine on one day mean little; their ratio means more. Nothing here fails for being slow.
The table is printed and written to bench-results/bench.json.
"""

from __future__ import annotations

import json
import platform
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import bench_daemon
import bench_fleet
import bench_node
import bench_pass
import bench_provision
from nvml_lib import WARM_LATENCIES_US, build_library

from agent import __version__
from agent.console import Out

RESULTS = Path(__file__).parents[2] / "bench-results" / "bench.json"


def main() -> None:
    """Measure, print and write."""
    out = Out()
    out.line(
        "The node is SIMULATED: files on tmpfs, NVML by a library of the tests behind the real bindings, "
        "with the times of warm calls on an idle H200. Times are the best of some runs."
    )
    with bench_node.files_on_tmpfs() as root, tempfile.TemporaryDirectory(prefix="nodegate-bench-") as name:
        folder = Path(name)
        library = build_library(folder)
        file = bench_node.nvml_file(folder / "nvml", WARM_LATENCIES_US)
        ratios = bench_pass.measure(root, file, library)
        more, figures = bench_daemon.measure(root, folder, file.env(library))
        fleet, seconds = bench_fleet.measure(folder)
    against = bench_provision.reason_against()
    if against is not None:
        out.line(f"not measured: {against}")
    second = bench_provision.measure() if against is None else []
    lines = [*ratios, *more, *fleet, *second, *figures, *seconds]
    out.table(("measured", "takes", "against", "takes", "ratio", "goal"), [line.row() for line in lines])
    RESULTS.parent.mkdir(exist_ok=True)
    about = {"schema": 1, "version": __version__, "machine": platform.platform(), "simulated": True}
    RESULTS.write_text(json.dumps({**about, "lines": [line.as_json() for line in lines]}, indent=1) + "\n")
    out.line(f"as JSON: {RESULTS}")


if __name__ == "__main__":
    main()
