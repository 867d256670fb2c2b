"""A topology file against the machine and against what the profile expects, in one answer."""

from __future__ import annotations

from agent.node_profile import NodeProfile
from agent.sources import Sources
from agent.topo.compare import Difference, compare
from agent.topo.machine import read_machine
from agent.topo.model import System, placed
from agent.topo.read_file import parse


def against_machine(sources: Sources, profile: NodeProfile, text: str, file: str) -> list[Difference]:
    """What is wrong in a file for this machine.

    Raises ConfigError where NCCL could not read the file, SourceError where the machine cannot be read.
    """
    system = parse(text, file)
    return compare(read_machine(sources, profile, also=bus_ids(system)), system)


def bus_ids(system: System) -> list[str]:
    """Every PCI function of a topology."""
    return [each.pci.busid for each in placed(system)]
