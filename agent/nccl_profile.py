"""The part of a node profile about NCCL: what its measured tests must reach."""

from __future__ import annotations

from pydantic import Field

from agent.profile_types import Part


class Nccl(Part):
    """What the measured tests of NCCL must reach, with messages of 256 MiB and more."""

    min_bus_gb_s: float | None = Field(
        None,
        description="Least bus bandwidth of an all-reduce in an NVLink domain, in GB/s; unset = only told",
        gt=0,
    )
    min_nodes_bus_gb_s: float | None = Field(
        None,
        description="Least bus bandwidth of an all-reduce over a group's nodes, in GB/s; unset = only told",
        gt=0,
    )
