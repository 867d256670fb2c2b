"""What the documents of a node folder must look like (node.yaml, nvml.json, net.json), as pydantic types.

A refused value is `{"error": NAME}` in place of the value, of a group of values or of a part of an interface.
"""

from __future__ import annotations

from types import GenericAlias
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, TypeAdapter, create_model

from agent.sources.gpu_reading import GROUP_FIELDS, NvmlGroup

Integer = Annotated[int, Field(strict=True, ge=-(2**63), lt=2**64)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False, gt=-1e18, lt=1e18)]
Text = Annotated[str, Field(strict=True, max_length=4096)]
Flag = Annotated[bool, Field(strict=True)]
Entries = Annotated[int, Field(strict=True, ge=0, lt=2**32)]
Name = Annotated[str, Field(strict=True, min_length=1, max_length=200)]


class Document(BaseModel):
    """Base: unknown keys and near misses are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Refused(Document):
    """An error in place of a value, named as NVML does without NVML_ERROR_; besides ABSENT and MISSING."""

    error: Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]{0,63}$")]


def is_refused(value: object) -> bool:
    """Whether a value of a document is an error in its place."""
    return isinstance(value, dict) and "error" in value and len(value) == 1


def _tag(value: object) -> str:
    return "refused" if is_refused(value) else "value"


def or_refused(kind: Any) -> Any:
    """A type, or an error in its place."""
    return Annotated[Annotated[kind, Tag("value")] | Annotated[Refused, Tag("refused")], Discriminator(_tag)]


_FIELD_TYPES: dict[str, Any] = {
    "int": Integer,
    "float": Number,
    "bool": Flag,
    "list[int]": Annotated[list[Integer], Field(max_length=256)],
    "list[float]": Annotated[list[Number], Field(max_length=4096)],
    "list[bool]": Annotated[list[Flag], Field(max_length=256)],
}


def _group_type(group: NvmlGroup) -> Any:
    """The type of one group: each field of GROUP_FIELDS, whose description begins with its type."""
    fields: dict[str, Any] = {
        name: (or_refused(_FIELD_TYPES[text.replace(",", " ").split()[0]]), None)
        for name, text in GROUP_FIELDS[group].items()
    }
    return or_refused(create_model(f"{group.capitalize()}Group", __base__=Document, **fields))


class Identity(Document):
    """GpuIdentity."""

    index: Annotated[int, Field(ge=0, lt=1024)]
    uuid: Name | None
    pci_bus_id: Annotated[str, Field(pattern=r"^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$")] | None = None
    name: Text | None = None
    serial: Text | None = None
    vbios: Text | None = None
    minor: Annotated[int, Field(ge=0, lt=1024)] | None = None
    error: Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]{0,63}$")] | None = None


class System(Document):
    """SystemReading."""

    driver_version: Name
    nvml_version: Name
    cuda_version: Integer
    device_count: Annotated[int, Field(ge=0, lt=1024)]


_GROUPS: dict[str, Any] = {group.value: (_group_type(group), None) for group in NvmlGroup}
_CALL_TIMES: dict[str, Any] = {group.value: (Number, None) for group in NvmlGroup}
CallTimes = create_model("CallTimes", __base__=Document, **_CALL_TIMES)
#: One GPU: who it is, its groups, and how long a read of each group took when it was captured.
Gpu = create_model(
    "Gpu",
    __base__=Document,
    identity=(Identity, ...),
    call_us=(CallTimes, None),
    **_GROUPS,
)


class Link(Document):
    """LinkInfo without its name."""

    operstate: Name
    carrier: Flag
    mtu_bytes: Annotated[int, Field(ge=0, lt=2**32)]
    carrier_down_count: Annotated[int, Field(ge=0, lt=2**32)] | None = None


class Dcb(Document):
    """DcbInfo; keys of JSON are text, so the DSCP is."""

    pfc_on: Annotated[list[Flag], Field(min_length=8, max_length=8)]
    trust: Literal["dscp", "pcp"]
    dscp_to_priority: dict[
        Annotated[str, Field(pattern=r"^([0-9]|[1-5][0-9]|6[0-3])$")], Annotated[int, Field(ge=0, le=7)]
    ]
    host_managed: Flag = True


Ethtool = Annotated[dict[Name, Annotated[int, Field(ge=0, lt=2**64)]], Field(max_length=65536)]


class Driver(Document):
    """DriverInfo."""

    driver: Text
    version: Text
    firmware: Text
    bus_info: Text


class Pause(Document):
    """PauseInfo."""

    autonegotiated: Flag
    rx: Flag
    tx: Flag


class Ring(Document):
    """RingInfo."""

    rx: Entries
    tx: Entries
    rx_max: Entries
    tx_max: Entries


class Module(Document):
    """ModuleInfo."""

    kind: Text
    vendor: Text
    part_number: Text
    serial: Text
    temperature_c: Number | None = None
    rx_power_mw: Annotated[list[Number], Field(max_length=64)] = Field(default_factory=list)
    tx_power_mw: Annotated[list[Number], Field(max_length=64)] = Field(default_factory=list)
    alarms: Annotated[list[Text], Field(max_length=256)] = Field(default_factory=list)


class Netdev(Document):
    """One network interface."""

    link: or_refused(Link) = {"error": "MISSING"}  # type: ignore[valid-type]
    ethtool: or_refused(Ethtool) = {"error": "MISSING"}  # type: ignore[valid-type]
    dcb: or_refused(Dcb) = {"error": "MISSING"}  # type: ignore[valid-type]
    driver: or_refused(Driver) = {"error": "MISSING"}  # type: ignore[valid-type]
    pause: or_refused(Pause) = {"error": "MISSING"}  # type: ignore[valid-type]
    ring: or_refused(Ring) = {"error": "MISSING"}  # type: ignore[valid-type]
    module: or_refused(Module) = {"error": "MISSING"}  # type: ignore[valid-type]


#: What an interface of net.json is made of.
NETDEV_PARTS = tuple(Netdev.model_fields)


class NvmlDocument(Document):
    """nvml.json."""

    system: or_refused(System)  # type: ignore[valid-type]
    gpus: Annotated[list[Gpu], Field(max_length=1024)]


class Live(Document):
    """What is read from this machine instead of the folder: see node_live.py."""

    #: Parts of the host.
    host: list[Literal["units", "disks", "mounts", "clock", "reach"]] = Field(default_factory=list)
    #: Documents of the folder that are read again whenever they have been replaced.
    documents: list[Literal["nvml", "net"]] = Field(default_factory=list)
    #: Whether Redfish services are really asked, as the profile says.
    bmc: Flag = False
    #: Prefixes of paths (`sys`, `proc/sys`, `etc`, `proc/cmdline`) and the real folder or file that each is.
    tree: dict[Name, Annotated[str, Field(strict=True, pattern=r"^/", max_length=4096)]] = Field(
        default_factory=dict
    )


class NodeMeta(Document):
    """node.yaml: what was captured, when, and what of it is not real."""

    version: Literal[1] = Field(alias="schema")
    name: Name
    platform: Text = ""
    description: Text = ""
    simulated: Flag
    captured_s: Annotated[float, Field(ge=0, lt=1e12)]
    #: Monotonic seconds of the captured node at that moment; kernel log times are relative to it.
    captured_mono_s: Annotated[float, Field(ge=0, lt=1e12)] = 0.0
    boot_id: Name
    driver: Text | None = None
    redacted: Flag = False
    filled_in: list[Text] = Field(default_factory=list)
    not_captured: list[Text] = Field(default_factory=list)
    live: Live | None = None


GPU: TypeAdapter[Any] = TypeAdapter(or_refused(Gpu))
SYSTEM: TypeAdapter[Any] = TypeAdapter(or_refused(System))
NETDEV: TypeAdapter[Any] = TypeAdapter(or_refused(Netdev))
_NetdevName = Annotated[str, Field(pattern=r"^[^/\s]{1,15}$")]
_NetTypes: Any = GenericAlias(dict, (_NetdevName, or_refused(Netdev)))
NET: TypeAdapter[Any] = TypeAdapter(_NetTypes)
