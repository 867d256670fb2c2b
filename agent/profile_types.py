"""What every part of a profile is built from."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field


class Part(BaseModel):
    """Base of every part of a profile: unknown keys are refused, values cannot change."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


_HOST_NAME = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(\.(?!-)[A-Za-z0-9_-]{1,63})*")
_LONGEST_HOST = 253


def _host(text: str) -> str:
    """An IPv4 or IPv6 address or a host name, as it stands in a URL."""
    try:
        if "%" not in text:
            ipaddress.ip_address(text)
            return text
    except ValueError:
        if len(text) <= _LONGEST_HOST and _HOST_NAME.fullmatch(text):
            return text
    raise ValueError("write an IP address or a host name, without brackets, zone or port")


def _no_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("a path cannot hold a NUL byte")
    return text


#: IPv4 addresses as sockets show them to programs, never as packets have them.
_MAPPED = ipaddress.IPv6Network("::ffff:0:0/96")


def _network(text: str) -> str:
    """An address or a network, as nft takes it; it knows no zones."""
    if "%" in text:
        raise ValueError("write an IP address or a network without a zone (%)")
    try:
        network = ipaddress.ip_network(text)
    except ValueError:
        pass
    else:
        if network.version == 6 and network.subnet_of(_MAPPED):
            raise ValueError("no packet has such an address: write it as IPv4")
        return str(network)
    try:
        meant = f": its network is {ipaddress.ip_network(text, strict=False)}"
    except ValueError:
        meant = ""
    raise ValueError(f"write an IP address, or a network such as 192.0.2.0/24{meant}")


Network = Annotated[str, AfterValidator(_network)]
PathText = Annotated[str, AfterValidator(_no_nul)]
Host = Annotated[str, AfterValidator(_host)]
Port = Annotated[int, Field(ge=1, le=65535)]
Slot = Annotated[int, Field(ge=0, le=63)]
Priority = Annotated[int, Field(ge=0, le=7)]
GPU_UUID = r"^GPU-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"
