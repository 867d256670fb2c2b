"""Driver, global pause and ring sizes of an interface (include/uapi/linux/ethtool.h).

ETHTOOL_GDRVINFO, ETHTOOL_GPAUSEPARAM and ETHTOOL_GRINGPARAM are open to every user. A driver that is part of
the kernel reports the kernel's release as its version.
"""

from __future__ import annotations

import struct

from agent.errors import ParseError
from agent.sources import DriverInfo, PauseInfo, RingInfo
from agent.sources.net_ethtool import ethtool_command
from agent.sources.net_wire import check_name

ETHTOOL_GDRVINFO = 0x03
ETHTOOL_GPAUSEPARAM = 0x12
ETHTOOL_GRINGPARAM = 0x10
_DRVINFO = struct.Struct("=I32s32s32s32s32s12sIIIII")
_PAUSEPARAM = struct.Struct("=IIII")
#: command; at most rx, mini, jumbo, tx; now rx, mini, jumbo, tx
_RINGPARAM = struct.Struct("=9I")


def read_driver(netdev: str) -> DriverInfo:
    """Driver and firmware of one interface. Raises DeviceAbsent, NotSupported and other SourceErrors."""
    check_name(netdev)
    return parse_driver(ethtool_command(netdev, struct.pack("=I", ETHTOOL_GDRVINFO), _DRVINFO.size))


def parse_driver(data: bytes) -> DriverInfo:
    """struct ethtool_drvinfo. Raises ParseError."""
    if len(data) < _DRVINFO.size:
        raise ParseError("ethtool: driver information cut short")
    command, *fields = _DRVINFO.unpack_from(data)
    driver, version, firmware, bus_info = (_text(field) for field in fields[:4])
    if command != ETHTOOL_GDRVINFO or not driver:
        raise ParseError("ethtool: the answer names no driver")
    return DriverInfo(driver=driver, version=version, firmware=firmware, bus_info=bus_info)


def read_pause(netdev: str) -> PauseInfo:
    """Global pause of one interface. Raises DeviceAbsent, NotSupported and other SourceErrors."""
    check_name(netdev)
    return parse_pause(ethtool_command(netdev, struct.pack("=I", ETHTOOL_GPAUSEPARAM), _PAUSEPARAM.size))


def parse_pause(data: bytes) -> PauseInfo:
    """struct ethtool_pauseparam. Raises ParseError."""
    if len(data) < _PAUSEPARAM.size:
        raise ParseError("ethtool: pause parameters cut short")
    command, autonegotiated, rx, tx = _PAUSEPARAM.unpack_from(data)
    if command != ETHTOOL_GPAUSEPARAM:
        raise ParseError("ethtool: the answer is not about pause")
    return PauseInfo(autonegotiated=bool(autonegotiated), rx=bool(rx), tx=bool(tx))


def read_ring(netdev: str) -> RingInfo:
    """Ring sizes of one interface. Raises DeviceAbsent, NotSupported and other SourceErrors."""
    check_name(netdev)
    return parse_ring(ethtool_command(netdev, struct.pack("=I", ETHTOOL_GRINGPARAM), _RINGPARAM.size))


def parse_ring(data: bytes) -> RingInfo:
    """struct ethtool_ringparam. Raises ParseError."""
    if len(data) < _RINGPARAM.size:
        raise ParseError("ethtool: ring parameters cut short")
    command, rx_max, _, _, tx_max, rx, _, _, tx = _RINGPARAM.unpack_from(data)
    if command != ETHTOOL_GRINGPARAM:
        raise ParseError("ethtool: the answer is not about rings")
    return RingInfo(rx=rx, tx=tx, rx_max=rx_max, tx_max=tx_max)


def _text(raw: bytes) -> str:
    return raw.split(b"\0", 1)[0].decode("ascii", errors="replace").strip()
