"""PCI addresses as kernel, NVML and profiles spell them, brought to one form: dddd:bb:dd.f in lower case."""

from __future__ import annotations

import re

from agent.errors import ParseError

_ADDRESS = re.compile(r"(?:([0-9a-fA-F]{4,8}):)?([0-9a-fA-F]{2}):([0-9a-fA-F]{2})(?:\.([0-7]))?")


def normal_address(text: str) -> str:
    """`00000000:05:00.0`, `0000:05:00` and `05:00.0` are all `0000:05:00.0`. Raises ParseError."""
    match = _ADDRESS.fullmatch(text.strip())
    if match is None:
        raise ParseError(f"{text[:40]!r} is not a PCI address")
    domain, bus, device, function = match.groups()
    return f"{int(domain or '0', 16):04x}:{bus.lower()}:{device.lower()}.{function or '0'}"


def find_address(text: str) -> str | None:
    """The first PCI address with a domain in a line of text, brought to the one spelling."""
    for match in _ADDRESS.finditer(text):
        if match.group(1) is not None:
            return normal_address(match.group())
    return None
