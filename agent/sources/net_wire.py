"""Netlink on the wire: one request and its answer over a plain socket, and a strict walk over attributes.

Format: netlink(7), rtnetlink(7), https://docs.kernel.org/userspace-api/netlink/intro.html
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterator

from agent.errors import DeviceAbsent, NotSupported, ParseError, SourceError, SourceTimeout, SourceUnavailable

NLM_F_REQUEST = 0x1
NLM_F_DUMP = 0x300
NLMSG_ERROR = 2
NLMSG_DONE = 3
HEADER = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")
_ERROR = struct.Struct("=i")
#: The two top bits of an attribute's type are flags (NLA_F_NESTED, NLA_F_NET_BYTEORDER).
_TYPE_MASK = 0x3FFF
_RECEIVE_B = 1 << 20
DEADLINE_S = 2.0
#: Longest interface name (IFNAMSIZ with its NUL is 16).
NAME_LIMIT = 15


def check_name(netdev: str) -> None:
    """Refuse what can be no interface's name. Raises DeviceAbsent."""
    name = netdev.encode(errors="surrogateescape")
    if not 0 < len(name) <= NAME_LIMIT or b"/" in name or b"\0" in name:
        raise DeviceAbsent(f"there is no network interface {netdev!r}")


def errno_error(what: str, number: int) -> SourceError:
    """The SourceError that stands for the kernel's refusal."""
    if number in (errno.ENODEV, errno.ENXIO):
        return DeviceAbsent(f"{what}: there is no such network interface")
    if number in (errno.EOPNOTSUPP, errno.ENOSYS):
        return NotSupported(f"{what}: the driver does not have it")
    return SourceUnavailable(f"{what}: {os.strerror(number)}")


def messages(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """(type, sequence number, whole message) of each message in a datagram. Raises ParseError."""
    at = 0
    while at < len(data):
        if at + HEADER.size > len(data):
            raise ParseError("netlink: message header cut short")
        length, kind, _flags, sequence, _port = HEADER.unpack_from(data, at)
        if length < HEADER.size or at + length > len(data):
            raise ParseError(f"netlink: message of {length} bytes in {len(data) - at}")
        yield kind, sequence, data[at : at + length]
        at += (length + 3) & ~3


def attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """(type, payload) of each attribute. Raises ParseError."""
    at = 0
    while at < len(data):
        if at + _ATTRIBUTE.size > len(data):
            raise ParseError("netlink: attribute header cut short")
        length, kind = _ATTRIBUTE.unpack_from(data, at)
        if length < _ATTRIBUTE.size or at + length > len(data):
            raise ParseError(f"netlink: attribute of {length} bytes in {len(data) - at}")
        yield kind & _TYPE_MASK, data[at + _ATTRIBUTE.size : at + length]
        at += (length + 3) & ~3


def attribute(kind: int, payload: bytes) -> bytes:
    """One attribute, padded."""
    length = _ATTRIBUTE.size + len(payload)
    return _ATTRIBUTE.pack(length, kind) + payload + b"\0" * (-length % 4)


def message(kind: int, flags: int, sequence: int, body: bytes) -> bytes:
    """One message."""
    return HEADER.pack(HEADER.size + len(body), kind, flags, sequence, 0) + body


def error_number(data: bytes) -> int:
    """The errno of an NLMSG_ERROR message; 0 is an acknowledgement. Raises ParseError."""
    if len(data) < HEADER.size + _ERROR.size:
        raise ParseError("netlink: error message cut short")
    number: int = _ERROR.unpack_from(data, HEADER.size)[0]
    return -number


def open_socket(groups: int = 0, family: int = socket.NETLINK_ROUTE) -> socket.socket:
    """A bound netlink socket with a deadline. Raises OSError."""
    opened = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, family)
    try:
        opened.bind((0, groups))
        opened.settimeout(DEADLINE_S)
    except OSError:
        opened.close()
        raise
    return opened


def ask(what: str, request: bytes, family: int = socket.NETLINK_ROUTE) -> bytes:
    """Send one request that has one answer. Raises SourceErrors.

    A socket for each request costs 20 us and spares every kind of shared state between threads.
    """
    _length, _kind, _flags, sequence, _port = HEADER.unpack_from(request)
    try:
        with open_socket(family=family) as opened:
            opened.send(request)
            return _answer(what, opened.recv(_RECEIVE_B), sequence)
    except TimeoutError as cause:
        raise SourceTimeout(f"{what}: no answer within {DEADLINE_S:g} s") from cause
    except OSError as cause:
        raise SourceUnavailable(f"{what}: {cause.strerror or cause}") from cause


def _answer(what: str, data: bytes, sequence: int) -> bytes:
    for kind, answered, whole in messages(data):
        if answered != sequence:
            continue
        if kind != NLMSG_ERROR:
            return whole
        number = error_number(whole)
        if number:
            raise errno_error(what, number)
    raise ParseError(f"{what}: the kernel's answer is of another request")
