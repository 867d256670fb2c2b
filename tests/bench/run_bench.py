"""`make bench`: how nodegate compares with the least that could do the same, measured in the same run.

Numbers of one machine on one day mean little; their ratio means more. Nothing here fails for being slow.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import bench_nvml
import bench_readyz

import agent
from agent.console import Out

NODE = Path(agent.__file__).parent / "demo_nodes" / "h200-roce"


def main() -> None:
    """Measure and print."""
    out = Out()
    out.line(
        "NVML is SIMULATED (a library of the tests behind the real bindings); times are the best of some runs"
    )
    ratios = [*bench_nvml.measure(NODE), *bench_readyz.measure()]
    out.table(("measured", "takes", "against", "takes", "ratio"), [ratio.row() for ratio in ratios])


if __name__ == "__main__":
    main()
