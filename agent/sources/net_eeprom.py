"""Module EEPROM over generic netlink (ETHTOOL_MSG_MODULE_EEPROM_GET, Linux 5.13; needs CAP_NET_ADMIN).

https://docs.kernel.org/networking/ethtool-netlink.html#module-eeprom-get. The older ioctl knows no pages of
its own, so OSFP and QSFP112 modules (CMIS) are out of its reach. Read rarely: each refused read of a module
kind that the mlx5 driver does not know writes a line to the kernel log.
"""

from __future__ import annotations

import struct

from agent.errors import NotSupported, ParseError, SourceUnavailable
from agent.sources import ModuleInfo
from agent.sources.net_module import LOWER, parse_module
from agent.sources.net_wire import HEADER, NLM_F_REQUEST, ask, attribute, attributes, check_name, message

NETLINK_GENERIC = 16
GENL_ID_CTRL = 0x10
CTRL_CMD_GETFAMILY = 3
CTRL_ATTR_FAMILY_ID = 1
CTRL_ATTR_FAMILY_NAME = 2
ETHTOOL_MSG_MODULE_EEPROM_GET = 31
A_HEADER, A_OFFSET, A_LENGTH, A_PAGE, A_BANK, A_I2C_ADDRESS, A_DATA = 1, 2, 3, 4, 5, 6, 7
A_HEADER_DEV_NAME = 2
NLA_F_NESTED = 0x8000
I2C_ADDRESS = 0x50
HALF_PAGE_B = 128
_GENL = struct.Struct("=BBH")
_VERSION = 1


def family_request(sequence: int) -> bytes:
    """Ask for the number of the generic netlink family `ethtool`."""
    body = _GENL.pack(CTRL_CMD_GETFAMILY, _VERSION, 0) + attribute(CTRL_ATTR_FAMILY_NAME, b"ethtool\0")
    return message(GENL_ID_CTRL, NLM_F_REQUEST, sequence, body)


def parse_family(data: bytes) -> int:
    """The family's number. Raises ParseError."""
    number = _body(data).get(CTRL_ATTR_FAMILY_ID, b"")
    if len(number) != 2:
        raise ParseError("netlink: no number of the ethtool family in the answer")
    return int(struct.unpack("=H", number)[0])


def eeprom_request(family: int, sequence: int, netdev: str, page: int) -> bytes:
    """Ask for the half page that tells most: the lower memory, or the upper half of a page above it.

    `page` 0 and more are upper halves, LOWER is the memory that every page shares.
    """
    offset = 0 if page == LOWER else HALF_PAGE_B
    name = attribute(A_HEADER_DEV_NAME, netdev.encode(errors="surrogateescape") + b"\0")
    body = _GENL.pack(ETHTOOL_MSG_MODULE_EEPROM_GET, _VERSION, 0)
    body += attribute(A_HEADER | NLA_F_NESTED, name)
    body += attribute(A_OFFSET, struct.pack("=I", offset))
    body += attribute(A_LENGTH, struct.pack("=I", HALF_PAGE_B))
    body += attribute(A_PAGE, bytes([max(0, page)]))
    body += attribute(A_BANK, b"\0")
    body += attribute(A_I2C_ADDRESS, bytes([I2C_ADDRESS]))
    return message(family, NLM_F_REQUEST, sequence, body)


def parse_eeprom(data: bytes) -> bytes:
    """The 128 bytes of one half page. Raises ParseError."""
    half = _body(data).get(A_DATA, b"")
    if len(half) < HALF_PAGE_B:
        raise ParseError(f"the module answered {len(half)} of {HALF_PAGE_B} bytes")
    return half


def read_module(netdev: str) -> ModuleInfo:
    """The plugged module of one interface. Raises DeviceAbsent, NotSupported and other SourceErrors."""
    check_name(netdev)
    what = f"module of {netdev}"
    family = parse_family(ask("ethtool over netlink", family_request(1), NETLINK_GENERIC))

    def page(number: int) -> bytes:
        request = eeprom_request(family, number + 3, netdev, number)
        return parse_eeprom(ask(what, request, NETLINK_GENERIC))

    try:
        return parse_module(page)
    except SourceUnavailable as cause:
        raise _worded(what, cause) from cause


def _worded(what: str, cause: SourceUnavailable) -> SourceUnavailable | NotSupported:
    """What the errno of a refusal means here."""
    text = str(cause)
    if text.endswith("Operation not permitted"):
        return SourceUnavailable(f"{what}: only root or CAP_NET_ADMIN may read it")
    if text.endswith("Invalid argument"):
        return NotSupported(f"{what}: the driver cannot read this kind of module")
    return cause


def _body(data: bytes) -> dict[int, bytes]:
    if len(data) < HEADER.size + _GENL.size:
        raise ParseError("netlink: generic message cut short")
    return dict(attributes(data[HEADER.size + _GENL.size :]))
