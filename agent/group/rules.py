"""What a group in a profile must not contradict (pure)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from agent.profile_problem import CrossProblem, Path

if TYPE_CHECKING:
    from agent.group_profile import Group
    from agent.node_profile import NodeProfile


def group_problems(profile: NodeProfile) -> Iterator[CrossProblem]:
    """Contradictions within the group of each engine."""
    for name, engine in profile.engines.items():
        group, at = engine.group, ("engines", name, "group")
        if group is None:
            continue
        count = len(group.members)
        if group.rank >= count:
            yield CrossProblem(
                (*at, "rank"), f"there is no member {group.rank}", (*at, "members"), f"write 0 to {count - 1}"
            )
        elif profile.node is not None and group.members[group.rank].node != profile.node:
            yield CrossProblem(
                (*at, "rank"),
                f"member {group.rank} is {group.members[group.rank].node}, and this node is {profile.node}",
                ("node",),
                "set rank to this node's place in members",
            )
        yield from _twice(group, (*at, "members"))
        apart = any(member.data_address not in (None, member.address) for member in group.members)
        if apart and profile.api.host not in ("0.0.0.0", "::"):  # noqa: S104 (compared, not bound)
            yield CrossProblem(
                ("api", "host"),
                f"members ask over two networks, and the API answers at {profile.api.host} alone",
                (*at, "members"),
                "set api.host to 0.0.0.0 or ::",
            )
        if profile.mode == "gate":
            yield CrossProblem(
                at, "nodegate starts the ranks of a group itself", ("mode",), "set mode to manage"
            )
        if group.period_s * 3 > group.timeout_s:
            yield CrossProblem(
                (*at, "timeout_s"),
                f"less than three pulls ({group.period_s:g} s) fit into {group.timeout_s:g} s",
                (*at, "period_s"),
                "set timeout_s higher or period_s lower",
            )


def _twice(group: Group, at: Path) -> Iterator[CrossProblem]:
    """A node or an address that is listed twice."""
    for key, seen in (
        ("node", [member.node for member in group.members]),
        ("address", [f"{member.address} port {member.port}" for member in group.members]),
    ):
        twice = sorted({value for value in seen if seen.count(value) > 1})
        if twice:
            yield CrossProblem(at, f"two members have the {key} {twice[0]}", None, "list each node once")
