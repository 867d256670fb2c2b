"""Versions of NIC firmware and drivers (`40.48.1000`, `24.10-1.1.4`) as numbers that compare. Pure."""

from __future__ import annotations

import re

from agent.errors import ParseError

_VERSION = re.compile(r"\d{1,9}(?:[.-]\d{1,9})*")


def compared(version: str) -> tuple[int, ...]:
    """Numbers of a version, for comparison; trailing words (`-generic`) are left out. Raises ParseError."""
    match = _VERSION.match(version)
    if match is None:
        raise ParseError(f"{version[:40]!r} is not a version")
    return tuple(int(part) for part in re.split(r"[.-]", match.group()))
