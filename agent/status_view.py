"""The publication as JSON for /status and the command line, and as Prometheus text; made when asked for."""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import Any

from agent import __version__
from agent.blockers import blocker_to_dict
from agent.explain import Explainer, plain, utc
from agent.gate_record import GateRecord
from agent.group.answer import group_view
from agent.holds import as_json as holds_as_json
from agent.metrics import GateSample, render_metrics
from agent.metrics_more import More
from agent.metrics_view import more_of
from agent.model import EngineStatus, Result, Snapshot, Verdict, worst
from agent.pairs import pair_view
from agent.publisher import Answer, Publication, Publisher
from agent.result_json import action_to_dict

SCHEMA = 1
#: Reasons against a gate that a brief status names; the first is what its line says.
BRIEF_REASONS = 3


def status_view(publisher: Publisher, *, whole: bool = True) -> dict[str, Any]:
    """Everything that the daemon knows; ages are as of now. Not `whole`: results are only counted."""
    head = _head(publisher)
    current = publisher.current
    if current is None:
        return {**head, "ready": False, "gates": [], **({"results": []} if whole else {"counts": {}})}
    age_s = publisher.clock() - current.mono_s
    facts = current.facts
    now_mono_s = current.gate_mono_s + age_s
    return {
        **head,
        "node": facts.node,
        "simulated": facts.simulated,
        "mode": facts.mode.value,
        "profile_hash": facts.profile_hash,
        "boot_id": facts.boot_id,
        "age_s": round(age_s, 3),
        "ready": publisher.ready().status == 200,
        "gates": [
            _gate(publisher, current.answers[name], record, now_mono_s, current)
            for name, record in current.records.items()
        ],
        "pairs": [
            pair_view(pair, publisher.ready(name).status == 200, publisher.agent_line(name))
            for name, pair in current.pairs.items()
        ],
        "holds": holds_as_json(current.holds),
        "checklist": current.checklist,
        "problems": list(current.problems),
        "verdict": _verdict(current.snapshot),
        "shadow": _shadow(current.snapshot),
        **(
            {"results": _results(current.snapshot, now_mono_s, current.explainer)}
            if whole
            else {"counts": _counts(current.snapshot)}
        ),
    }


def _head(publisher: Publisher) -> dict[str, Any]:
    """What is known before anything is published."""
    beat_age_s = publisher.beat_age_s()
    return {
        "schema": SCHEMA,
        "version": __version__,
        "live": publisher.live().status == 200,
        "beat_age_s": None if beat_age_s is None else round(beat_age_s, 3),
    }


def brief_json(publisher: Publisher) -> bytes:
    """A few kB for whoever asks many nodes: of each gate the first reasons, of the results how many."""
    view = status_view(publisher, whole=False)
    for gate in view["gates"]:
        gate["blocking_count"] = len(gate["blocking"])
        gate["blocking"] = gate["blocking"][:BRIEF_REASONS]
    return json.dumps(view, allow_nan=False).encode()


def _counts(snapshot: Snapshot | None) -> dict[str, int]:
    """How many results have each verdict."""
    return dict(Counter(result.verdict.value for result in snapshot.results.values())) if snapshot else {}


def status_json(publisher: Publisher) -> bytes:
    """`status_view` as JSON in ASCII: text from hardware may hold what UTF-8 cannot."""
    return json.dumps(status_view(publisher), allow_nan=False).encode()


def metrics_text(publisher: Publisher) -> bytes:
    """The page of /metrics; `ready` is what /readyz says now."""
    current = publisher.current
    age_s = publisher.clock() - current.mono_s if current else 0.0
    if current is None or current.snapshot is None:
        snapshot = Snapshot("", "", False, "", 0.0, 0.0)
        samples, pairs = _samples(publisher, current), _pairs_ready(publisher, current)
        # Without the mode alerts would take a node that only observes for one whose gates are closed.
        more = more_of(current, current.gate_mono_s + age_s) if current else More()
        return render_metrics(snapshot, samples, pairs=pairs, durations_s={}, now_mono_s=0.0, more=more)
    now_mono_s = current.gate_mono_s + age_s
    return render_metrics(
        current.snapshot,
        _samples(publisher, current),
        pairs=_pairs_ready(publisher, current),
        durations_s=current.durations_s,
        now_mono_s=now_mono_s,
        journal_healthy=current.journal_healthy,
        more=more_of(current, now_mono_s),
    )


def _samples(publisher: Publisher, current: Publication | None) -> list[GateSample]:
    if current is None:
        return []
    now_mono_s = current.gate_mono_s + publisher.clock() - current.mono_s
    return [
        GateSample(
            name,
            record.state,
            publisher.ready(name).status == 200,
            max(0.0, now_mono_s - record.since_mono_s),
        )
        for name, record in current.records.items()
    ]


def _pairs_ready(publisher: Publisher, current: Publication | None) -> dict[str, bool]:
    return {name: publisher.ready(name).status == 200 for name in (current.pairs if current else ())}


def _gate(
    publisher: Publisher, answer: Answer, record: GateRecord, now_mono_s: float, current: Publication
) -> dict[str, Any]:
    """One gate. `blocking` also lists what degrades it or what a force-open overrides."""
    explainer, group = current.explainer, current.groups.get(answer.engine)
    force = record.holds.force_open
    quarantine, drain = record.holds.quarantine, record.holds.drain
    return {
        "engine": answer.engine,
        "state": answer.state,
        "ready": publisher.ready(answer.engine).status == 200,
        "since_s": round(now_mono_s - record.since_mono_s, 1),
        "reason": answer.reason,
        "forced": record.forced,
        "force_open": _until(force.reason, force.who, force.until_wall_s) if force else None,
        "quarantine": {"reason": quarantine.reason, "who": quarantine.who} if quarantine else None,
        "drain": {"reason": drain.reason, "who": drain.who} if drain else None,
        "agent_check": publisher.agent_line(answer.engine),
        "blocking": [blocker_to_dict(blocker, explainer) for blocker in record.blockers],
        "process": _engine(record.engine, now_mono_s),
        **({"group": group_view(group.seen, now_mono_s)} if group else {}),
    }


def _until(reason: str, who: str, until_wall_s: float) -> dict[str, Any]:
    left_s = max(0.0, until_wall_s - time.time())
    return {"reason": reason, "who": who, "until_wall_s": until_wall_s, "left_s": round(left_s)}


def _engine(engine: EngineStatus | None, now_mono_s: float) -> dict[str, Any] | None:
    """The engine's process."""
    if engine is None:
        return None
    retry_in_s = engine.retry_at_mono_s - now_mono_s if engine.retry_at_mono_s is not None else None
    return {
        "phase": engine.phase.value,
        "since_s": round(now_mono_s - engine.since_mono_s, 1),
        "reason": engine.reason,
        "pid": engine.pid,
        "restarts": engine.restarts,
        "retry_in_s": None if retry_in_s is None else round(max(0.0, retry_in_s), 1),
        "warmup": None if engine.warmup is None else engine.warmup.to_dict(),
        "soak": None if engine.soak is None else engine.soak.to_dict(),
    }


def _verdict(snapshot: Snapshot | None) -> str:
    """The worst verdict of all results that count: neither waived nor in shadow; UNKNOWN for none."""
    results = snapshot.results.values() if snapshot else ()
    return worst([Verdict(r.verdict) for r in results if not (r.waived or r.shadow)]).value


def _shadow(snapshot: Snapshot | None) -> list[str]:
    """The checks that the profile runs in shadow."""
    return sorted({r.check for r in snapshot.results.values() if r.shadow}) if snapshot else []


def _results(
    snapshot: Snapshot | None, now_mono_s: float, explainer: Explainer | None
) -> list[dict[str, Any]]:
    """All results by check and subject."""
    if snapshot is None:
        return []
    return [_result(result, now_mono_s, explainer) for _, result in sorted(snapshot.results.items())]


def _result(result: Result, now_mono_s: float, explainer: Explainer | None) -> dict[str, Any]:
    finding = result.finding
    action = explainer.next_action(result) if explainer else finding.action
    return {
        "check": result.check,
        "subject": result.subject,
        "verdict": result.verdict.value,
        "raw_verdict": result.raw_verdict.value,
        "serving_class": result.serving_class.value,
        "age_s": round(result.age_s(now_mono_s), 1),
        "valid_for_s": result.valid_for_s,
        "first_seen_s": result.first_seen_s,
        "first_seen": utc(result.first_seen_s),
        "carried": result.carried,
        "waived": result.waived,
        "shadow": result.shadow,
        "times": result.times,
        "part": result.part,
        "observed": plain(finding.observed),
        "expected": plain(finding.expected),
        "unit": finding.unit,
        "summary": finding.summary,
        "action": action_to_dict(action),
        **(explainer.to_dict(result, now_mono_s) if explainer else {}),
    }
