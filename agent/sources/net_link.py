"""Interface state: RTM_GETLINK and RTM_NEWLINK, read with pyroute2's ifinfmsg (rtnetlink(7))."""

from __future__ import annotations

import struct
from typing import Any

from pyroute2.netlink.exceptions import NetlinkDecodeError
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg

from agent.errors import ParseError
from agent.sources import LinkInfo
from agent.sources.net_wire import NLM_F_REQUEST, ask, attribute, check_name, message

RTM_NEWLINK = 16
RTM_DELLINK = 17
RTM_GETLINK = 18
_IFINFO = struct.Struct("=BxHiII")
_IFLA_IFNAME = 3
_IFLA_EXT_MASK = 29
#: RTEXT_FILTER_SKIP_STATS: no counters in the answer, they are read elsewhere.
_SKIP_STATS = 8


def get_link_request(sequence: int, netdev: str | None, flags: int = NLM_F_REQUEST) -> bytes:
    """Ask for one interface by name, or with NLM_F_DUMP and no name for all."""
    body = _IFINFO.pack(0, 0, 0, 0, 0)
    if netdev is not None:
        body += attribute(_IFLA_IFNAME, netdev.encode(errors="surrogateescape") + b"\0")
    body += attribute(_IFLA_EXT_MASK, struct.pack("=I", _SKIP_STATS))
    return message(RTM_GETLINK, flags, sequence, body)


def parse_link(data: bytes) -> tuple[int, LinkInfo]:
    """(index, state) in one RTM_NEWLINK or RTM_DELLINK message. Raises ParseError."""
    try:
        decoded: Any = ifinfmsg(data)
        decoded.decode()
        name = decoded.get_attr("IFLA_IFNAME")
        operstate = decoded.get_attr("IFLA_OPERSTATE")
        carrier = decoded.get_attr("IFLA_CARRIER")
        mtu = decoded.get_attr("IFLA_MTU")
        downs = decoded.get_attr("IFLA_CARRIER_DOWN_COUNT")
        index = decoded["index"]
    except (NetlinkDecodeError, struct.error, KeyError, IndexError, ValueError, TypeError) as cause:
        raise ParseError(f"netlink: cannot read a link message: {cause}") from cause
    if not isinstance(name, str) or not isinstance(operstate, str) or carrier is None or mtu is None:
        raise ParseError(f"netlink: link message without name, state, carrier or MTU ({name!r})")
    info = LinkInfo(
        name=name,
        operstate=operstate.lower(),
        carrier=bool(carrier),
        mtu_bytes=int(mtu),
        carrier_down_count=None if downs is None else int(downs),
    )
    return int(index), info


def read_link(netdev: str) -> LinkInfo:
    """State of one interface. Raises DeviceAbsent and other SourceErrors."""
    check_name(netdev)
    _index, info = parse_link(ask(f"link {netdev}", get_link_request(1, netdev)))
    return info
