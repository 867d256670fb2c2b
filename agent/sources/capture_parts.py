"""What a capture records of GPUs, interfaces and the kernel log, as the documents of a node folder."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

from agent.errors import SourceError
from agent.sources import DcbInfo, KmsgRecord, Net, Nvml, Sources
from agent.sources.gpu_reading import GpuIdentity, NvmlGroup, NvmlRefusal
from agent.sources.kmsg_records import format_line
from agent.sources.refusals import refusal


def record_nvml(sources: Sources, not_captured: list[str]) -> dict[str, Any]:
    """nvml.json: the system and every group of every GPU."""
    try:
        system = dataclasses.asdict(sources.nvml.system())
        identities = sources.nvml.inventory()
    except SourceError as cause:
        not_captured.append(f"nvml.json: {cause}")
        return {"system": refusal(cause), "gpus": []}
    timed = not sources.simulated
    return {"system": system, "gpus": [_record_gpu(sources.nvml, gpu, timed) for gpu in identities]}


def _record_gpu(nvml: Nvml, identity: GpuIdentity, timed: bool) -> dict[str, Any]:
    """All groups of one GPU; how long they took is worth keeping only on a real one."""
    found: dict[str, Any] = {"identity": dataclasses.asdict(identity)}
    call_us: dict[str, float] = {}
    for group in NvmlGroup if identity.uuid else ():
        begun_s = time.perf_counter()
        try:
            values = nvml.read(str(identity.uuid), group).values
            found[group.value] = {
                name: {"error": value.name} if isinstance(value, NvmlRefusal) else value
                for name, value in values.items()
            }
        except SourceError as cause:
            found[group.value] = refusal(cause)
        call_us[group.value] = round((time.perf_counter() - begun_s) * 1e6, 1)
    return {**found, "call_us": call_us} if timed else found


def record_netdev(net: Net, name: str) -> dict[str, Any]:
    """One interface of net.json."""
    return {
        "link": part(lambda: _link_document(net, name)),
        "ethtool": part(lambda: dict(net.ethtool_stats(name))),
        "dcb": part(lambda: _dcb_document(net.dcb(name))),
        "driver": part(lambda: dataclasses.asdict(net.driver(name))),
        "pause": part(lambda: dataclasses.asdict(net.pause(name))),
        "ring": part(lambda: dataclasses.asdict(net.ring(name))),
        "module": part(lambda: _module_document(net, name)),
    }


def part(read: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What a read gives, or the error in its place."""
    try:
        return read()
    except SourceError as cause:
        return refusal(cause)


def _link_document(net: Net, name: str) -> dict[str, Any]:
    info = dataclasses.asdict(net.link(name))
    del info["name"]
    return info


def _module_document(net: Net, name: str) -> dict[str, Any]:
    found = dataclasses.asdict(net.module(name))
    return {key: list(value) if isinstance(value, tuple) else value for key, value in found.items()}


def _dcb_document(info: DcbInfo) -> dict[str, Any]:
    return {
        "pfc_on": list(info.pfc_on),
        "trust": info.trust,
        "dscp_to_priority": {str(dscp): priority for dscp, priority in sorted(info.dscp_to_priority.items())},
        "host_managed": info.host_managed,
    }


def record_kmsg(sources: Sources, not_captured: list[str]) -> tuple[list[str] | None, float]:
    """Lines of the kernel log, and how many seconds all times are moved so that none is before zero.

    A replayed log can begin before this machine's boot.
    """
    try:
        records = sources.kmsg.records()
    except SourceError as cause:
        not_captured.append(f"kmsg.txt: {cause}")
        return None, 0.0
    shift_s = max(0.0, -min((record.mono_s for record in records), default=0.0))
    moved = [KmsgRecord(r.seq, r.mono_s + shift_s, r.level, r.text) for r in records]
    return [format_line(r) for r in moved], shift_s
