"""The BMC part of a node profile: where its Redfish service is, and what it must say of node and cooling."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from agent.profile_types import Part, PathText

SHA256 = r"^[0-9a-f]{64}$"
_NAME = r"^[a-z0-9][a-z0-9_-]{0,62}$"


class RedfishEndpoint(Part):
    """A Redfish service; TLS is verified unless `tls_verify` says otherwise."""

    url: str = Field(description="Base URL, e.g. https://bmc-17.example", pattern=r"^https?://[^/\s@?#]+/?$")
    credentials_file: PathText | None = Field(
        None, description="File with `username: ...` and `password: ...`, mode 0600 or 0400; unset = none"
    )
    ca_file: PathText | None = Field(None, description="PEM file of the CA; unset = the system's")
    tls_verify: bool = Field(True, description="false = accept any certificate (told at every check)")
    deadline_s: float = Field(10.0, description="Seconds that one request may take", gt=0, le=120)

    @model_validator(mode="after")
    def _no_secret_in_the_clear(self) -> RedfishEndpoint:
        problem = plain_http_problem(self)
        if problem:
            raise ValueError(problem)
        return self


def plain_http_problem(endpoint: RedfishEndpoint) -> str | None:
    """Why this endpoint may not be asked over plain HTTP; None for HTTPS and for this machine itself.

    Credentials go over HTTP to loopback only; without credentials, `tls_verify: false` must own up to it.
    """
    parts = urlsplit(endpoint.url)
    if parts.scheme == "https" or _is_loopback(parts.hostname or ""):
        return None
    if endpoint.credentials_file is not None:
        return "credentials are never sent over plain http; use https"
    if endpoint.tls_verify:
        return "plain http proves nothing about who answers; use https, or say `tls_verify: false`"
    return None


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Coolant(Part):
    """What coolant must be at the place where it is measured; numbers that are unset are not compared."""

    inlet_max_c: float | None = Field(None, description="Warmest coolant at the inlet in degrees C")
    outlet_max_c: float | None = Field(None, description="Warmest coolant at the outlet in degrees C")
    delta_max_c: float | None = Field(None, description="Largest outlet minus inlet in degrees C", gt=0)
    flow_min_l_per_min: float | None = Field(None, description="Least coolant flow in litres a minute", gt=0)


class CoolingUnit(RedfishEndpoint, Coolant):
    """A cooling unit's own service and what its secondary loop must be."""

    inlet_max_c: float | None = Field(
        None, description="Warmest coolant that the unit may supply in degrees C; unset = that of the node"
    )
    outlet_max_c: float | None = Field(
        None, description="Warmest coolant that may return to the unit in degrees C; unset = that of the node"
    )
    delta_max_c: float | None = Field(
        None, description="Largest return minus supply in degrees C; unset = that of the node", gt=0
    )
    flow_min_l_per_min: float | None = Field(
        None, description="Least flow of the unit's secondary loop in litres a minute", gt=0
    )


class Cooling(Coolant):
    """What coolant and air must be at the node."""

    medium: Literal["liquid", "air"] | None = Field(
        None, description="What cools the GPUs; air = checklists ask for no coolant; unset = not known"
    )
    air_inlet_max_c: float | None = Field(None, description="Warmest air at the inlet in degrees C")
    leak_detection: bool = Field(
        False, description="The BMC must report leak detectors; false = judged where it reports some"
    )
    units: dict[Annotated[str, Field(pattern=_NAME)], CoolingUnit] = Field(
        default_factory=dict, description="Cooling units (CDUs) with a Redfish service of their own, by name"
    )


class FirmwareImage(Part):
    """One firmware image that the BMC takes, and the versions that it brings."""

    kind: Literal["bmc", "bios", "hgx", "nic", "ssd", "other"] = Field(
        "other",
        description="What it is for; images are applied bmc first, then bios and hgx, then the others",
    )
    order: int | None = Field(
        None, description="Place among the images, smallest first; unset = by kind (10 bmc, 20 bios, hgx, 30)"
    )
    versions: dict[str, str] = Field(
        description="Version that the image brings by inventory id (`*` matches), as the BMC writes it",
        min_length=1,
    )
    match: Literal["exact", "least"] = Field(
        "exact", description="exact = no other version may run; least = a newer one may"
    )
    image: PathText = Field(
        description="File on the controller; a relative path is looked for beside the inventory", min_length=1
    )
    sha256: str = Field(description="SHA-256 of the file in hexadecimal", pattern=SHA256)
    image_url: str | None = Field(
        None,
        description="Where the BMC finds the same file by itself; used only where it takes no upload",
        pattern=r"^(https?|nfs|tftp|scp|sftp|ftp)://[^\s@]+$",
    )
    targets: list[str] = Field(
        default_factory=list, description="Redfish paths that the update is for; empty = what the image names"
    )
    activation: Literal["reset", "ac_power_cycle", "bmc_reset", "none"] = Field(
        description="What makes it run: a reset of the host, an AC power cycle, a BMC reset, or nothing more"
    )
    update_deadline_s: float = Field(
        3600.0, description="Seconds that the BMC may take to write it", gt=0, le=14400
    )
    back_within_s: float = Field(
        900.0,
        description="Seconds that BMC and versions may take to be back after the activation",
        gt=0,
        le=7200,
    )


Switch = Literal["enabled", "disabled"]


class BiosIntent(Part):
    """What the BIOS should do, in words that are the same for all vendors; unset = not asked.

    Maps by vendor, model and BIOS version turn it into attributes; what no map knows is refused.
    """

    numa_nodes_per_socket: Literal[1, 2, 4] | None = Field(
        None, description="NUMA nodes of one socket (NPS of AMD, sub-NUMA clusters of Intel)"
    )
    memory_interleave: Literal["channel", "node"] | None = Field(
        None, description="channel = over the channels of a NUMA node; node = over the sockets, hiding NUMA"
    )
    performance_profile: Literal["max_performance", "balanced"] | None = Field(
        None, description="The vendor's own profile of power and performance"
    )
    c_states: Switch | None = Field(None, description="Idle states of the CPU beyond C1")
    aspm: Switch | None = Field(None, description="Power saving of PCIe links")
    sriov: Switch | None = Field(None, description="SR-IOV")
    iommu: Switch | None = Field(None, description="IOMMU (AMD-Vi, VT-d)")
    acs: Switch | None = Field(None, description="PCIe access control services")
    above_4g_decoding: Switch | None = Field(None, description="PCIe memory above 4 GiB")
    x2apic: Switch | None = Field(None, description="x2APIC mode")
    nvlink_topology: Literal["mesh"] | None = Field(None, description="How the BIOS sets up NVLink")


class Bmc(Part):
    """The node's BMC and what it must report."""

    redfish: RedfishEndpoint | None = Field(None, description="The node's own BMC; unset = not asked")
    bios_version: str | None = Field(None, description="BIOS version; unset = not compared")
    bios: dict[str, str | int | bool] = Field(
        default_factory=dict, description="BIOS attributes by their Redfish name, e.g. ACSControl: Disabled"
    )
    bios_intent: BiosIntent = Field(
        default_factory=BiosIntent, description="BIOS settings by intent; `bios` wins over them"
    )
    firmware: dict[str, str] = Field(
        default_factory=dict,
        description="Least firmware version by inventory id (`*` matches), e.g. HGX_FW_NVSwitch_*: 96.10.6D",
    )
    images: dict[Annotated[str, Field(pattern=_NAME)], FirmwareImage] = Field(
        default_factory=dict, description="Firmware images by a name of your own, e.g. hgx"
    )
    power_state: bool = Field(True, description="The system must report power On; false = not compared")
    power_max_w: float | None = Field(
        None, description="Largest power draw of the node in W; unset = not compared", gt=0
    )
    cooling: Cooling = Field(default_factory=Cooling, description="Coolant and air")
    pdus: dict[Annotated[str, Field(pattern=_NAME)], RedfishEndpoint] = Field(
        default_factory=dict, description="Rack PDUs with a Redfish service of their own, by name"
    )
