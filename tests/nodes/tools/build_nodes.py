"""Make the filled-in nodes under tests/nodes: python tests/nodes/tools/build_nodes.py [TARGET].

No machine like these was captured. What is known of each and from where is in its README.md; all else is
filled in by the modules node_*.py. READMEs and scenarios are written by hand and not touched.
"""

from __future__ import annotations

import sys
from pathlib import Path

import node_b300_engines
import node_gb10
import node_hopper
from node_writer import write

NODES = Path(__file__).parents[1]


def main(target: Path = NODES) -> None:
    """Write every node."""
    for node in (
        node_b300_engines.one_board(),
        node_b300_engines.two_boards(),
        node_hopper.h20_roce(),
        node_hopper.h200_ib(),
        node_gb10.gb10(),
    ):
        write(node, target / node.name)


if __name__ == "__main__":
    main(*(Path(argument) for argument in sys.argv[1:2]))
