"""gate.answers: does each gate of this node answer as its part in the instance is, to a load balancer?

Two nodes of one instance were once treated as two replicas: a rank behind the head must answer 503 `member`,
the head 200 and only while every other member says that its rank is well.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx
from pydantic import BaseModel, ConfigDict, Field

from agent.checklist.measure import MeasureContext, MeasureOutcome, measure
from agent.checklist.record import StepFinding
from agent.engine_profile import Engine
from agent.errors import SourceUnavailable
from agent.model import Verdict, worst
from agent.node_profile import Api

ID = "gate.answers"
DEADLINE_S = 5.0
#: Addresses that mean every interface, and how this machine itself is asked there.
_ANY = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104


class AnswerParams(BaseModel):
    """Parameters of gate.answers."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    open: bool = Field(True, description="Gates must be open; false = only no wrong answer may be given")


@measure(ID, "Answers of the gates", AnswerParams)
def gate_answers(context: MeasureContext, params: AnswerParams) -> MeasureOutcome:
    """Ask /readyz of every engine, and /status for what stands behind it."""
    profile = context.profile.profile
    base = base_url(profile.api)
    try:
        with httpx.Client(base_url=base, timeout=DEADLINE_S, trust_env=False) as client:
            status = _json(client.get("/status"))
            _refuse_another(status, context.profile.hash, base)
            replies = {name: _reply(client.get(f"/readyz/{name}")) for name in profile.engines}
    except (httpx.HTTPError, SourceUnavailable) as cause:
        return MeasureOutcome(Verdict.UNKNOWN, f"{base}: {cause or type(cause).__name__}")
    gates = {gate["engine"]: gate for gate in status.get("gates", ())}
    findings = [
        judge_answer(name, engine, *replies[name], gates.get(name, {}), must_be_open=params.open)
        for name, engine in profile.engines.items()
    ]
    verdict = worst([found.verdict for found in findings])
    bad = [found for found in findings if found.verdict is verdict]
    told = "; ".join(f"{found.subject}: {found.summary}" for found in bad[:4])
    return MeasureOutcome(verdict, told or "the profile has no engines", findings=tuple(findings))


def judge_answer(
    name: str, engine: Engine, code: int, state: str, gate: Mapping[str, Any], *, must_be_open: bool
) -> StepFinding:
    """One engine's answer: HTTP code and state of /readyz, and its gate as /status has it. Pure."""
    if engine.follows:
        verdict, summary, want = _judge_follower(code, state, must_be_open)
    else:
        verdict, summary, want = _judge_head(code, state, gate, must_be_open)
    return StepFinding(
        check=ID,
        subject=f"engine:{name}",
        verdict=verdict,
        observed=f"{code} {state}".strip(),
        expected=want,
        summary=summary,
        hint="" if verdict is Verdict.PASS else "Take this node out of the load balancer until it is mended.",
    )


def _judge_follower(code: int, state: str, must_be_open: bool) -> tuple[Verdict, str, str]:
    want = "503 member"
    if code == 200:
        return Verdict.FAIL, "a rank behind its head answers ready: it would be taken for a replica", want
    if state == "member" or not must_be_open:
        return Verdict.PASS, f"a rank behind its head, {state}", want
    return Verdict.FAIL, f"its rank does not serve: {state or code}", want


def _judge_head(
    code: int, state: str, gate: Mapping[str, Any], must_be_open: bool
) -> tuple[Verdict, str, str]:
    group = gate.get("group")
    behind = group["members"] if group else []
    bad = [one["node"] for one in behind if one.get("error") or one.get("gate") != "member"]
    want = f"200, {len(behind)} members behind it" if group else "200"
    if code == 200 and bad:
        return Verdict.FAIL, f"answers ready although not every member is well: {', '.join(bad)}", want
    if code == 200:
        return Verdict.PASS, f"ready{f', with {len(behind)} members behind it' if group else ''}", want
    if must_be_open:
        return Verdict.FAIL, f"not ready: {state or code}", want
    return Verdict.PASS, f"closed: {state}", want


def base_url(api: Api) -> str:
    """Where this node's API is asked from the node itself."""
    host = _ANY.get(api.host, f"[{api.host}]" if ":" in api.host else api.host)
    return f"http://{host}:{api.port}"


def _json(reply: httpx.Response) -> dict[str, Any]:
    try:
        document = reply.json()
    except ValueError as cause:
        raise SourceUnavailable("what answers there is no nodegate daemon") from cause
    if not isinstance(document, dict):
        raise SourceUnavailable("what answers there is no nodegate daemon")
    return document


def _refuse_another(status: Mapping[str, Any], profile_hash: str, base: str) -> None:
    if status.get("profile_hash") != profile_hash:
        raise SourceUnavailable(f"the daemon at {base} runs on another profile")


def _reply(reply: httpx.Response) -> tuple[int, str]:
    """Code and state of one /readyz."""
    if reply.status_code == 200:
        return 200, "ready"
    return reply.status_code, str(_json(reply).get("state", ""))
