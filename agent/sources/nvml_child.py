"""The process that uses NVML, through nvidia-ml-py; nvml.py starts it and kills it when a call hangs.

It imports nothing heavy, keeps nothing between calls but device handles, and answers one request at a time
with the fields of GROUP_FIELDS in natural units. A refused value travels as `{"error": "NOT_SUPPORTED"}`.
NVML API: https://docs.nvidia.com/deploy/nvml-api/
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import pynvml as nv

from agent.sources import nvml_child_groups as groups
from agent.sources import nvml_child_links as links
from agent.sources.nvml_child_calls import Handle, Json, ask, demand, lasting, refused
from agent.sources.nvml_child_loop import Refused, serve

#: Groups of one GPU; what takes a pair of GPUs is `pair`.
GROUPS: dict[str, Callable[[Handle], Json]] = {
    group.__name__: group
    for group in (
        groups.thermal,
        groups.power,
        groups.slowdowns,
        groups.memory,
        groups.ecc,
        links.nvlink,
        links.nvlink_errors,
        links.nvlink_ber,
        links.fabric,
        groups.pcie,
        groups.pcie_errors,
        groups.processes,
    )
}
#: nvmlGpuP2PCapsIndex_t. The binding's NVML_P2P_CAPS_INDEX_READ is a tuple by a slip of its own.
P2P_READ, P2P_NVLINK = 0, 2


def init(library: str | None) -> Json:
    """Load the library and start NVML."""
    if library is not None:
        try:
            nv.nvmlLib = ctypes.CDLL(library)
        except OSError:
            raise Refused("LIBRARY_NOT_FOUND") from None
    demand("nvmlInit")
    return {}


def system() -> Json:
    """Versions and device count."""
    return {
        "driver_version": demand("nvmlSystemGetDriverVersion"),
        "nvml_version": demand("nvmlSystemGetNVMLVersion"),
        "cuda_version": demand("nvmlSystemGetCudaDriverVersion"),
        "device_count": demand("nvmlDeviceGetCount"),
    }


def optional(read: Callable[[Handle], Any], handle: Handle) -> Any:
    """A part of the identity that not every board has, and that a board keeps."""
    value = lasting(handle, read)
    return None if refused(value) else value


def _asking(function: str) -> Callable[[Handle], Any]:
    return lambda handle: ask(function, handle)


#: Parts of the identity that NVML may refuse.
OPTIONAL = {
    "name": _asking("nvmlDeviceGetName"),
    "serial": _asking("nvmlDeviceGetSerial"),
    "vbios": _asking("nvmlDeviceGetVbiosVersion"),
    "minor": _asking("nvmlDeviceGetMinorNumber"),
}


_handles: dict[str, Handle] = {}


def identity(index: int) -> Json:
    """Who the GPU with this NVML index is."""
    handle = demand("nvmlDeviceGetHandleByIndex", index)
    uuid = demand("nvmlDeviceGetUUID", handle)
    _handles[uuid] = handle
    return {
        "uuid": uuid,
        "pci_bus_id": demand("nvmlDeviceGetPciInfo_v3", handle).busId,
        **{part: optional(read_part, handle) for part, read_part in OPTIONAL.items()},
    }


def handle_of(uuid: str, pci_bus_id: str) -> Handle:
    """The handle of one GPU.

    A new process finds the GPU by its PCI address: a search by UUID touches every GPU before it, also a hung
    one.
    """
    handle = _handles.get(uuid)
    if handle is None:
        handle = demand("nvmlDeviceGetHandleByPciBusId", pci_bus_id)
        if demand("nvmlDeviceGetUUID", handle) != uuid:
            raise Refused("NOT_FOUND")
        _handles[uuid] = handle
    return handle


def read(uuid: str, pci_bus_id: str, group: str) -> Json:
    """One group of values of one GPU."""
    return GROUPS[group](handle_of(uuid, pci_bus_id))


def pair(uuid: str, pci_bus_id: str, peer: str, peer_pci_bus_id: str) -> Json:
    """How one GPU reaches another: the fields of the group `peers`. It touches both and no third."""
    handle = handle_of(uuid, pci_bus_id)
    try:
        other = handle_of(peer, peer_pci_bus_id)
    except Refused as no:
        return {key: {"error": no.name} for key in ("p2p_nvlink", "p2p_read", "topology")}
    return reach(handle, other)


def reach(handle: Handle, other: Handle) -> Json:
    """`pair` with handles."""
    return {
        "p2p_nvlink": between("nvmlDeviceGetP2PStatus", handle, other, P2P_NVLINK),
        "p2p_read": between("nvmlDeviceGetP2PStatus", handle, other, P2P_READ),
        "topology": between("nvmlDeviceGetTopologyCommonAncestor", handle, other),
    }


def between(function: str, *args: object) -> Any:
    """A value of two GPUs; an error, also a lost GPU, is a value here: it does not say which of the two."""
    try:
        return demand(function, *args)
    except Refused as no:
        return {"error": no.name}


if __name__ == "__main__":
    serve({"init": init, "system": system, "identity": identity, "read": read, "pair": pair})
