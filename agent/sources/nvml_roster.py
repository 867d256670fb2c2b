"""Who the GPUs are: what NVML enumerates now, merged with what it enumerated before.

A GPU that falls off the bus may answer nothing but an error, or vanish from the enumeration of a fresh NVML
process. It must keep its UUID and its place in PCI bus order, or its neighbour's slot would take the blame.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agent.sources.gpu_reading import GpuIdentity

LOST = "GPU_IS_LOST"


def pci_address(bus_id: str) -> str:
    """NVML's bus id (`00000000:19:00.0`) as the kernel writes the address (`0000:19:00.0`)."""
    domain, rest = bus_id.lower().split(":", 1)
    return f"{int(domain, 16):04x}:{rest}"


def _address_key(gpu: GpuIdentity) -> tuple[int, str]:
    domain, rest = (gpu.pci_bus_id or "0:").split(":", 1)
    return int(domain, 16), rest


class Roster:
    """Identities of every GPU seen since the agent started. Not thread-safe: its owner holds a lock."""

    def __init__(self) -> None:
        """Start knowing no GPU."""
        self._known: dict[str, GpuIdentity] = {}
        self._uuids: tuple[str | None, ...] = ()

    def get(self, uuid: str) -> GpuIdentity | None:
        """The GPU with this UUID as last seen in good order, or None."""
        return self._known.get(uuid)

    def at(self, index: int, count: int) -> GpuIdentity | None:
        """Who has this NVML index, if NVML still enumerates as many GPUs as when it was last asked."""
        if count != len(self._uuids):
            return None
        return self._known.get(self._uuids[index] or "")

    def merge(self, seen: Sequence[GpuIdentity]) -> tuple[GpuIdentity, ...]:
        """Every GPU in PCI bus order: those enumerated now, and with an error those that were before."""
        named = {gpu.uuid: gpu for gpu in seen if gpu.uuid is not None}
        nameless = [gpu for gpu in seen if gpu.uuid is None]
        missing = [replace(gpu, error=LOST) for uuid, gpu in self._known.items() if uuid not in named]
        # A GPU that does not say who it is must be one of the missing ones while there are any.
        nameless = nameless[len(missing) :]
        self._uuids = tuple(gpu.uuid for gpu in seen)
        self._known |= {uuid: gpu for uuid, gpu in named.items() if gpu.error is None}
        gpus = sorted((*named.values(), *missing), key=_address_key)
        for gpu in nameless:  # NVML enumerates in PCI bus order, so the index is the best guess
            gpus.insert(min(gpu.index, len(gpus)), gpu)
        return tuple(gpus)
