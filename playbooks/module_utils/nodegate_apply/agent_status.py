"""What the agent on this node says of itself: who serves, and whether the node is proven. Reading only."""

from __future__ import annotations

import dataclasses
import http.client
import json
import time
from collections.abc import Callable
from typing import Any

ASK_S = 5.0
_KEPT = ("check", "subject", "verdict", "observed", "expected", "summary")
_LOOPBACK = ("", "0.0.0.0", "::", "127.0.0.1", "localhost")  # noqa: S104


def ask(host: str, port: int, path: str = "/status") -> dict[str, Any] | None:
    """The agent's /status; None when nothing answers or what answers is no agent."""
    address = "127.0.0.1" if host in _LOOPBACK else host
    connection = http.client.HTTPConnection(address, port, timeout=ASK_S)
    try:
        connection.request("GET", path)
        found = json.loads(connection.getresponse().read())
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()
    return found if isinstance(found, dict) and "gates" in found else None


def serving(status: dict[str, Any] | None) -> list[str]:
    """Engines that load balancers send traffic to now."""
    return [gate["engine"] for gate in (status or {}).get("gates", []) if gate["ready"]]


@dataclasses.dataclass
class Proof:
    """What a status proves. `waiting` may still become good; `problems` say why not."""

    problems: list[str] = dataclasses.field(default_factory=list)
    warnings: list[str] = dataclasses.field(default_factory=list)
    waiting: list[str] = dataclasses.field(default_factory=list)
    findings: list[dict[str, Any]] = dataclasses.field(default_factory=list)

    @property
    def good(self) -> bool:
        """Whether everything is proven."""
        return not self.problems and not self.waiting


def judge(status: dict[str, Any] | None, profile_hash: str, *, ready: bool = True) -> Proof:
    """Whether the agent runs this profile, every check passes and every gate is open (`ready`)."""
    proof = Proof()
    if status is None:
        proof.waiting.append("the agent does not answer; look at `systemctl status nodegate`")
        return proof
    if status.get("profile_hash") != profile_hash:
        proof.waiting.append(
            "the agent runs another profile; run the phase agent, or look at `journalctl -u nodegate`"
        )
        return proof
    open_gates = serving(status)
    for results in _by_check(status["results"]):
        _weigh(proof, results, open_gates, ready)
    mode = status.get("mode")
    if not status["results"]:
        proof.waiting.append("the agent has run no check yet")
    for gate in status["gates"]:
        if ready and mode != "observe" and not gate["ready"]:
            proof.waiting.append(
                f"gate {gate['engine']} is {gate['state']}: {gate['reason'] or 'no reason given'}"
            )
    return proof


def _by_check(results: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Results that are not well, those of one check and verdict together."""
    groups: dict[tuple[object, ...], list[dict[str, Any]]] = {}
    for result in results:
        if result["verdict"] not in ("PASS", "SKIP"):
            told = bool(result.get("waived") or result.get("shadow"))
            groups.setdefault((result["check"], result["verdict"], told), []).append(result)
    return list(groups.values())


def _weigh(proof: Proof, results: list[dict[str, Any]], open_gates: list[str], ready: bool) -> None:
    """One check's results. What is not known of an engine that serves is told: its gate has judged it."""
    first = results[0]
    engine = str(first["subject"]).removeprefix("engine:")
    judged = first["verdict"] == "UNKNOWN" and engine in open_gates
    # Nobody asks for it yet, or it was stopped for the maintenance that this proof is to end.
    judged = judged or (not ready and str(first["check"]).startswith("engine."))
    for result in results:
        action = result.get("action") or {}
        finding = {key: result.get(key) for key in _KEPT}
        proof.findings.append({**finding, "hint": action.get("hint", ""), "tag": action.get("play")})
    tag, hint = proof.findings[-len(results)]["tag"], proof.findings[-len(results)]["hint"]
    more = f" (and {len(results) - 1} more of it)" if len(results) > 1 else ""
    line = f"{first['check']} {first['subject']}{more}: {first['summary']}"
    remedy = f"run site.yml --tags {tag}" if tag else hint
    line = f"{line}; {remedy}" if remedy else line
    if first["verdict"] == "WARN" or first.get("waived") or first.get("shadow") or judged:
        proof.warnings.append(line)
    else:
        proof.problems.append(f"{first['verdict']} {line}")


def wait_for(
    probe: Callable[[], Proof],
    wait_s: float,
    *,
    mono_s: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Proof:
    """Ask until everything is proven, or for `wait_s`; a failing check may pass when it has run again."""
    end_s = mono_s() + wait_s
    while True:
        proof = probe()
        if proof.good or mono_s() >= end_s:
            return proof
        sleep(1.0)
