"""NV configuration that contradicts the fabric of the same profile."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from agent.fabric_profile import FabricKind, NvValue
from agent.profile_problem import CrossProblem, Path

if TYPE_CHECKING:
    from agent.node_profile import NodeProfile

_LINK_TYPES = {FabricKind.ROCE: ("ETH", 2), FabricKind.IB: ("IB", 1)}


def nic_problems(profile: NodeProfile) -> Iterator[CrossProblem]:
    """A link type of another fabric, or ECN that the card would not do for the lossless priority."""
    nic = profile.fabric.nic
    parts: list[tuple[Path, dict[str, NvValue]]] = [(("fabric", "nic", "config"), nic.config)]
    parts += [
        (("fabric", "nic", "config_by_board", board), values) for board, values in nic.config_by_board.items()
    ]
    for path, values in parts:
        for name, value in values.items():
            yield from _link_type(profile, (*path, name), name, value)
            yield from _ecn_mask(profile, (*path, name), name, value)


def _link_type(profile: NodeProfile, path: Path, name: str, value: NvValue) -> Iterator[CrossProblem]:
    names = _LINK_TYPES.get(profile.fabric.kind)
    if names is None or not name.startswith("LINK_TYPE_P"):
        return
    same = str(value).upper() in (names[0], str(names[1])) and not isinstance(value, bool)
    if not same:
        text = f"{name} is {value}, the fabric is {profile.fabric.kind}"
        yield CrossProblem(path, text, ("fabric", "kind"), f"write {names[0]}, or correct fabric.kind")


def _ecn_mask(profile: NodeProfile, path: Path, name: str, value: NvValue) -> Iterator[CrossProblem]:
    roce = profile.fabric.roce
    if (
        profile.fabric.kind is not FabricKind.ROCE
        or not roce.ecn
        or not name.startswith("ROCE_CC_PRIO_MASK_P")
    ):
        return
    if isinstance(value, int) and not value >> roce.priority & 1:
        text = f"{name} is {value}: no ECN for priority {roce.priority}, which fabric.roce asks for"
        yield CrossProblem(path, text, ("fabric", "roce", "ecn"), "write 255, or set that priority's bit")
