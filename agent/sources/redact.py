"""Redactor: replaces what identifies a machine in a capture, the same thing by the same thing everywhere.

Replaced are UUIDs (GPUs, boot, disks), serial numbers, the names and addresses of this host, its BMC, peers
and file servers, MAC addresses, RDMA GUIDs and GIDs, and the serial number in PCI configuration space. Not
replaced are PCI addresses, versions and texts of the kernel log that name none of these.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Iterable
from typing import Any

_UUID = re.compile(r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b")
_MAC = re.compile(r"(?<![0-9a-fA-F:])(?:[0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}(?![0-9a-fA-F:])")
_GUID = re.compile(r"(?<![0-9a-fA-F:])(?:[0-9a-fA-F]{4}:){3}[0-9a-fA-F]{4}(?![0-9a-fA-F:])")
_GID = re.compile(r"(?<![0-9a-fA-F:])(?:[0-9a-fA-F]{4}:){7}[0-9a-fA-F]{4}(?![0-9a-fA-F:])")
_MAPPED_IPV4 = "0000:0000:0000:0000:0000:ffff:"
#: Shorter ones would also be found inside other words and numbers.
_SHORTEST = 4
#: Where extended capabilities begin, and PCI_EXT_CAP_ID_DSN.
_EXTENDED_AT, _CAP_SERIAL_NUMBER = 0x100, 0x0003
_VPD_SERIAL = re.compile(rb"SN([\x01-\x40])", re.DOTALL)
#: Host names that name no machine; `node` is what a capture without one says, and a key of every profile.
_NO_NAMES = frozenset({"localhost", "node", "127.0.0.1", "0.0.0.0"})  # noqa: S104


class Redactor:
    """One key for one capture, drawn at random: replacements cannot be traced back."""

    def __init__(self, *, host: str = "", serials: Iterable[str] = (), names: Iterable[str] = ()) -> None:
        """Replace `host`, `serials` and `names` too, where they stand as whole words."""
        self._key = secrets.token_bytes(32)
        self._words: dict[str, str] = {}
        for name in names:
            if len(name) >= _SHORTEST and name not in _NO_NAMES:
                self._words[name] = f"name-{self._hex(name, 8)}"
        for serial in serials:
            if len(serial) >= _SHORTEST:
                self._words[serial] = self._digits(serial, len(serial))
        #: What stands for the host name.
        self.host = f"node-{self._hex(host, 6)}"
        if len(host) >= _SHORTEST and host not in _NO_NAMES:
            self._words[host] = self.host
        longest_first = sorted(map(re.escape, self._words), key=len, reverse=True)
        self._word = (
            re.compile(rf"(?<![\w-])(?:{'|'.join(longest_first)})(?![\w-])") if longest_first else None
        )

    def text(self, text: str) -> str:
        """The text with every identifier replaced."""
        text = _UUID.sub(self._each(self._uuid), text)
        text = _GID.sub(self._each(self._gid), text)
        text = _GUID.sub(self._each(lambda found: self._grouped(found, 4, 4)), text)
        text = _MAC.sub(self._each(lambda found: f"02:{self._grouped(found, 5, 2)}"), text)
        if self._word is not None:
            text = self._word.sub(lambda match: self._words[match.group()], text)
        return text

    def document(self, value: Any) -> Any:
        """A JSON document with every identifier in its texts replaced; keys stay."""
        if isinstance(value, dict):
            return {key: self.document(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.document(item) for item in value]
        return self.text(value) if isinstance(value, str) else value

    def file(self, path: str, value: Any) -> Any:
        """A file of a capture: its text, or the bytes that are no text, with every identifier replaced."""
        if isinstance(value, str):
            return self.text(value)
        if "hex" not in value:
            return value
        data = bytes.fromhex(value["hex"])
        if path.endswith("/config"):
            return {"hex": without_serial_number(data).hex()}
        if path.endswith("/vpd"):
            return {"hex": self._without_vpd_serials(data).hex()}
        # Latin-1 has a character for each byte, so that names are found in binary files too.
        replaced = self.text(data.decode("latin-1")).encode("latin-1", errors="replace")
        return {"hex": replaced.hex()}

    def _without_vpd_serials(self, data: bytes) -> bytes:
        """Vital product data with other serial numbers, the same as elsewhere and of the same length."""
        for serial in vpd_serials(data):
            replaced = self._digits(serial, len(serial))
            data = data.replace(serial.encode("latin-1"), replaced.encode("latin-1"))
        return data

    def keys_too(self, value: Any) -> Any:
        """A JSON document with every identifier replaced, in its keys as well (paths, peers)."""
        if isinstance(value, dict):
            return {self.text(key): self.keys_too(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.keys_too(item) for item in value]
        return self.text(value) if isinstance(value, str) else value

    def _each(self, replace: Callable[[str], str]) -> Callable[[re.Match[str]], str]:
        """Replace a match; what is all zeros is no identifier."""

        def replaced(match: re.Match[str]) -> str:
            found = match.group().lower()
            return match.group() if not found.strip("0:-") else replace(found)

        return replaced

    def _uuid(self, found: str) -> str:
        digits = self._hex(found, 32)
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))

    def _gid(self, found: str) -> str:
        """The last half, or of a mapped IPv4 address that address, is the identifier."""
        if found.startswith(_MAPPED_IPV4):
            return _MAPPED_IPV4 + self._grouped(found, 2, 4)
        return found[:20] + self._grouped(found, 4, 4)

    def _grouped(self, found: str, groups: int, width: int) -> str:
        digits = self._hex(found, groups * width)
        return ":".join(digits[i : i + width] for i in range(0, len(digits), width))

    def _hex(self, found: str, length: int) -> str:
        return hmac.new(self._key, found.encode(errors="replace"), hashlib.sha256).hexdigest()[:length]

    def _digits(self, found: str, length: int) -> str:
        number = int(self._hex(found, 60), 16)
        return str(number).zfill(length)[-length:]


def without_serial_number(data: bytes) -> bytes:
    """PCI configuration space with zeros as its Device Serial Number (extended capability 3)."""
    at, seen = _EXTENDED_AT, set[int]()
    while at and at not in seen and at + 4 <= len(data):
        seen.add(at)
        header = int.from_bytes(data[at : at + 4], "little")
        if header & 0xFFFF == _CAP_SERIAL_NUMBER:
            return data[: at + 4] + bytes(len(data[at + 4 : at + 12])) + data[at + 12 :]
        at = header >> 20 & 0xFFC
    return data


def vpd_serials(data: bytes) -> list[str]:
    """Serial numbers in vital product data: keyword SN, one byte of length, text (PCI 3.0, appendix I)."""
    found = []
    for match in _VPD_SERIAL.finditer(data):
        text = data[match.end() : match.end() + match.group(1)[0]]
        found.append(text.decode("latin-1").strip("\0 "))
    return [serial for serial in found if len(serial) >= _SHORTEST]
