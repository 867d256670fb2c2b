"""Blockers in words and as JSON: one line for reasons, a list for load balancers and people."""

from __future__ import annotations

from agent.evaluate import Blocker
from agent.explain import Explainer, result_view
from agent.model import Verdict
from agent.result_json import action_to_dict


def not_run(engine: str, missing: tuple[str, ...]) -> tuple[Blocker, ...]:
    """Missing checks as blockers; judge names each as `check` or `check subject`."""
    default = f"engine:{engine}"
    parts = (name.partition(" ") for name in missing)
    return tuple(
        Blocker(check, subject or default, Verdict.UNKNOWN, "has not run yet") for check, _, subject in parts
    )


def check_of(missing: str) -> str:
    """The check's id in one of a judgement's missing names."""
    return missing.partition(" ")[0]


def waiting_for(missing: tuple[str, ...]) -> str:
    """What a gate in preflight waits for."""
    return (
        f"waiting for {len(missing)} checks, first {missing[0]}"
        if len(missing) > 1
        else f"waiting for {missing[0]}"
    )


def say(blockers: tuple[Blocker, ...]) -> str:
    """The first blocker in one line, and how many more there are."""
    first = blockers[0]
    more = f" (and {len(blockers) - 1} more)" if len(blockers) > 1 else ""
    return f"{first.check} {first.subject}: {first.summary}{more}"


def unique(blockers: tuple[Blocker, ...]) -> tuple[Blocker, ...]:
    """Each check and subject once, first mention first."""
    return tuple({(blocker.check, blocker.subject): blocker for blocker in reversed(blockers)}.values())[::-1]


def blocker_to_dict(blocker: Blocker, explainer: Explainer | None = None) -> dict[str, object]:
    """A blocker as /readyz, /status and the journal show it, explained where it is a check's."""
    said: dict[str, object] = {
        "check": blocker.check,
        "subject": blocker.subject,
        "summary": blocker.summary,
        "action": action_to_dict(blocker.action),
    }
    if explainer is None or blocker.result is None:
        return said
    told = result_view(blocker.result, explainer)
    return {**told, **said, "verdict": blocker.verdict.value, "action": told["action"]}
