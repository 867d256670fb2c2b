"""A topology for people: one row for each GPU and RDMA card."""

from __future__ import annotations

from dataclasses import dataclass

from agent.topo.model import Placed, Stamp, System, placed


@dataclass(frozen=True, slots=True)
class Row:
    """One device and its place."""

    what: str
    busid: str
    numa_node: int
    above: tuple[str, ...]
    link_speed: str
    link_width: int
    nvlinks: int
    uuid: str | None

    def cells(self) -> list[str]:
        """A table's row."""
        lanes = f" x{self.link_width}" if self.link_width else ""
        switches = " > ".join(self.above) or "no switch"
        nvlinks = str(self.nvlinks or "")
        link = f"{self.link_speed}{lanes}".strip()
        return [self.what, self.busid, str(self.numa_node), switches, link, nvlinks, self.uuid or ""]

    def to_json(self) -> dict[str, object]:
        """A JSON object."""
        return {
            "what": self.what,
            "pci_bus_id": self.busid,
            "numa_node": self.numa_node,
            "behind": list(self.above),
            "link_speed": self.link_speed,
            "link_width": self.link_width,
            "nvlinks": self.nvlinks,
            "uuid": self.uuid,
        }


def rows(system: System) -> list[Row]:
    """Every device that a name is known of, GPUs first."""
    here = {each.pci.busid: each for each in placed(system)}
    return [_row(stamp, here[stamp.busid]) for stamp in system.stamps if stamp.busid in here]


def _row(stamp: Stamp, each: Placed) -> Row:
    pci = each.pci
    nvlinks = sum(nvlink.count for gpu in pci.gpus for nvlink in gpu.nvlinks)
    speed, width = pci.link_speed or "", pci.link_width or 0
    return Row(stamp.subject, pci.busid, each.cpu.numaid, each.above, speed, width, nvlinks, stamp.uuid)
