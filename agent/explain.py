"""What a result rests on and what it does, in words: for every place that shows a verdict. Pure.

Read, expected, where that number comes from, since when, how often, which engines it closes or degrades, and
what to do next.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent.checks.registry import Check, ClearedBy
from agent.effect import Effect, effects
from agent.model import Action, ActionKind, Basis, BasisKind, Result, ServingClass, Verdict
from agent.result_json import action_to_dict

if TYPE_CHECKING:
    from agent.profile_loader import LoadedProfile

#: What a serving class does to an open gate.
_SERVING = {
    ServingClass.IMMEDIATE: "closes",
    ServingClass.HARD: "closes",
    ServingClass.SOFT: "degrades",
}


@dataclass(frozen=True)
class Explainer:
    """Explains results by the profile in force and by what the checks declare."""

    loaded: LoadedProfile
    checks: Mapping[str, Check]

    def to_dict(self, result: Result, now_mono_s: float | None = None) -> dict[str, Any]:
        """What is added to a result wherever it is shown as JSON; engines as of `now_mono_s`."""
        return {
            "expected_from": self.expected_from(result),
            "times": result.times,
            "engines": [effect_to_dict(effect) for effect in self.effects(result, now_mono_s)],
            "cleared_by": self.cleared_by(result),
            "shadow": result.shadow,
            "waived": result.waived,
            "part": result.part,
        }

    def expected_from(self, result: Result) -> str | None:
        """Where the expected value comes from, None where the check does not say."""
        basis = result.finding.basis
        return None if basis is None else self.words_of(basis, result.check)

    def words_of(self, basis: Basis, check_id: str) -> str:
        """A basis in words, with file and line where a layer of the profile has it."""
        if basis.kind is BasisKind.PROFILE:
            return f"profile {basis.key} ({self._place(basis.key)})"
        if basis.kind is BasisKind.LIMIT:
            place = self._place(f"limits.{check_id}.{basis.key}")
            return f"limit {check_id}.{basis.key} ({place})"
        return f"{basis.kind.value}: {basis.key}"

    def _place(self, key: str) -> str:
        return self.loaded.where(key) or "default"

    def effects(self, result: Result, now_mono_s: float | None = None) -> tuple[Effect, ...]:
        """What it does to each engine that it concerns; nothing for what passes."""
        check = self.checks.get(result.check)
        if check is None or _is_good(result):
            return ()
        return effects(result, check, self.loaded.profile, now_mono_s)

    def cleared_by(self, result: Result) -> list[str]:
        """What ends a sticky FAIL; empty for one that ends by itself."""
        check = self.checks.get(result.check)
        if check is None or not check.sticky or result.verdict is not Verdict.FAIL:
            return []
        return sorted(each.value for each in check.clears | {ClearedBy.REBOOT})

    def next_action(self, result: Result) -> Action:
        """The action of the finding; for missing evidence, what would bring it."""
        action = result.finding.action
        if action.hint or action.kind is not ActionKind.NONE or _is_good(result):
            return action
        check = self.checks.get(result.check)
        if check is None:
            return action
        if Verdict.UNKNOWN in (result.verdict, result.raw_verdict):
            return Action(hint=_missing_evidence(check))
        return check.action


def _missing_evidence(check: Check) -> str:
    """What brings the evidence, or which key of the profile settles that this machine does not have it."""
    find = f"Find out why this cannot be read: {check.source}."
    if check.if_unreadable:
        return f"{find} {check.if_unreadable}"
    if not check.waivable:
        return find
    key = f"checks: {{{check.id}: {{enabled: false}}}}"
    return f"{find} Where a machine cannot tell it at all, the profile leaves it out: {key}."


def effect_to_dict(effect: Effect) -> dict[str, Any]:
    """`effect` is closes, degrades, blocks_admission or none; a gate that is closed looks at the second."""
    serving = _SERVING.get(effect.serving) if effect.serving is not None else None
    word = serving or ("blocks_admission" if effect.blocks_admission else "none")
    return {"engine": effect.engine, "effect": word, "blocks_admission": effect.blocks_admission}


def finding_facts(result: Result) -> dict[str, Any]:
    """What was read and what was expected, as JSON can hold it."""
    finding = result.finding
    return {
        "observed": plain(finding.observed),
        "expected": plain(finding.expected),
        "unit": finding.unit,
        "summary": finding.summary,
    }


def plain(value: object) -> object:
    """A value as JSON has it: it knows no NaN and no infinity."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def utc(wall_s: float) -> str:
    """A time of the wall clock as JSON shows it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(wall_s))


def result_view(
    result: Result, explainer: Explainer | None, now_mono_s: float | None = None
) -> dict[str, Any]:
    """A result with all that is known of it, as /status, /readyz and `check --format json` show it."""
    action = explainer.next_action(result) if explainer else result.finding.action
    return {
        "check": result.check,
        "subject": result.subject,
        "verdict": result.verdict.value,
        **finding_facts(result),
        "action": action_to_dict(action),
        "first_seen": utc(result.first_seen_s),
        **(explainer.to_dict(result, now_mono_s) if explainer else {}),
    }


def _is_good(result: Result) -> bool:
    good = (Verdict.PASS, Verdict.SKIP)
    return result.verdict in good and result.raw_verdict in good
