"""The roles' own code on a node: what is ordered, what is waited for, what a checklist's end is called."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from nodegate_apply.checklist import Wanted, bad_step, nothing_to_do, run_checklist
from nodegate_apply.host import HostError, Output
from nodegate_apply.maintain import DRAIN_MARK, Maintenance


def status(
    state: str = "serving", pid: int | None = 7, held: str | None = None, drain: str | None = None
) -> dict[str, Any]:
    gate = {
        "engine": "main",
        "state": state,
        "ready": state in ("serving", "degraded"),
        "process": {"pid": pid},
        "drain": {"reason": drain, "who": "uid 0"} if drain else None,
    }
    return {"mode": "manage", "gates": [gate], "holds": {"maintenance": {"reason": held} if held else None}}


class Node:
    """An agent that answers in turn, the last for ever; the orders that it got; a clock."""

    def __init__(self, *answers: dict[str, Any] | None, refuses: str = "") -> None:
        self.left, self.orders, self.now_s, self.refuses = list(answers), [], 0.0, refuses

    def has(self, program: str) -> bool:
        return False

    def must(self, argv: list[str], timeout_s: float) -> str:
        self.orders.append(argv[1:])
        if self.refuses:
            raise HostError(self.refuses)
        return ""

    def ask(self) -> dict[str, Any] | None:
        return self.left.pop(0) if len(self.left) > 1 else self.left[0]

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    @property
    def agent(self) -> Maintenance:
        return Maintenance(self, self.ask, "nodegate", mono_s=lambda: self.now_s, sleep=self.sleep)  # type: ignore[arg-type]


def test_it_enters_and_waits_until_the_engine_has_ended() -> None:
    closing = status("draining", held="pump")
    node = Node(status(), closing, closing, status("maintenance", None, "pump"))
    assert node.agent.enter("pump", 60, check=False) == "entered maintenance: main serving"
    assert node.orders == [["maintenance", "enter", "--reason", "pump"]] and node.now_s == 2.0
    assert node.agent.handover()[1].startswith("no engine runs")


def test_a_gate_that_drains_and_an_agent_that_hangs_are_waited_for() -> None:
    """An engine that others run has no process of ours: its requests are in the gate's state alone."""
    drains = {**status("draining", None, "pump"), "mode": "gate"}
    done = {**status("maintenance", None, "pump"), "mode": "gate"}
    node = Node({**status(), "mode": "gate"}, drains, {**done, "live": False}, {**done, "live": True})
    node.agent.enter("pump", 60, check=False)
    assert node.now_s == 2.0


def test_an_engine_that_does_not_end_is_told_and_stays_held() -> None:
    node = Node(status(), status("draining", held="pump"))
    with pytest.raises(HostError, match="main still runs 5 s after the drain began"):
        node.agent.enter("pump", 5, check=False)


def test_a_second_order_changes_nothing() -> None:
    node = Node(status("maintenance", None, "pump"))
    assert node.agent.enter("other", 60, check=False) == "" and node.orders == []
    assert node.agent.enter("other", 60, check=True) == ""


def test_check_mode_orders_nothing() -> None:
    node = Node(status())
    assert node.agent.enter("pump", 60, check=True) == "would enter maintenance: main serving"
    assert node.agent.drain("main", "pump", 60, check=True) == "would drain main"
    assert (
        Node(status("stopped", None, drain=f"{DRAIN_MARK}x")).agent.resume("main", check=True)
        == "would resume main"
    )
    assert node.orders == []


def test_a_node_without_an_agent_cannot_be_taken() -> None:
    with pytest.raises(HostError, match="no agent runs here"):
        Node(None).agent.enter("pump", 5, check=False)


def test_a_head_is_drained_and_only_our_drain_is_ended() -> None:
    node = Node(status(), status("draining"), status("stopped", None, drain=f"{DRAIN_MARK}n2: pump"))
    assert node.agent.drain("main", "n2: pump", 60, check=False) == "drained main"
    assert node.orders == [["gate", "drain", "main", "--reason", f"{DRAIN_MARK}n2: pump"]]
    assert node.agent.drain("main", "n2: pump", 60, check=False) == ""
    assert node.agent.resume("main", check=False) == "resumed main"
    theirs = Node(status("stopped", None, drain="mine, says bob"))
    assert theirs.agent.resume("main", check=False) == "" and theirs.orders == []


def test_a_drain_that_another_member_has_ended_meanwhile_is_ended() -> None:
    ours = status("stopped", None, drain=f"{DRAIN_MARK}x")
    assert (
        Node(ours, status("preflight", None), refuses="it is not drained").agent.resume("main", check=False)
        == ""
    )
    with pytest.raises(HostError, match="disk full"):
        Node(ours, refuses="disk full").agent.resume("main", check=False)


def test_an_engine_that_the_agent_does_not_have_is_another_profile() -> None:
    with pytest.raises(HostError, match=r"site\.yml --tags agent"):
        Node(status()).agent.drain("second", "x", 5, check=False)


class Runs:
    """A host whose nodegate ends so, and leaves this report."""

    def __init__(self, code: int, steps: list[tuple[str, str | None]] | None = None, err: str = "") -> None:
        self.code, self.steps, self.err, self.argv = code, steps, err, []  # type: int, Any, str, list[str]

    def run(self, argv: list[str], timeout_s: float) -> Output:
        self.argv = list(argv)
        if self.steps is not None:
            folder = Path(argv[argv.index("--report") + 1])
            steps = [
                {"id": i, "verdict": v, "summary": f"{i} seen", "hint": "call them"} for i, v in self.steps
            ]
            (folder / "report.json").write_text(json.dumps({"run": {"steps": steps}}))
        return Output(self.code, "", self.err)


def run(host: Runs, tmp_path: Path, **more: Any):
    return run_checklist(host, Wanted("post-maintenance", "ada", **more), 60, folder=str(tmp_path / "r"))  # type: ignore[arg-type]


def test_the_words_of_a_run(tmp_path: Path) -> None:
    host = Runs(0, [("coolant", "PASS")])
    more = {
        "reason": "pump",
        "answers": {"seen": "it flows"},
        "settings": {"gate.soak_s": 1.0},
        "resume": True,
    }
    ended = run(host, tmp_path, **more)
    assert ended.passed and [Path(file).name for file in ended.reports] == ["report.json"]
    assert host.argv[1:] == [
        *(
            "checklist",
            "run",
            "post-maintenance",
            "--who",
            "ada",
            "--report",
            str(tmp_path / "r/post-maintenance"),
        ),
        *("--reason", "pump", "--resume", "--answer", "seen=it flows", "--set", "gate.soak_s=1"),
    ]
    assert (tmp_path / "r").stat().st_mode & 0o777 == 0o700


def test_the_step_that_ended_a_run_is_named_and_not_one_that_was_answered_for(tmp_path: Path) -> None:
    steps = [("coolant", "UNKNOWN"), ("seen", "PASS"), ("load", "FAIL"), ("gate", None)]
    ended = run(Runs(1, steps), tmp_path)
    assert (ended.passed, ended.step) == (False, "load")
    assert ended.line == "post-maintenance: step load is FAIL: load seen; call them"
    assert bad_step({"run": []}) is None and bad_step(None) is None


def test_one_that_could_not_run_says_why_and_no_old_report_is_taken_for_it(tmp_path: Path) -> None:
    run(Runs(1, [("load", "FAIL")]), tmp_path)
    ended = run(Runs(3, err="nodegate: step seen asks: does it flow?; go on with --resume"), tmp_path)
    assert ended.line == "post-maintenance: step seen asks: does it flow?; go on with --resume"
    assert not ended.passed and ended.reports == ()
    assert run(Runs(1), tmp_path).line == "post-maintenance: exit status 1"


def test_a_folder_that_somebody_else_has_put_there_is_refused(tmp_path: Path) -> None:
    (tmp_path / "r").symlink_to(tmp_path)
    with pytest.raises(HostError, match="is not a folder of this user"):
        run(Runs(0), tmp_path)


def test_a_node_that_serves_has_nothing_to_finish() -> None:
    assert nothing_to_do(status()) and nothing_to_do(status("member"))
    for other in (None, status("quarantined", None), status("maintenance", None, "pump"), {"gates": []}):
        assert not nothing_to_do(other)
