"""Firmware versions as vendors write them: 96.10.6D.00.01, 2.19.1, GB200Nvl-25.06-A, 40.48.1000 (NVD0072).

Parts between dots, dashes and underscores are compared one by one as hexadecimal numbers: for parts of
decimal digits that gives the same order, and 6D comes after 10 as it should. What cannot be compared is told.
"""

from __future__ import annotations

import re

from agent.errors import ParseError

_BRACKETS = re.compile(r"\(.*?\)|\[.*?\]")
_BETWEEN = re.compile(r"[.\-_\s,:+/]+")
_HEX = re.compile(r"[0-9A-Fa-f]{1,16}")
_BEFORE_RELEASE = re.compile(r"(?:rc|alpha|beta|dev|pre|test)\d*", re.IGNORECASE)


def at_least(have: str, minimum: str) -> bool:
    """Whether a version is the minimum or newer. Raises ParseError if the two cannot be compared."""
    ours, least = _parts(have), _parts(minimum)
    for mine, want in zip(ours, least, strict=False):
        (kind, place), (kind_wanted, place_wanted) = _rank(mine), _rank(want)
        if kind != kind_wanted:
            raise ParseError(f"version {have!r} cannot be compared with {minimum!r}")
        if place != place_wanted:
            return place > place_wanted
    more, less = ours[len(least) :], least[len(ours) :]
    for part in (*more, *less):
        if _BEFORE_RELEASE.fullmatch(part):
            raise ParseError(f"version {have!r} cannot be compared with {minimum!r}")
    return all(_rank(part) == ("", 0) for part in less)


def _rank(part: str) -> tuple[str, int]:
    """What a part is and its place among its kind: `6D` is a number, `rc44` the 44th rc, others are words."""
    if _HEX.fullmatch(part):
        return "", int(part, 16)
    counted = re.fullmatch(r"([A-Za-z]+)(\d{1,9})", part)
    return (counted[1].lower(), int(counted[2])) if counted else (part.lower(), 0)


def _parts(version: str) -> list[str]:
    plain = _BRACKETS.sub(" ", version[:200]).strip()
    parts = [part for part in _BETWEEN.split(plain) if part]
    if parts and re.fullmatch(r"[vV]\d[0-9A-Fa-f]*", parts[0]):
        parts[0] = parts[0][1:]
    if not any(any(each.isdigit() for each in part) for part in parts):
        raise ParseError(f"{version[:40]!r} is no version")
    return parts
