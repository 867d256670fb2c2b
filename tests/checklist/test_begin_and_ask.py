"""How a run begins behind gates that drain, and a person who mistypes an answer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from checklist_kit import Bench

from agent.checklist.drained import WAIT_S, await_drained
from agent.checklist.load import load_checklist
from agent.checklist.operator import Operator
from agent.checklist.run import Run
from agent.errors import ConfigError
from agent.model import Verdict


class Gates:
    """A daemon whose gate goes through states, one at each look; the clock stands meanwhile or jumps."""

    def __init__(self, *states: str, beside: str = "stopped") -> None:
        self.states = list(states)
        self.beside = beside
        self.now_s = 0.0
        self.said: list[str] = []

    def status(self) -> dict[str, Any]:
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        return {"gates": [{"engine": "a", "state": state}, {"engine": "b", "state": self.beside}]}

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def wait(self) -> None:
        await_drained(self, self.said.append, sleep=self.sleep, mono_s=lambda: self.now_s)  # type: ignore[arg-type]


def test_gates_that_drain_are_waited_for() -> None:
    gates = Gates("draining", "draining", "draining", "maintenance")
    gates.wait()
    assert gates.states == ["maintenance"] and gates.now_s > 0
    assert gates.said == ["a still drains: waiting until the engine has stopped"]


@pytest.mark.parametrize("beside", ["serving", "degraded", "member"])
def test_beside_an_open_gate_nothing_is_waited_for(beside: str) -> None:
    gates = Gates("draining", beside=beside)
    gates.wait()
    assert gates.now_s == 0 and gates.said == []


def test_a_drain_without_an_end_is_told() -> None:
    gates = Gates("draining")
    with pytest.raises(ConfigError, match=r"a still drains after 900 s; see nodegate status"):
        gates.wait()
    assert WAIT_S <= gates.now_s < WAIT_S + 2


QUESTION = """name: mine
title: M
why: W
steps:
  - id: asked
    title: A
    why: W
    timeout_s: 60
    on_fail: Ask.
    question: Does it flow?
    choices:
      - {answer: "yes", means: it does, verdict: PASS}
      - {answer: "no", means: it does not, verdict: FAIL}
"""


@pytest.mark.parametrize("at_a_terminal", [True, False])
def test_a_slip_of_the_keyboard_is_asked_again(tmp_path: Path, at_a_terminal: bool) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(QUESTION)
    mine = load_checklist(path)
    typed = ["yse", "yes"]
    bench = Bench(tmp_path)
    try:
        given = replace(
            bench.given(mine, bench.record(mine), {}),
            ask=Operator("anna", {}, prompt=lambda _text: typed.pop(0), wall_s=bench.clock.wall_s),
            asks_person=lambda _step: at_a_terminal,
        )
        run = Run(given, bench.store)
        if at_a_terminal:
            assert run.go().verdict is Verdict.PASS
            assert any("'yse' is no answer; answer one of yes, no" in line for line in bench.said)
        else:
            with pytest.raises(ConfigError, match="'yse' is no answer"):
                run.go()
            assert typed == ["yes"]
    finally:
        bench.close()
