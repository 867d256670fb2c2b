"""Checklist files: the shipped ones load, and every fault has its file and line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agent.checklist.conditions import Condition, left_out
from agent.checklist.load import (
    available,
    load_checklist,
    load_named,
    origin_of,
    shipped_names,
    with_settings,
)
from agent.checklist.model import Checklist, CheckStep, MeasureStep, QuestionStep
from agent.errors import ConfigError
from agent.profile_loader import profile_from_dict

HEAD = "name: mine\ntitle: T\nwhy: W\nsteps:\n"
STEP = "  - {id: a, title: T, why: W, timeout_s: 9, on_fail: F, "


def write(folder: Path, steps: str, head: str = HEAD) -> Path:
    path = folder / "mine.yaml"
    path.write_text(head + steps)
    return path


@pytest.mark.parametrize("name", shipped_names())
def test_a_shipped_checklist_loads(name: str) -> None:
    checklist = load_named(name, None)
    assert checklist.name == name and checklist.steps
    assert checklist.definition == load_named(name, None).definition
    assert all(step.on_fail.endswith(".") and step.why.endswith((".", "?")) for step in checklist.steps)


def test_all_four_are_shipped() -> None:
    assert shipped_names() == ["before-traffic", "bring-up", "burn-in", "post-maintenance"]


def test_what_a_checklist_covers_it_has_step_by_step() -> None:
    for name in shipped_names():
        whole = load_named(name, None)
        steps = {step.id: step for step in whole.steps}
        for covered in whole.covers:
            for step in load_named(covered, None).steps:
                assert steps.get(step.id) == step, f"{name} covers {covered} and has another step {step.id}"


def test_the_order_of_post_maintenance_is_cooling_load_gate() -> None:
    steps = load_named("post-maintenance", None).steps
    ids = [step.id for step in steps]
    assert ids[:2] == ["coolant", "coolant-seen"] and ids[-1] == "gate"
    assert [
        ids.index(name) for name in ("temperatures", "topology", "firmware", "network", "nccl", "load")
    ] == sorted(
        ids.index(name) for name in ("temperatures", "topology", "firmware", "network", "nccl", "load")
    )
    coolant, asked = steps[0], steps[1]
    assert isinstance(coolant, CheckStep) and coolant.needs_evidence
    assert isinstance(asked, QuestionStep) and asked.stands_in_for == "coolant"


@pytest.mark.parametrize(
    ("steps", "line", "words"),
    [
        (STEP + "check: [gpu.cuont]}\n", 5, "no check matches 'gpu.cuont'; did you mean gpu.count?"),
        (STEP + "measure: load.gup}\n", 5, "no measured test 'load.gup'; did you mean load.gpu?"),
        (STEP + "measure: load.gpu, params: {duration_s: 5, duration: 5}}\n", 5, "duration: unknown key"),
        (STEP + "measure: load.gpu, params: {duration_s: x}}\n", 5, "params.duration_s: `x` is not a number"),
        (
            STEP + "check: [xid], measure: load.gpu}\n",
            5,
            "a step is one of check, measure, question and gate",
        ),
        ("  - {id: a}\n", 5, "a step is one of check, measure, question and gate"),
        (STEP + "check: [xid], wehn: [gpus]}\n", 5, "wehn: unknown key; did you mean when?"),
        (STEP + "check: [xid], when: [gpu]}\n", 5, "`gpu` is not allowed; did you mean gpus?"),
        (STEP + "question: Q}\n", 5, "either choices or a number"),
        (STEP + "check: [xid]}\n" + STEP + "check: [sxid]}\n", 6, "step a is there twice"),
        (STEP + "question: Q, number: {unit: C}, stands_in_for: b}\n", 5, "is no check step 'b'"),
        (STEP + "gate: {}}\n" + STEP.replace("id: a", "id: b") + "gate: {}}\n", 6, "a second gate step"),
        ("  []\n", 4, "steps must be a list of 1 to 200 steps"),
    ],
)
def test_a_fault_has_its_line(tmp_path: Path, steps: str, line: int, words: str) -> None:
    path = write(tmp_path, steps)
    with pytest.raises(ConfigError) as caught:
        load_checklist(path)
    assert str(caught.value).startswith(f"{path}:{line}: "), caught.value
    assert words in str(caught.value)


def test_faults_of_the_head(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=re.escape("mine.yaml:1: the file is named mine")):
        load_checklist(write(tmp_path, STEP + "check: [xid]}\n", HEAD.replace("name: mine", "name: yours")))
    with pytest.raises(ConfigError, match=r"mine\.yaml:2: titel: unknown key; did you mean title"):
        load_checklist(
            write(tmp_path, STEP + "check: [xid]}\n", HEAD.replace("title: T", "titel: T\ntitle: T"))
        )
    with pytest.raises(ConfigError, match="there is no checklist here"):
        load_checklist(tmp_path / "none.yaml")


def test_a_site_folder_goes_before_the_shipped_ones(tmp_path: Path) -> None:
    path = write(tmp_path, STEP + "check: [xid]}\n")
    path.rename(tmp_path / "mine.yaml")
    (tmp_path / "burn-in.yaml").write_text(path.read_text().replace("name: mine", "name: burn-in"))
    assert set(available(tmp_path)) == {*shipped_names(), "mine"}
    assert len(load_named("burn-in", tmp_path).steps) == 1
    assert (origin_of("burn-in", tmp_path), origin_of("burn-in", None)) == ("site", "shipped")
    with pytest.raises(ConfigError, match="did you mean burn-in"):
        load_named("burnin", None)


def test_numbers_can_only_be_lowered_and_that_is_told() -> None:
    burn_in = load_named("burn-in", None)
    same, shortened = with_settings(burn_in, {"load.duration_s": 3600})
    assert (same, shortened) == (burn_in, [])
    lower, shortened = with_settings(burn_in, {"load.duration_s": 60})
    assert shortened == ["load.duration_s 60 of 3600"]
    load = next(step for step in lower.steps if step.id == "load")
    assert isinstance(load, MeasureStep) and load.params["duration_s"] == 60
    for key, value in (
        ("load.duration_s", 7200),
        ("load.duration_s", 0),
        ("load.no_throttle", 0),
        ("x.y", 1),
    ):
        with pytest.raises(ConfigError, match="--set"):
            with_settings(burn_in, {key: value})
    gate, shortened = with_settings(load_named("post-maintenance", None), {"gate.soak_s": 5})
    assert shortened == ["gate.soak_s 5 of 180"] and isinstance(gate, Checklist)


def test_conditions_look_at_the_profile() -> None:
    bare = profile_from_dict({"platform": "h200", "bmc": {"cooling": {"medium": "air"}}}).profile
    assert left_out(bare, []) is None
    assert left_out(bare, [Condition.GPUS, Condition.SEVERAL_GPUS]) is None
    assert left_out(bare, [Condition.NOT_AIR_COOLED]) == "the node is cooled by air (bmc.cooling.medium)"
    for condition in (Condition.BMC, Condition.FABRIC, Condition.RDMA, Condition.ENGINES, Condition.MANAGED):
        assert left_out(bare, [condition]), condition
