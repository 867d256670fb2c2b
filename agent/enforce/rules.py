"""What the enforced gate in a profile must not contradict (pure)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from agent.profile_problem import CrossProblem

if TYPE_CHECKING:
    from agent.node_profile import NodeProfile

#: The helper that does it.
UNIT = "nodegate-enforce.service"
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


def enforce_notes(profile: NodeProfile) -> Iterator[str]:
    """What is allowed but leaves a gap that nobody would see."""
    for network in profile.enforce.allow if profile.enforce.enabled else ():
        if network.endswith("/0"):
            yield f"enforce.allow has {network}: all such addresses get through, whatever the gates say"
    if profile.enforce.enabled and profile.host.services.get(UNIT) != "active":
        yield (
            f"enforce.enabled is true, and host.services does not ask for {UNIT}: where it was never started "
            f"nothing is enforced and nothing says so; add `{UNIT}: active` under host.services"
        )
