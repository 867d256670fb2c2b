"""Which GPUs an engine gets, as full UUIDs in slot order."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from agent.errors import LaunchError, SourceError
from agent.node_profile import GPU_UUID, Engine, NodeProfile
from agent.sources import Nvml
from agent.sources.gpu_reading import GpuIdentity

_FULL_UUID = re.compile(GPU_UUID)


@dataclass(frozen=True, slots=True)
class SlotGpu:
    """The GPU of one slot."""

    uuid: str
    pci_bus_id: str | None


def slot_gpus(profile: NodeProfile, engine: Engine, nvml: Nvml, *, numa: bool = False) -> dict[int, SlotGpu]:
    """The GPU of each slot of the engine.

    The pinned one, else the slot-th of the inventory in PCI bus order. With `numa` their PCI addresses are
    needed too, where the profile does not say the NUMA node.
    """
    if not engine.gpus:
        return {}
    pins = profile.gpus.pins
    needs_inventory = any(
        slot not in pins or (numa and slot not in profile.gpus.numa_node) for slot in engine.gpus
    )
    inventory = _inventory(nvml) if needs_inventory else {}
    by_uuid = {gpu.uuid: gpu for gpu in inventory.values() if gpu.uuid}
    result: dict[int, SlotGpu] = {}
    for slot in engine.gpus:
        if slot in pins:
            # The address of today, not the one written down: enumeration changes at a reboot.
            found = by_uuid.get(pins[slot].uuid)
            result[slot] = SlotGpu(pins[slot].uuid, found.pci_bus_id if found else pins[slot].pci_bus_id)
        else:
            result[slot] = _enumerated(slot, inventory)
    return result


def _inventory(nvml: Nvml) -> dict[int, GpuIdentity]:
    """The GPUs by slot."""
    try:
        return dict(enumerate(nvml.inventory()))
    except SourceError as cause:
        raise LaunchError(f"the GPUs cannot be listed ({cause}); pin them by UUID under gpus.pins") from cause


def _enumerated(slot: int, inventory: Mapping[int, GpuIdentity]) -> SlotGpu:
    """The slot-th GPU that NVML lists."""
    gpu = inventory.get(slot)
    if gpu is None:
        raise LaunchError(f"gpu{slot}: NVML lists only {len(inventory)} GPUs; look for a lost GPU")
    if gpu.error is not None or gpu.uuid is None:
        raise LaunchError(
            f"gpu{slot}: NVML answers {gpu.error or 'no UUID'}; the engine cannot be given this GPU"
        )
    if not _FULL_UUID.match(gpu.uuid):
        raise LaunchError(
            f"gpu{slot}: {gpu.uuid} is not a full GPU UUID; engines need GPU- and 36 characters"
        )
    return SlotGpu(gpu.uuid, gpu.pci_bus_id)


def gpu_env(profile: NodeProfile, name: str, engine: Engine, gpus: Mapping[int, SlotGpu]) -> dict[str, str]:
    """CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER.

    An engine without GPUs on a node that has some is given none of them; on a node without GPUs nothing is
    set. The profile's own CUDA_VISIBLE_DEVICES may reorder the engine's GPUs and nothing else, for the gate
    attributes each GPU's faults by slot.
    """
    if profile.gpus.count == 0:
        return {}
    uuids = [gpu.uuid for gpu in gpus.values()]
    chosen = engine.launch.env.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        _check_override(name, chosen, uuids)
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(uuids)}


def _check_override(name: str, chosen: str, uuids: list[str]) -> None:
    """Refuse an override that names other GPUs, indexes or shortened UUIDs."""
    where = f"engine {name}: launch.env sets CUDA_VISIBLE_DEVICES"
    listed = [part.strip() for part in chosen.split(",")] if chosen else []
    for part in listed:
        if not _FULL_UUID.match(part):
            raise LaunchError(
                f"{where} with {part!r}, which is not a full GPU UUID; remove it or write full UUIDs"
            )
    if sorted(listed) != sorted(uuids):
        raise LaunchError(f"{where} to other GPUs than engines.{name}.gpus; remove it or change the slots")
