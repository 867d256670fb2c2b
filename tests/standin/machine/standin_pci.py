"""PCI configuration space of the stand-in: config files below sys/bus/pci/devices."""

from __future__ import annotations

import pathlib

from standin import sysfs

CAP_POINTER, CAP_EXPRESS = 0x34, 0x10
#: Access control services: its number, its control word, and what a bridge does with ACS on.
CAP_ACS, ACS_CONTROL, ACS_ON = 0x000D, 6, 0x001D
#: Device Control, and where the largest read request is in it.
DEVICE_CONTROL, READ_REQUEST_SHIFT, READ_REQUEST_MASK = 0x08, 12, 0x7000


def config_file(address: str) -> pathlib.Path:
    """The config file of a device; its domain may be left away."""
    return sysfs(f"bus/pci/devices/{address if address.count(':') == 2 else f'0000:{address}'}/config")


def capability(config: bytes, wanted: int) -> int | None:
    """Where a capability begins, None without it."""
    at, hops = config[CAP_POINTER] if len(config) > CAP_POINTER else 0, 0
    while at and at + 1 < len(config) and hops < 48:
        if config[at] == wanted:
            return at
        at, hops = config[at + 1], hops + 1
    return None


def extended(config: bytes, wanted: int) -> int | None:
    """Where an extended capability begins, None without it."""
    at, hops = 0x100, 0
    while at and at + 4 <= len(config) and hops < 480:
        word = int.from_bytes(config[at : at + 4], "little")
        if word & 0xFFFF == wanted:
            return at
        at, hops = word >> 20, hops + 1
    return None


def read(address: str, at: int, width: int) -> int | None:
    """A register of 1, 2 or 4 bytes, None without it."""
    config = config_file(address).read_bytes()
    return int.from_bytes(config[at : at + width], "little") if at + width <= len(config) else None


def write(address: str, at: int, width: int, value: int, mask: int) -> None:
    """Change the bits of a register that are in the mask."""
    path = config_file(address)
    config = bytearray(path.read_bytes())
    old = int.from_bytes(config[at : at + width], "little")
    config[at : at + width] = (old & ~mask | value & mask).to_bytes(width, "little")
    path.write_bytes(config)


def set_read_request(address: str, size_b: int) -> None:
    """The largest read request of a device, 128 to 4096 bytes."""
    at = capability(config_file(address).read_bytes(), CAP_EXPRESS)
    if at is not None:
        code = size_b.bit_length() - 8
        write(address, at + DEVICE_CONTROL, 2, code << READ_REQUEST_SHIFT, READ_REQUEST_MASK)


def switch_acs_on() -> None:
    """Every bridge with access control services redirects, as a BIOS that enables ACS leaves it."""
    for folder in sysfs("bus/pci/devices").iterdir():
        file = folder / "config"
        if not file.exists() or not (folder / "class").read_text(encoding="utf-8").startswith("0x0604"):
            continue
        at = extended(file.read_bytes(), CAP_ACS)
        if at is not None:
            write(folder.name, at + ACS_CONTROL, 2, ACS_ON, 0xFFFF)
