"""What tree.json, host.json and bmc.json of a node folder must look like, as pydantic types."""

from __future__ import annotations

from types import GenericAlias
from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag, TypeAdapter

from agent.sources.node_model import (
    Document,
    Flag,
    Name,
    Number,
    Refused,
    Text,
    is_refused,
    or_refused,
)

_Count = Annotated[int, Field(strict=True, ge=0, lt=2**63)]
_Seconds = Annotated[Number, Field(ge=0)]


class Unit(Document):
    """UnitState without its name; `since_mono_s` is a time of the captured node."""

    load_state: Name
    active_state: Name
    sub_state: Name
    restarts: _Count
    since_mono_s: _Seconds | None = None


class Disk(Document):
    """DiskSpace."""

    total_b: _Count
    free_b: _Count
    total_inodes: _Count
    free_inodes: _Count
    read_only: Flag


class MountState(Document):
    """MountAnswer."""

    answered: Flag
    latency_s: _Seconds
    problem: Text = ""
    marker: Flag | None = None


class ClockState(Document):
    """ClockSync."""

    synchronised: Flag
    offset_s: Number
    max_error_s: _Seconds


class ReachState(Document):
    """Reach."""

    accepted: Flag
    latency_s: _Seconds
    problem: Text = ""


_UnitName = Annotated[str, Field(pattern=r"^[^/\s]{1,255}$")]
_AbsolutePath = Annotated[str, Field(pattern=r"^/[^\x00]{0,1000}$")]
_PeerName = Annotated[str, Field(pattern=r"^[^/\s]{1,255}:[0-9]{1,5}$")]
_RedfishPath = Annotated[str, Field(pattern=r"^/redfish\S{0,1000}$")]
_ServiceName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$")]
_Units: Any = GenericAlias(dict, (_UnitName, or_refused(Unit)))
_Disks: Any = GenericAlias(dict, (_AbsolutePath, or_refused(Disk)))
_Mounts: Any = GenericAlias(dict, (_AbsolutePath, or_refused(MountState)))
_Peers: Any = GenericAlias(dict, (_PeerName, or_refused(ReachState)))


class HostDocument(Document):
    """host.json; a part that is left out was not captured, a unit that is left out does not exist."""

    units: or_refused(_Units) | None = None  # type: ignore[valid-type]
    disks: or_refused(_Disks) | None = None  # type: ignore[valid-type]
    mounts: or_refused(_Mounts) | None = None  # type: ignore[valid-type]
    clock: or_refused(ClockState) | None = None  # type: ignore[valid-type]
    reach: or_refused(_Peers) | None = None  # type: ignore[valid-type]


class HexFile(Document):
    """A file that is no text, e.g. PCI configuration space."""

    hex: Annotated[str, Field(pattern=r"^([0-9a-f]{2})*$", max_length=1 << 17)]


def _file_tag(value: object) -> str:
    if is_refused(value):
        return "refused"
    return "text" if isinstance(value, str) else "hex"


_FileText = Annotated[str, Field(strict=True, max_length=1 << 20)]
_File: Any = Annotated[
    Annotated[_FileText, Tag("text")] | Annotated[HexFile, Tag("hex")] | Annotated[Refused, Tag("refused")],
    Discriminator(_file_tag),
]
_TreeTypes: Any = GenericAlias(dict, (str, _File))
_Object: Any = GenericAlias(dict, (str, Any))
_Service: Any = GenericAlias(dict, (_RedfishPath, or_refused(_Object)))
_Services: Any = GenericAlias(dict, (_ServiceName, or_refused(_Service)))

FILE: TypeAdapter[Any] = TypeAdapter(_File)
TREE: TypeAdapter[Any] = TypeAdapter(_TreeTypes)
HOST: TypeAdapter[Any] = TypeAdapter(HostDocument)
BMC: TypeAdapter[Any] = TypeAdapter(_Services)
REDFISH: TypeAdapter[Any] = TypeAdapter(or_refused(_Object))
REFUSED: TypeAdapter[Any] = TypeAdapter(Refused)
#: By part of host.json: what one entry of it must look like.
HOST_PARTS: dict[str, TypeAdapter[Any]] = {
    "units": TypeAdapter(or_refused(Unit)),
    "disks": TypeAdapter(or_refused(Disk)),
    "mounts": TypeAdapter(or_refused(MountState)),
    "clock": TypeAdapter(or_refused(ClockState)),
    "reach": TypeAdapter(or_refused(ReachState)),
}


def plain_redfish_path(path: str) -> str:
    """The path without the slash at its end: services answer alike to both."""
    return path.rstrip("/") or path
