"""Results as plain JSON values and back, for the journal and for whoever shows them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from agent.errors import ParseError
from agent.model import Action, ActionKind, Basis, BasisKind, Finding, Result, ServingClass, Verdict


def action_to_dict(action: Action) -> dict[str, Any]:
    """`{"kind": ..., "hint": ..., "play": ...}`."""
    return {"kind": action.kind.value, "hint": action.hint, "play": action.play}


def finding_to_dict(finding: Finding) -> dict[str, Any]:
    """The whole finding."""
    return {
        "subject": finding.subject,
        "verdict": finding.verdict.value,
        "summary": finding.summary,
        "observed": finding.observed,
        "expected": finding.expected,
        "unit": finding.unit,
        "action": action_to_dict(finding.action),
        "serving_class": None if finding.serving_class is None else finding.serving_class.value,
        "basis": None if finding.basis is None else [finding.basis.kind.value, finding.basis.key],
    }


def result_to_dict(result: Result) -> dict[str, Any]:
    """The whole result; `result_from_dict` reads it back."""
    return {
        "check": result.check,
        "subject": result.subject,
        "verdict": result.verdict.value,
        "raw_verdict": result.raw_verdict.value,
        "serving_class": result.serving_class.value,
        "measured_mono_s": result.measured_mono_s,
        "first_seen_s": result.first_seen_s,
        "valid_for_s": result.valid_for_s,
        "carried": result.carried,
        "waived": result.waived,
        "shadow": result.shadow,
        "times": result.times,
        "part": result.part,
        "finding": finding_to_dict(result.finding),
    }


def result_from_dict(data: Mapping[str, Any]) -> Result:
    """The result that `result_to_dict` wrote. Raises ParseError for anything else."""
    try:
        return Result(
            check=str(data["check"]),
            finding=_finding(data["finding"]),
            verdict=Verdict(data["verdict"]),
            raw_verdict=Verdict(data["raw_verdict"]),
            serving_class=ServingClass(data["serving_class"]),
            measured_mono_s=_seconds(data["measured_mono_s"]),
            first_seen_s=_seconds(data["first_seen_s"]),
            valid_for_s=_seconds(data["valid_for_s"]),
            carried=bool(data["carried"]),
            waived=bool(data["waived"]),
            shadow=bool(data.get("shadow", False)),
            times=int(data.get("times", 0)),
            part=str(data.get("part", "")),
        )
    except (KeyError, IndexError, TypeError, ValueError, OverflowError) as cause:
        raise ParseError(f"not a stored result: {type(cause).__name__}: {cause}") from cause


def _seconds(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ParseError("a stored time is no number")
    return float(value)


def _finding(data: Mapping[str, Any]) -> Finding:
    action = data["action"]
    own_class = data["serving_class"]
    basis = data.get("basis")  # an older nodegate wrote none
    return Finding(
        subject=str(data["subject"]),
        verdict=Verdict(data["verdict"]),
        summary=str(data["summary"]),
        observed=data["observed"],
        expected=data["expected"],
        unit=str(data["unit"]),
        action=Action(ActionKind(action["kind"]), str(action["hint"]), action["play"]),
        serving_class=None if own_class is None else ServingClass(own_class),
        basis=None if basis is None else Basis(BasisKind(basis[0]), str(basis[1])),
    )
