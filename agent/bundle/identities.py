"""On request: what identifies the machine, replaced in all pieces alike, the same by the same everywhere."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from agent.bundle.parts import Piece
from agent.bundle.read_node import CAPTURE_NOW
from agent.sources.capture_host import words_that_identify
from agent.sources.redact import Redactor, vpd_serials

#: Files of a capture whose values may be bytes in hexadecimal.
_TREE = "tree.json"


def redactor_for(pieces: Iterable[Piece], node: str) -> Redactor:
    """A redactor that knows what the capture of now, the BMCs and the profile name."""
    texts = {piece.path: piece.data.decode("utf-8", errors="replace") for piece in pieces}
    nvml, host, tree = (
        _document(texts.get(f"{CAPTURE_NOW}/{name}", "")) for name in ("nvml.json", "host.json", _TREE)
    )
    services = {path: _document(text) for path, text in texts.items() if path.startswith("redfish/")}
    identities = [gpu.get("identity", {}) for gpu in nvml.get("gpus", [])]
    serials = [each["serial"] for each in identities if each.get("serial")]
    cards = [value for path, value in tree.items() if path.endswith("/vpd") and "hex" in value]
    serials += [serial for card in cards for serial in vpd_serials(bytes.fromhex(card["hex"]))]
    modules = _document(texts.get(f"{CAPTURE_NOW}/net.json", "")).values()
    serials += [serial for netdev in modules if (serial := (netdev.get("module") or {}).get("serial"))]
    names = words_that_identify(host or None, services, tree, texts.get("profile.yaml", ""))
    return Redactor(host=node, serials=serials, names=names)


def redacted(path: str, data: bytes, redactor: Redactor) -> bytes:
    """The data of a file with every identifier replaced."""
    text = data.decode("utf-8", errors="replace")
    if path.endswith(f"/{_TREE}"):
        files = _document(text)
        made = {redactor.text(name): redactor.file(name, value) for name, value in files.items()}
        return (json.dumps(made, indent=0) + "\n").encode(errors="replace")
    return redactor.text(text).encode(errors="replace")


def _document(text: str) -> dict[str, Any]:
    """A JSON object; an empty one for what is none."""
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
