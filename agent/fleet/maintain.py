"""What `nodegate fleet maintain` tells the plays, and what it says of each node in the end (pure)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.errors import ConfigError
from agent.fleet.ask import Answer
from agent.fleet.told import OPEN, Told, line

LONGEST_REASON = 300


@dataclass(frozen=True)
class Order:
    """What was asked for. `way`: enter, finish or resume."""

    way: str
    reason: str
    who: str
    answers: Mapping[str, str]

    @property
    def play(self) -> str:
        """The playbook for it."""
        return "maintenance" if self.way == "enter" else "post_maintenance"

    def variables(self, report: Path) -> str:
        """For the play, as JSON."""
        found: dict[str, Any] = {"maintain_reason": f"{self.reason} ({self.who}, by fleet maintain)"}
        if self.way != "enter":
            found = {
                "post_maintenance_who": self.who,
                "post_maintenance_reason": self.reason,
                "post_maintenance_answers": dict(self.answers),
                "post_maintenance_resume": self.way == "resume",
                "post_maintenance_report": str(report),
            }
        return json.dumps(found)


def order_of(reason: str | None, who: str, *, finish: bool, resume: bool, answers: Sequence[str]) -> Order:
    """The order in the words of the command line. ConfigError for what contradicts itself."""
    if finish and resume:
        raise ConfigError(
            "--finish and --resume are two ways back",
            remedy="--finish begins the checklist anew, --resume goes on with the newest run of it",
        )
    way = "finish" if finish else "resume" if resume else "enter"
    if way == "enter" and answers:
        raise ConfigError("--answer is for the checklist", remedy="give it with --finish or --resume")
    if way == "enter" and not (reason or "").strip():
        raise ConfigError("nobody would know why", remedy="say it: --reason 'coolant pump replaced'")
    text = (reason or "").strip()
    for option, said in (("--reason", text), ("--who", who)):
        if not _plain(said):
            limits = f"at most {LONGEST_REASON} characters, without {{{{ or {{%"
            raise ConfigError(f"{option}: write one line of printable text, {limits}")
    return Order(way, text, who, dict(map(_answer, answers)))


def _plain(text: str) -> bool:
    """Whether Ansible takes a text as it is: nothing in it is a template."""
    short = text.isprintable() and len(text) <= LONGEST_REASON
    return short and not any(mark in text for mark in ("{{", "{%", "{#"))


def _answer(word: str) -> tuple[str, str]:
    step, _, text = word.partition("=")
    if not step or not text.strip() or not _plain(word):
        raise ConfigError(f"--answer {word!r} is not STEP=TEXT", remedy="write --answer coolant-seen=flows")
    return step, text.strip()


def where_it_stands(name: str, answer: Answer, inventory: str) -> str:
    """One line: what may be done with a node now."""
    told = answer.told
    if told is None:
        return f"{name}: UNKNOWN: {answer.why}; do not touch it before `nodegate status` on the node is read"
    if not told.live:
        return (
            f"{name}: UNKNOWN: the main loop of its agent does not beat; do not touch it before `nodegate"
            " status` on the node is read"
        )
    run = told.checklist
    if run is not None and run.verdict is None and run.running:
        return f"{name}: its checklist {line(run.name)} goes on (step {line(run.step or '-')})"
    held = told.holds.maintenance
    back = f"back with: nodegate fleet maintain -i {inventory} --limit {name} --finish"
    if held is None:
        gates = ", ".join(f"{gate.engine} {gate.state}" for gate in told.gates) or "no engine"
        return f"{name}: not in maintenance: {line(gates)}"
    busy = [
        gate.engine for gate in told.gates if gate.state in (*OPEN, "draining") or _runs(told, gate.process)
    ]
    if busy:
        return f"{name}: enters maintenance, but {line(', '.join(busy))} still works; do not touch it yet"
    if told.mode != "manage" and told.gates:
        safe = "stop its engine yourself before you touch it"
    else:
        safe = "no engine runs: safe to reboot, power off, open"
    return f"{name}: in maintenance ({line(held.reason)}); {safe}; {back}"


def _runs(told: Told, process: Any) -> bool:
    return told.mode == "manage" and process is not None and process.pid is not None
