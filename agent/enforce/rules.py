"""What the enforced gate in a profile must not contradict (pure)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from agent.profile_problem import CrossProblem

if TYPE_CHECKING:
    from agent.node_profile import NodeProfile

#: Looks at the answer that must fit into a permission.
_LOOKS = 3


def enforce_problems(profile: NodeProfile) -> Iterator[CrossProblem]:
    """Contradictions of an enforced gate with the rest."""
    enforce = profile.enforce
    if not enforce.enabled:
        return
    if profile.mode == "observe":
        text = "mode observe opens no gate: every engine would be closed to others for good"
        yield CrossProblem(("enforce", "enabled"), text, ("mode",), "set mode to gate or manage")
    if enforce.period_s * _LOOKS > enforce.timeout_s:
        yield CrossProblem(
            ("enforce", "timeout_s"),
            f"less than three looks ({enforce.period_s:g} s apart) fit into {enforce.timeout_s:g} s",
            ("enforce", "period_s"),
            "set timeout_s higher or period_s lower",
        )
