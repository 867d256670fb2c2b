"""What firmware asked for contradicts: images beside the least versions, and beside each other."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from agent.checks.bmc_versions import at_least
from agent.checks.nic_versions import compared
from agent.errors import ParseError
from agent.profile_problem import CrossProblem, Path

if TYPE_CHECKING:
    from agent.node_profile import NodeProfile


def firmware_problems(profile: NodeProfile) -> Iterator[CrossProblem]:
    """All contradictions between firmware images and versions."""
    yield from _two_images(profile)
    yield from _older_than_the_least(profile)
    yield from _nic_images(profile)


def overlap(one: str, other: str) -> bool:
    """Whether two patterns of inventory ids can mean one id; told from the patterns alone."""
    return one == other or fnmatchcase(one, other) or fnmatchcase(other, one)


def _two_images(profile: NodeProfile) -> Iterator[CrossProblem]:
    """One inventory id that two images would write."""
    seen: list[tuple[str, Path]] = []
    for name, image in profile.bmc.images.items():
        own: list[tuple[str, Path]] = []
        for pattern in image.versions:
            path = ("bmc", "images", name, "versions", pattern)
            for known, other in seen:
                if overlap(pattern, known):
                    text = f"{pattern} is also brought by the image {other[2]} ({known})"
                    yield CrossProblem(path, text, other, "let one image bring each component")
            own.append((pattern, path))
        seen += own


def _older_than_the_least(profile: NodeProfile) -> Iterator[CrossProblem]:
    """An image that brings what bmc.firmware then calls too old."""
    for name, image in profile.bmc.images.items():
        for pattern, version in image.versions.items():
            for known, least in profile.bmc.firmware.items():
                if not overlap(pattern, known):
                    continue
                path = ("bmc", "images", name, "versions", pattern)
                other = ("bmc", "firmware", known)
                try:
                    enough = at_least(version, least)
                except ParseError as cause:
                    yield CrossProblem(path, str(cause), other, "write both as the BMC shows them")
                    continue
                if not enough:
                    text = f"the image brings {version}, and bmc.firmware asks for {least} or newer"
                    yield CrossProblem(path, text, other, "name a newer image, or correct the least version")


def _nic_images(profile: NodeProfile) -> Iterator[CrossProblem]:
    """Two images for one kind of card, or one that is older than its row of the matrix."""
    rows = {row.board_id: (i, row) for i, row in reversed(list(enumerate(profile.fabric.nic.firmware)))}
    seen: dict[str, Path] = {}
    for i, image in enumerate(profile.fabric.nic.images):
        path: Path = ("fabric", "nic", "images", str(i))
        if image.board_id in seen:
            text = f"{image.board_id} has two images"
            yield CrossProblem(
                (*path, "board_id"), text, seen[image.board_id], "keep one image for each PSID"
            )
        seen.setdefault(image.board_id, path)
        at, row = rows.get(image.board_id) or rows.get("*") or (0, None)
        if row is None:
            continue
        other: Path = ("fabric", "nic", "firmware", str(at), "firmware_min")
        try:
            enough = compared(image.version) >= compared(row.firmware_min)
        except ParseError as cause:
            yield CrossProblem(other, str(cause), path, "write it like 40.48.1000")
            continue
        if not enough:
            text = f"the image brings {image.version}, and the matrix asks for {row.firmware_min} or newer"
            yield CrossProblem((*path, "version"), text, other, "name a newer image, or correct the matrix")
