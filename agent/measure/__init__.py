"""Measured tests of a node: each module registers its own with `agent.checklist.measure.measure`."""

from __future__ import annotations

from agent.measure import all_reduce, all_reduce_nodes, engine_load, gpu_load

__all__ = ["all_reduce", "all_reduce_nodes", "engine_load", "gpu_load"]
