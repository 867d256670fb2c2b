"""Driver statistics of an interface (include/uapi/linux/ethtool.h: ETHTOOL_GSSET_INFO, GSTRINGS, GSTATS)."""

from __future__ import annotations

import ctypes
import fcntl
import socket
import struct

from agent.errors import NotSupported, ParseError
from agent.sources.net_wire import check_name, errno_error

SIOCETHTOOL = 0x8946
ETHTOOL_GSTRINGS = 0x1B
ETHTOOL_GSTATS = 0x1D
ETHTOOL_GSSET_INFO = 0x37
ETH_SS_STATS = 1
_NAME_B = 32
_VALUE_B = 8
#: The kernel copies as many values as the driver has *now*, whatever was asked for; it may have more by then.
_SLACK = 8192


def read_stats(netdev: str) -> dict[str, int]:
    """Statistics by name. Raises DeviceAbsent, NotSupported and other SourceErrors."""
    check_name(netdev)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as opened:
        count = _count(opened, netdev)
        ask_names = struct.pack("=III", ETHTOOL_GSTRINGS, ETH_SS_STATS, count)
        names = _call(opened, netdev, ask_names, count * _NAME_B)
        values = _call(opened, netdev, struct.pack("=II", ETHTOOL_GSTATS, count), count * _VALUE_B)
    return parse_stats(names, values)


def parse_stats(names: bytes, values: bytes) -> dict[str, int]:
    """Join the answers of GSTRINGS and GSTATS. Raises ParseError."""
    if len(names) < 12 or len(values) < 8:
        raise ParseError("ethtool: answer cut short")
    count: int = struct.unpack_from("=I", names, 8)[0]
    if struct.unpack_from("=I", values, 4)[0] != count:
        raise ParseError("ethtool: the statistics changed while they were read")
    if len(names) < 12 + count * _NAME_B or len(values) < 8 + count * _VALUE_B:
        raise ParseError("ethtool: answer cut short")
    numbers = struct.unpack_from(f"={count}Q", values, 8)
    stats: dict[str, int] = {}
    for i, number in enumerate(numbers):
        raw = names[12 + i * _NAME_B : 12 + (i + 1) * _NAME_B].split(b"\0", 1)[0]
        if raw:
            stats[raw.decode("ascii", errors="replace").strip()] = number
    return stats


def _count(opened: socket.socket, netdev: str) -> int:
    answer = _call(opened, netdev, struct.pack("=IIQ", ETHTOOL_GSSET_INFO, 0, 1 << ETH_SS_STATS), 4)
    _command, _reserved, mask, count = struct.unpack_from("=IIQI", answer)
    if not mask & 1 << ETH_SS_STATS or count == 0:
        raise NotSupported(f"ethtool {netdev}: the driver has no statistics")
    return int(count)


def ethtool_command(netdev: str, command: bytes, answer_b: int) -> bytes:
    """One command on a socket of its own; the answer begins with the command. Raises SourceErrors."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as opened:
        return _call(opened, netdev, command, answer_b)


def _call(opened: socket.socket, netdev: str, command: bytes, payload_b: int) -> bytes:
    """One ioctl; the buffer after it, without the slack."""
    buffer = ctypes.create_string_buffer(command, len(command) + payload_b + _SLACK * _NAME_B)
    request = struct.pack("16sP16x", netdev.encode(errors="surrogateescape"), ctypes.addressof(buffer))
    try:
        fcntl.ioctl(opened.fileno(), SIOCETHTOOL, request)
    except OSError as cause:
        raise errno_error(f"ethtool {netdev}", cause.errno or 0) from cause
    return buffer.raw
