"""Firmware images of the simulated BMC. SIMULATED: no vendor's format.

    SIMULATED-FIRMWARE 1\\n
    {"components": {"HGX_FW_GPU_*": "97.10.1A.00.01"}, "sha256": HEX OF THE PAYLOAD, "bytes": N}\\n
    payload

A component may be a pattern (`*`): a bundle for the whole baseboard names several. The BMC refuses what does
not begin so, what names none of its components, and a payload that differs from its hash.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import random
from dataclasses import dataclass

MAGIC = b"SIMULATED-FIRMWARE 1\n"
_MOST_HEADER_BYTES = 65536


class BadImage(ValueError):
    """Not an image that this BMC could take."""


@dataclass(frozen=True)
class Image:
    """A parsed image; `sha256` is that of the whole file."""

    components: dict[str, str]
    sha256: str
    intact: bool

    def version_for(self, component: str) -> str | None:
        """The version that it brings for an inventory id; None if it brings none."""
        for pattern, version in self.components.items():
            if fnmatch.fnmatchcase(component, pattern):
                return version
        return None


def make_image(components: dict[str, str], *, payload_bytes: int = 2000, corrupt: bool = False) -> bytes:
    """The bytes of an image; a corrupt one has a payload that is not that of its hash."""
    payload = random.Random(json.dumps(components, sort_keys=True)).randbytes(payload_bytes)
    header = {
        "components": components,
        "sha256": hashlib.sha256(payload).hexdigest(),
        "bytes": len(payload),
    }
    if corrupt:
        payload = payload[:-1] + bytes([payload[-1] ^ 1])
    return MAGIC + json.dumps(header, sort_keys=True).encode() + b"\n" + payload


def parse_image(data: bytes) -> Image:
    """Raises BadImage for what is none."""
    if not data.startswith(MAGIC):
        raise BadImage("the file is no firmware image")
    line, newline, payload = data[len(MAGIC) :].partition(b"\n")
    try:
        header = json.loads(line[:_MOST_HEADER_BYTES])
        components = {str(key): str(value) for key, value in header["components"].items()}
        digest = str(header["sha256"])
    except (ValueError, KeyError, TypeError, AttributeError):
        raise BadImage("the image has no readable header") from None
    if not newline or not components:
        raise BadImage("the image names no component")
    intact = hashlib.sha256(payload).hexdigest() == digest
    return Image(components, hashlib.sha256(data).hexdigest(), intact)
