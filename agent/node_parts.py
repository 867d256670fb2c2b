"""Parts of a node profile about nodegate's own work: supervision, topology file, enforced gate."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from agent.profile_types import Part, PathText


class Supervision(StrEnum):
    """Who runs the engines' processes for the agent."""

    AUTO = "auto"
    SYSTEMD = "systemd"
    PROCESS = "process"


class Topology(Part):
    """The NCCL topology file and what the node's topology must be."""

    nccl_file: PathText | None = Field(
        None, description="NCCL topology file that engines are given (NCCL_TOPO_FILE); unset = none"
    )


class Enforce(Part):
    """The enforced gate: the kernel resets new outside connections to an engine whose gate is closed."""

    enabled: bool = Field(
        False, description="Engines' ports are open to others only while their gate is open"
    )
    timeout_s: float = Field(
        10.0, description="Seconds after which an unrenewed permission ends by itself", gt=1, le=3600
    )
