#!/usr/bin/python3 -ES
"""Stand-in for setpci (pciutils): registers by number, capability and extended capability. SIMULATED."""

from __future__ import annotations

import re

import standin
import standin_pci
from standin import Machine, Refused

_OPERATION = re.compile(
    r"(?P<base>[A-Za-z_]+[A-Za-z_0-9]*(?=\+|\.|=|$)|[0-9a-fA-F]+)(?:\+(?P<at>[0-9a-fA-F]+))?"
    r"(?:\.(?P<width>[bBwWlL]))?(?:=(?P<value>[0-9a-fA-F]+)(?::(?P<mask>[0-9a-fA-F]+))?)?"
)
NAMED = {"COMMAND": (0x04, 2), "STATUS": (0x06, 2), "VENDOR_ID": (0x00, 2), "DEVICE_ID": (0x02, 2)}
CAPABILITIES = {"CAP_PM": 0x01, "CAP_EXP": 0x10, "CAP_MSIX": 0x11, "CAP_MSI": 0x05, "CAP_VNDR": 0x09}
EXTENDED = {"ECAP_AER": 0x0001, "ECAP_ACS": 0x000D, "ECAP_ATS": 0x000F, "ECAP_SRIOV": 0x0010}
WIDTHS = {"b": 1, "w": 2, "l": 4}


def register(address: str, base: str) -> tuple[int, int]:
    """Where a register is, and its width (0 = must be given)."""
    config = standin_pci.config_file(address).read_bytes()
    name = base.upper()
    if name in NAMED:
        return NAMED[name]
    if name in CAPABILITIES or re.fullmatch(r"CAP[0-9A-F]{1,2}", name):
        wanted = CAPABILITIES.get(name)
        at = standin_pci.capability(config, int(name[3:], 16) if wanted is None else wanted)
    elif name in EXTENDED:
        at = standin_pci.extended(config, EXTENDED[name])
    elif re.fullmatch(r"[0-9A-F]+", name):
        return int(name, 16), 0
    else:
        raise Refused(f'setpci: Unknown register "{base}"')
    if at is None:
        raise Refused(
            f"setpci: {address}: Instance #0 of {name} not found - there are no capabilities with that id."
        )
    return at, 0


def work(words: list[str], machine: Machine) -> str:
    address = standin.option(words, "-s") or ""
    if not address or not standin_pci.config_file(address).exists():
        raise Refused(f'setpci: Warning: No devices selected for "{address}".', 0 if address else 1)
    text = ""
    for word in [word for word in words if word not in ("-s", address) and not word.startswith("-")]:
        found = _OPERATION.fullmatch(word)
        if found is None:
            raise Refused(f'setpci: Unable to parse register "{word}"')
        at, width = register(address, found["base"])
        at += int(found["at"] or "0", 16)
        width = WIDTHS[found["width"].lower()] if found["width"] else width
        if not width:
            raise Refused(f'setpci: Missing width in "{word}".')
        if found["value"] is None:
            value = standin_pci.read(address, at, width)
            if value is None:
                raise Refused(f"setpci: {address}: read beyond the configuration space")
            text += f"{value:0{2 * width}x}\n"
        elif not machine.lie:
            mask = int(found["mask"], 16) if found["mask"] else (1 << 8 * width) - 1
            standin_pci.write(address, at, width, int(found["value"], 16), mask)
    return text


if __name__ == "__main__":
    standin.main("setpci", work)
