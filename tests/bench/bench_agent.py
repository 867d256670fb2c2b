"""A program: `nodegate run` on the benchmark's node: files below ROOT, NVML by the test library.

python bench_agent.py ROOT run --profile FILE --state-dir DIR --run-dir DIR
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import bench_node

import agent.commands.run as run_module
from agent.cli import main
from agent.sources.nvml import NvmlProcess


@contextmanager
def _open_sources(*_: Any, **__: Any) -> Iterator[SimpleNamespace]:
    """What the command opens instead of this machine's sources."""
    nvml = NvmlProcess()
    try:
        yield SimpleNamespace(sources=bench_node.sources_on(ROOT, nvml))
    finally:
        nvml.close()


if __name__ == "__main__":
    ROOT = Path(sys.argv.pop(1))
    run_module.open_sources = _open_sources  # type: ignore[assignment]
    main()
