"""Redfish documents (DMTF DSP0266) of a BMC or a cooling unit: the protocol that checks read by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from agent.errors import SourceUnavailable

if TYPE_CHECKING:  # the schema is heavy, and the NVML process imports this package
    from agent.bmc_profile import RedfishEndpoint

#: Name of the node's own BMC; cooling units have the names that the profile gives them.
NODE_BMC = "node"


class Bmc(Protocol):
    """Redfish services."""

    def get(self, name: str, endpoint: RedfishEndpoint, path: str) -> Mapping[str, Any]:
        """The JSON object at a path (`/redfish/v1/Systems/1`). `name` is NODE_BMC or a cooling unit's name.

        Raises DeviceAbsent (404), SourceTimeout, SourceUnavailable (no connection, TLS, login), ParseError.
        """


class NoBmc:
    """No Redfish service is known; what sources without one answer."""

    def get(self, name: str, endpoint: RedfishEndpoint, path: str) -> Mapping[str, Any]:
        """Raises SourceUnavailable."""
        del endpoint
        raise SourceUnavailable(f"nothing is known of {path} of the Redfish service {name} here")
