"""engine.group: do the nodes of a model that spans several agree, run together, and hear each other?

Every member pulls the signed status of every other, over the management address and over the data address,
and judges for itself. Before a start that is what its rank waits for, while it serves it is what closes the
head's gate. The gate takes the same word at every step of its own; it is not waited for here.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from agent.checks.registry import Limits, check, unknown
from agent.errors import SourceError
from agent.group.verdict import word_on
from agent.model import Action, Basis, Finding, Phase, ServingClass, Verdict
from agent.node_profile import Mode, NodeProfile
from agent.sources import Sources
from agent.sources.group_reading import NotInGroup

_LOOK = Action(hint="Run `nodegate status` on the member that is named; it says what it waits for.")


class GroupLimits(Limits):
    """Tolerances of engine.group."""

    clock_skew_s: float = Field(
        5.0, description="Difference of two members' clocks in seconds that is told as a WARN", gt=0
    )


def _no_group(profile: NodeProfile) -> str | None:
    if profile.mode is not Mode.MANAGE:
        return f"mode is {profile.mode}: nodegate starts no ranks"
    grouped = any(engine.group is not None for engine in profile.engines.values())
    return None if grouped else "no engine of the profile spans several nodes"


@check(
    "engine.group",
    title="Members of the group agree and answer",
    source="GET /group/ENGINE of every member, over both networks",
    serving_class=ServingClass.IMMEDIATE,
    limits=GroupLimits,
    phases=(Phase.ADMISSION, Phase.SERVING),
    period_s=1.0,
    deadline_s=2.0,
    clear_for_s=0.0,
    unknown_for_s=0.0,
    waivable=False,
    triggers=("engine",),
    skip=_no_group,
    action=_LOOK,
)
def engine_group(sources: Sources, profile: NodeProfile, limits: GroupLimits) -> Iterator[Finding]:
    """Every member must agree before the ranks start, and be well and heard of while they run."""
    for name, engine in profile.engines.items():
        subject = f"engine:{name}"
        if engine.group is None:
            yield Finding(subject, Verdict.SKIP, "this engine runs on one node")
            continue
        try:
            word = word_on(sources.groups.observe(name), limits.clock_skew_s)
        except NotInGroup as cause:
            # A replay or a single pass: there is nobody who could have asked the others.
            yield Finding(subject, Verdict.SKIP, str(cause))
            continue
        except SourceError as cause:
            yield unknown(subject, cause)
            continue
        action = Action(hint=word.hint) if word.hint else _LOOK
        good = word.verdict is Verdict.PASS
        yield Finding(
            subject,
            word.verdict,
            word.line,
            "well" if good else "not well",
            "well",
            action=action,
            basis=Basis.profile(f"engines.{name}.group"),
        )
