"""Vital product data of a PCI card (/sys/bus/pci/devices/ADDRESS/vpd): its serial number. Pure.

PCI Local Bus Specification 3.0, appendix I: tagged items, of which VPD-R holds keywords of two letters.
"""

from __future__ import annotations

from collections.abc import Iterator

from agent.errors import NotSupported, ParseError

_END, _READ_ONLY, _LARGE = 0x78, 0x90, 0x80


def serial_number(data: bytes) -> str:
    """The keyword SN. Raises ParseError, NotSupported when the card has none."""
    for tag, body in _items(data):
        if tag == _READ_ONLY:
            for keyword, value in _keywords(body):
                if keyword == b"SN":
                    return _text(value)
    raise NotSupported("the card's VPD has no serial number")


def _items(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(data):
        tag = data[at]
        if tag == _END:
            return
        if tag & _LARGE:
            head, length = 3, int.from_bytes(data[at + 1 : at + 3], "little")
        else:
            tag, head, length = tag & 0x78, 1, tag & 7
        if at + head + length > len(data):
            raise ParseError("the card's VPD is cut short")
        yield tag, data[at + head : at + head + length]
        at += head + length
    raise ParseError("the card's VPD has no end")


def _keywords(body: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 0
    while at + 3 <= len(body):
        length = body[at + 2]
        if at + 3 + length > len(body):
            raise ParseError("a keyword of the card's VPD is cut short")
        yield body[at : at + 2], body[at + 3 : at + 3 + length]
        at += 3 + length


def _text(value: bytes) -> str:
    text = value.rstrip(b"\0 ").decode("ascii", errors="replace")
    if not text or not text.isprintable() or "\ufffd" in text:
        raise ParseError("the serial number in the card's VPD is not text")
    return text
