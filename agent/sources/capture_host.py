"""What a capture records of the host (host.json) and of Redfish services (bmc.json)."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from agent.bmc_profile import RedfishEndpoint
from agent.errors import DeviceAbsent, SourceError
from agent.node_profile import NodeProfile
from agent.sources import Sources
from agent.sources.bmc_reading import NODE_BMC, Bmc
from agent.sources.capture_parts import part
from agent.sources.host_reading import UnitState
from agent.sources.node_model_host import plain_redfish_path
from agent.sources.refusals import refusal

#: Units that tell something on a GPU node; those that a profile names come besides.
UNITS = (
    "chrony.service", "chronyd.service", "dcgm.service", "irqbalance.service", "kubelet.service",
    "ntp.service", "ntpsec.service", "nvidia-dcgm.service", "nvidia-fabricmanager.service",
    "nvidia-imex.service", "nvidia-persistenced.service", "nvlsm.service", "openibd.service",
    "systemd-timesyncd.service",
)  # fmt: skip
DISKS = ("/", "/var/lib/nodegate")
#: A baseboard with many sensors has some hundred documents; a service that never ends is cut off.
DOCUMENTS_LIMIT = 1500
_ROOT = "/redfish/v1"
_WELL_KNOWN = tuple(
    f"{_ROOT}/{path}"
    for path in (
        "Systems", "Chassis", "Managers", "UpdateService/FirmwareInventory", "ThermalEquipment/CDUs",
        "PowerEquipment/RackPDUs",
    )
)  # fmt: skip
_FOLLOWED = re.compile(
    r"/redfish/v1/(?:Systems|Chassis|Managers|UpdateService|ThermalEquipment|PowerEquipment|Fabrics)(?:/.*)?"
)
#: Below those: large, of no use to a check, or with names and addresses of people and machines in it.
_PASSED_BY = re.compile(
    r"/(?:Accounts?|BootOptions|Certificates?|EthernetInterfaces|HostInterfaces|Memory|NetworkProtocol"
    r"|PCIeDevices|Processors|Registries|SecureBoot|SerialInterfaces|Sessions?|SimpleStorage|Storage"
    r"|USBControllers|VirtualMedia)(?:/|$)"
)
#: Redfish properties that name a machine, a part of it or its place.
_NAMING = frozenset(
    {
        "AssetTag", "FQDN", "HostName", "SerialNumber", "UUID", "ServiceEntryPointUUID", "Address",
        "MACAddress", "PermanentMACAddress", "NodeGUID",
    }
)  # fmt: skip
_ADDRESS = re.compile(r"(?<![\w.])(?:[0-9]{1,3}\.){3}[0-9]{1,3}(?![\w.])")
_URL_HOST = re.compile(r"https?://(?:[^/\s\"'@]*@)?([A-Za-z0-9._-]+)")
#: On one line: under `host:` of a profile the next line holds a key, which names nobody.
_PEER_HOST = re.compile(r"""\bhost["']?[ \t]*:[ \t]*["']?([A-Za-z0-9._-]+)""")
_MOUNT_SERVER = re.compile(r"(?m)^([A-Za-z0-9._-]+):/")


def record_host(sources: Sources, profile: NodeProfile | None, shift_s: float) -> dict[str, Any]:
    """host.json; times of units are moved by `shift_s`, as those of the kernel log are."""
    wanted = profile.host if profile else None
    host = sources.host
    units: dict[str, Any] = {}
    for name in sorted({*UNITS, *(wanted.services if wanted else ())}):
        try:
            state = host.unit(name)
        except SourceError as cause:
            units[name] = refusal(cause)
            continue
        if state.load_state != "not-found":
            units[name] = _unit_document(state, shift_s)
    mounts = {mount.path: mount.marker for mount in wanted.mounts} if wanted else {}
    disks = sorted({*DISKS, *(wanted.disks if wanted else ()), *mounts})
    found: dict[str, Any] = {
        "units": units,
        "disks": {path: part(lambda at=path: dataclasses.asdict(host.disk(at))) for path in disks},  # type: ignore[misc]
        "clock": part(lambda: dataclasses.asdict(host.clock_sync())),
    }
    if profile is None:
        return found
    found["mounts"] = {
        path: part(lambda at=path, file=marker: dataclasses.asdict(host.mount(at, file)))  # type: ignore[misc]
        for path, marker in mounts.items()
    }
    found["reach"] = {
        f"{at}:{port}": part(lambda at=at, port=port: dataclasses.asdict(host.reach(at, port)))  # type: ignore[misc]
        for at, port in sorted({(p.host, p.port) for e in profile.engines.values() for p in e.peers})
    }
    return found


def _unit_document(state: UnitState, shift_s: float) -> dict[str, Any]:
    found = dataclasses.asdict(state)
    del found["name"]
    since_mono_s = state.since_mono_s
    moved = None if since_mono_s is None else since_mono_s + shift_s
    return found | {"since_mono_s": moved if moved is None or moved >= 0 else None}


def record_bmc(
    sources: Sources, profile: NodeProfile | None, not_captured: list[str]
) -> dict[str, Any] | None:
    """bmc.json: the documents of the Redfish services that the profile names; None without any."""
    if profile is None:
        return None
    services: dict[str, RedfishEndpoint] = {**profile.bmc.cooling.units, **profile.bmc.pdus}
    if profile.bmc.redfish is not None:
        services[NODE_BMC] = profile.bmc.redfish
    found = {name: _crawl(sources.bmc, name, endpoint) for name, endpoint in sorted(services.items())}
    for name, documents in found.items():
        if set(documents) == {"error"}:
            not_captured.append(f"bmc.json: the Redfish service {name} answers {documents['error']}")
    return found or None


def _crawl(bmc: Bmc, name: str, endpoint: RedfishEndpoint) -> dict[str, Any]:
    """Every document that links lead to from the service's root, errors in their places."""
    documents: dict[str, Any] = {}
    try:
        documents[_ROOT] = dict(bmc.get(name, endpoint, _ROOT))
    except DeviceAbsent:
        documents = {}  # it answers, and what checks ask for may be there all the same
    except SourceError as cause:
        return dict(refusal(cause))
    waiting = list(dict.fromkeys([*_next_paths(documents.get(_ROOT, {}), documents), *_WELL_KNOWN]))
    while waiting and len(documents) < DOCUMENTS_LIMIT:
        path = waiting.pop(0)
        if path in documents:
            continue
        try:
            documents[path] = dict(bmc.get(name, endpoint, path))
        except DeviceAbsent:
            continue
        except SourceError as cause:
            documents[path] = refusal(cause)
            continue
        waiting += [new for new in _next_paths(documents[path], documents) if new not in waiting]
    return documents


def _next_paths(document: Mapping[str, Any], known: Mapping[str, Any]) -> list[str]:
    """Paths that a document links to and that are worth reading, each once."""
    found = dict.fromkeys(plain_redfish_path(link.partition("#")[0]) for link in _links(document))
    return [
        path
        for path in found
        if path not in known and _FOLLOWED.fullmatch(path) and not _PASSED_BY.search(path)
    ]


def _links(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            if key in ("@odata.id", "Members@odata.nextLink") and isinstance(item, str):
                yield item
            else:
                yield from _links(item)
    elif isinstance(value, list):
        for item in value:
            yield from _links(item)


def words_that_identify(
    host: dict[str, Any] | None, bmc: dict[str, Any] | None, files: Mapping[str, Any], profile_text: str
) -> list[str]:
    """Names and addresses of this machine, its BMC, its peers and its file servers."""
    found: set[str] = set()
    if host is not None:
        peers = host.get("reach") or {}
        found.update(peer.rpartition(":")[0] for peer in peers)
    found.update(_URL_HOST.findall(profile_text))
    found.update(_PEER_HOST.findall(profile_text))
    mounts = files.get("proc/self/mounts") or files.get("proc/mounts") or ""
    found.update(_MOUNT_SERVER.findall(mounts if isinstance(mounts, str) else ""))
    found.update(_naming_values(bmc or {}))
    return sorted(found)


def _naming_values(value: Any, naming: bool = False) -> Iterable[str]:
    """Texts under the properties that name something, and addresses anywhere."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _naming_values(item, key in _NAMING)
    elif isinstance(value, list):
        for item in value:
            yield from _naming_values(item, naming)
    elif isinstance(value, str):
        yield from [value] if naming and value.strip() else []
        yield from _ADDRESS.findall(value)
