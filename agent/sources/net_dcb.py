"""Data Center Bridging state: RTM_GETDCB with DCB_CMD_IEEE_GET (include/uapi/linux/dcbnl.h, dcb(8))."""

from __future__ import annotations

import struct

from agent.errors import NotSupported, ParseError
from agent.sources import DcbInfo
from agent.sources.net_wire import HEADER, NLM_F_REQUEST, ask, attribute, attributes, check_name, message

RTM_GETDCB = 78
RTM_SETDCB = 79
DCB_CMD_IEEE_GET = 21
DCB_ATTR_IFNAME = 1
DCB_ATTR_IEEE = 13
DCB_ATTR_DCBX = 14
DCB_ATTR_IEEE_PFC = 2
DCB_ATTR_IEEE_APP_TABLE = 3
DCB_ATTR_IEEE_APP = 1
DCB_CAP_DCBX_HOST = 0x01
APP_SELECTOR_DSCP = 5
_DCBMSG = struct.Struct("=BBH")
_APP = struct.Struct("=BBH")
_AF_UNSPEC = 0
_PRIORITIES = 8


def get_dcb_request(sequence: int, netdev: str) -> bytes:
    """Ask for the IEEE 802.1Qaz state of one interface."""
    name = attribute(DCB_ATTR_IFNAME, netdev.encode(errors="surrogateescape") + b"\0")
    body = _DCBMSG.pack(_AF_UNSPEC, DCB_CMD_IEEE_GET, 0) + name
    return message(RTM_GETDCB, NLM_F_REQUEST, sequence, body)


def parse_dcb(data: bytes) -> DcbInfo:
    """The state in one answer. Raises ParseError, NotSupported when the driver has no PFC."""
    if len(data) < HEADER.size + _DCBMSG.size:
        raise ParseError("netlink: DCB message cut short")
    if HEADER.unpack_from(data)[1] not in (RTM_GETDCB, RTM_SETDCB):
        raise ParseError("netlink: the answer is not a DCB message")
    top = dict(attributes(data[HEADER.size + _DCBMSG.size :]))
    if DCB_ATTR_IEEE not in top:
        raise ParseError("netlink: DCB answer without its IEEE part")
    ieee = dict(attributes(top[DCB_ATTR_IEEE]))
    if DCB_ATTR_IEEE_PFC not in ieee:
        raise NotSupported("the driver tells nothing of PFC")
    by_dscp = _dscp_to_priority(ieee.get(DCB_ATTR_IEEE_APP_TABLE, b""))
    dcbx = top.get(DCB_ATTR_DCBX)
    if dcbx is not None and len(dcbx) != 1:
        raise ParseError("netlink: DCBX mode is not one byte")
    return DcbInfo(
        pfc_on=_pfc_on(ieee[DCB_ATTR_IEEE_PFC]),
        trust="dscp" if by_dscp else "pcp",
        dscp_to_priority=by_dscp,
        # A driver without a DCBX mode has no firmware agent that could own it.
        host_managed=dcbx is None or bool(dcbx[0] & DCB_CAP_DCBX_HOST),
    )


def _pfc_on(payload: bytes) -> tuple[bool, ...]:
    """struct ieee_pfc: pfc_cap, then the bit mask pfc_en."""
    if len(payload) < 2:
        raise ParseError("netlink: PFC state cut short")
    return tuple(bool(payload[1] >> priority & 1) for priority in range(_PRIORITIES))


def _dscp_to_priority(table: bytes) -> dict[int, int]:
    """struct dcb_app: selector, priority, protocol (the DSCP, for that selector)."""
    found: dict[int, int] = {}
    for kind, payload in attributes(table):
        if kind != DCB_ATTR_IEEE_APP:
            continue
        if len(payload) < _APP.size:
            raise ParseError("netlink: APP entry cut short")
        selector, priority, protocol = _APP.unpack_from(payload)
        if selector == APP_SELECTOR_DSCP:
            found[protocol] = priority
    return found


def read_dcb(netdev: str) -> DcbInfo:
    """DCB state of one interface. Raises DeviceAbsent, NotSupported and other SourceErrors."""
    check_name(netdev)
    return parse_dcb(ask(f"DCB {netdev}", get_dcb_request(1, netdev)))
