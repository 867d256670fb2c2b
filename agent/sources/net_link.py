"""Interface state: RTM_GETLINK and RTM_NEWLINK (rtnetlink(7), include/uapi/linux/if_link.h)."""

from __future__ import annotations

import struct

from agent.errors import ParseError
from agent.sources import LinkInfo
from agent.sources.net_wire import HEADER, NLM_F_REQUEST, ask, attribute, attributes, check_name, message

RTM_NEWLINK = 16
RTM_DELLINK = 17
RTM_GETLINK = 18
_IFINFO = struct.Struct("=BxHiII")
_NUMBER = struct.Struct("=I")
_IFLA_IFNAME = 3
_IFLA_MTU = 4
_IFLA_OPERSTATE = 16
_IFLA_EXT_MASK = 29
_IFLA_CARRIER = 33
_IFLA_CARRIER_DOWN = 48
#: IF_OPER_* of include/uapi/linux/if.h, by number.
_OPERSTATES = ("unknown", "notpresent", "down", "lowerlayerdown", "testing", "dormant", "up")
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
        _family, _kind, index, _flags, _change = _IFINFO.unpack_from(data, HEADER.size)
        told = dict(attributes(data[HEADER.size + _IFINFO.size :]))
        name = told[_IFLA_IFNAME].rstrip(b"\0").decode(errors="surrogateescape")
        operstate = _OPERSTATES[told[_IFLA_OPERSTATE][0]]
        carrier = told[_IFLA_CARRIER][0]
        mtu_bytes = _NUMBER.unpack(told[_IFLA_MTU])[0]
        downs = _NUMBER.unpack(told[_IFLA_CARRIER_DOWN]) if _IFLA_CARRIER_DOWN in told else None
    except (struct.error, KeyError, IndexError) as cause:
        raise ParseError(f"netlink: cannot read a link message: {cause}") from cause
    if not name:
        raise ParseError("netlink: link message of an interface without a name")
    return index, LinkInfo(name, operstate, bool(carrier), mtu_bytes, downs[0] if downs else None)


def read_link(netdev: str) -> LinkInfo:
    """State of one interface. Raises DeviceAbsent and other SourceErrors."""
    check_name(netdev)
    _index, info = parse_link(ask(f"link {netdev}", get_link_request(1, netdev)))
    return info
