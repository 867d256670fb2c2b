"""PCI configuration space (/sys/bus/pci/devices/*/config): capabilities, MaxReadReq, ACS control. Pure.

Offsets are those of include/uapi/linux/pci_regs.h:
https://git.kernel.org/pub/scm/linux/kernel/git/torvalds/linux.git/tree/include/uapi/linux/pci_regs.h
Without CAP_SYS_ADMIN the kernel shows the first 64 bytes only; extended capabilities begin at byte 256.
"""

from __future__ import annotations

from agent.errors import DeviceLost, NotSupported, ParseError, SourceUnavailable

HEADER_B = 64
EXTENDED_B = 256
#: PCI_CAP_ID_EXP, PCI_EXT_CAP_ID_ACS
CAP_EXPRESS = 0x10
CAP_EXTENDED_ACS = 0x000D

_STATUS, _STATUS_CAPABILITIES = 0x06, 0x10
_FIRST_CAPABILITY = 0x34
_DEVICE_CONTROL = 0x08
_LINK_CONTROL = 0x10
_ACS_CONTROL = 0x06
#: A list has at most this many entries that fit; a longer walk is a loop.
_MOST_CAPABILITIES = 48
_MOST_EXTENDED = (4096 - EXTENDED_B) // 8


def capability(data: bytes, cap_id: int) -> int:
    """Offset of a capability (`CAP_EXPRESS`).

    Raises NotSupported (the device has none), SourceUnavailable (the bytes shown end before it),
    DeviceLost (all ones: nothing answers at this address), ParseError (not a configuration space).
    """
    _proven(data)
    if not _word(data, _STATUS) & _STATUS_CAPABILITIES:
        raise NotSupported("the device has no capability list")
    at = data[_FIRST_CAPABILITY] & 0xFC
    for _ in range(_MOST_CAPABILITIES):
        if at == 0:
            raise NotSupported(f"the device has no capability {cap_id:#04x}")
        if at < HEADER_B:
            raise ParseError(f"a PCI capability at byte {at} lies inside the header")
        _reaches(data, at + 2)
        if data[at] == cap_id:
            return at
        at = data[at + 1] & 0xFC
    raise ParseError("the list of PCI capabilities is a loop")


def extended_capability(data: bytes, cap_id: int) -> int:
    """Offset of an extended capability (`CAP_EXTENDED_ACS`); raises as capability() does."""
    _proven(data)
    at = EXTENDED_B
    for _ in range(_MOST_EXTENDED):
        _reaches(data, at + 4)
        header = int.from_bytes(data[at : at + 4], "little")
        if header == 0xFFFF_FFFF:
            raise NotSupported("the device answers no extended configuration space")
        if header & 0xFFFF == cap_id:
            return at
        at = (header >> 20) & 0xFFC
        if at == 0:
            raise NotSupported(f"the device has no extended capability {cap_id:#06x}")
        if at < EXTENDED_B:
            raise ParseError(f"an extended PCI capability at byte {at} lies before byte {EXTENDED_B}")
    raise ParseError("the list of extended PCI capabilities is a loop")


def max_read_request_bytes(data: bytes) -> int:
    """MaxReadReq of a PCIe device in bytes (Device Control, bits 14:12); raises as capability() does."""
    at = capability(data, CAP_EXPRESS) + _DEVICE_CONTROL
    _reaches(data, at + 2)
    code = _word(data, at) >> 12 & 7
    if code > 5:
        raise ParseError(f"MaxReadReq reads {code}, which stands for no size")
    return 128 << code


def aspm_control(data: bytes) -> int:
    """ASPM bits of a PCIe device (Link Control, bits 1:0): 1 = L0s, 2 = L1; raises as capability() does."""
    at = capability(data, CAP_EXPRESS) + _LINK_CONTROL
    _reaches(data, at + 2)
    return _word(data, at) & 3


def acs_control(data: bytes) -> int:
    """The ACS control register of a PCIe port (PCI_ACS_SV, _TB, _RR, _CR, _UF, _EC, _DT bits)."""
    at = extended_capability(data, CAP_EXTENDED_ACS) + _ACS_CONTROL
    _reaches(data, at + 2)
    return _word(data, at)


def _word(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 2], "little")


def _reaches(data: bytes, end: int) -> None:
    """Refuse to judge what the kernel did not show."""
    if len(data) >= end:
        return
    if len(data) == HEADER_B:
        raise SourceUnavailable("only root may read PCI configuration space past its first 64 bytes")
    raise SourceUnavailable(f"PCI configuration space is shown to byte {len(data)} only")


def _proven(data: bytes) -> None:
    """Refuse what cannot be a device's configuration space."""
    if len(data) < HEADER_B:
        raise ParseError(f"{len(data)} bytes are no PCI configuration space")
    vendor = _word(data, 0)
    if vendor == 0xFFFF:
        raise DeviceLost("the device does not answer on PCI: its configuration space reads all ones")
    if vendor == 0:
        raise ParseError("a PCI device of vendor 0 cannot be")
