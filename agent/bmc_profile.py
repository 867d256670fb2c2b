"""The BMC part of a node profile: where its Redfish service is, and what it must say of node and cooling."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from agent.profile_types import Part, PathText


class RedfishEndpoint(Part):
    """A Redfish service; TLS is verified unless `tls_verify` says otherwise."""

    url: str = Field(description="Base URL, e.g. https://bmc-17.example", pattern=r"^https?://[^/\s]+/?$")
    credentials_file: PathText | None = Field(
        None, description="File with `username: ...` and `password: ...`, mode 0600 or 0400; unset = none"
    )
    ca_file: PathText | None = Field(None, description="PEM file of the CA; unset = the system's")
    tls_verify: bool = Field(True, description="false = accept any certificate (told at every check)")
    deadline_s: float = Field(10.0, description="Seconds that one request may take", gt=0, le=120)


class Cooling(Part):
    """What coolant and air must be; numbers that are unset are not compared."""

    inlet_max_c: float | None = Field(None, description="Warmest coolant at the inlet in degrees C")
    outlet_max_c: float | None = Field(None, description="Warmest coolant at the outlet in degrees C")
    delta_max_c: float | None = Field(None, description="Largest outlet minus inlet in degrees C", gt=0)
    flow_min_l_per_min: float | None = Field(None, description="Least coolant flow in litres a minute", gt=0)
    air_inlet_max_c: float | None = Field(None, description="Warmest air at the inlet in degrees C")
    units: dict[Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$")], RedfishEndpoint] = Field(
        default_factory=dict, description="Cooling units (CDUs) with a Redfish service of their own, by name"
    )


class Bmc(Part):
    """The node's BMC and what it must report."""

    redfish: RedfishEndpoint | None = Field(None, description="The node's own BMC; unset = not asked")
    bios_version: str | None = Field(None, description="BIOS version; unset = not compared")
    bios: dict[str, str | int | bool] = Field(
        default_factory=dict, description="BIOS attributes by their Redfish name, e.g. ACSControl: Disabled"
    )
    firmware: dict[str, str] = Field(
        default_factory=dict,
        description="Least firmware version by inventory id (`*` matches), e.g. HGX_FW_NVSwitch_*: 96.10.6D",
    )
    power_state: bool = Field(True, description="The system must report power On; false = not compared")
    cooling: Cooling = Field(default_factory=Cooling, description="Coolant and air")
