"""Whether an engine may be restarted on an operator's word: not when its launch would fail. Pure."""

from __future__ import annotations

from agent.effect import is_shadow
from agent.model import Snapshot, Verdict
from agent.node_profile import NodeProfile

#: What is known of a launch before it is made: an error in it stops an engine for nothing.
LAUNCH_CHECKS = ("engine.flags", "engine.checkpoint", "engine.memory_plan")


def restart_refusal(snapshot: Snapshot | None, profile: NodeProfile, engine: str) -> str | None:
    """Why the engine is not stopped; None where nothing speaks against it, or only what is waived."""
    results = snapshot.results if snapshot is not None else {}
    for check in LAUNCH_CHECKS:
        result = results.get((check, f"engine:{engine}"))
        if result is None or result.waived or is_shadow(profile, check):
            continue
        if Verdict.FAIL in (result.verdict, result.raw_verdict):
            finding = result.finding
            said = finding.summary if finding.verdict is Verdict.FAIL else "its last reading failed"
            return (
                f"{engine} is not stopped, for its launch would fail: {check}: {said[:160]}; "
                "correct the profile and reload it"
            )
    return None
