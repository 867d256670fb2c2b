"""Carried results open no gate by themselves where a fast check can read anew."""

from __future__ import annotations

from dataclasses import replace

import pytest
from server_kit import profile

from agent.checks.registry import load_all
from agent.evaluate import Judgement
from agent.fresh_start import without_carried
from agent.model import Finding, Result, ServingClass, Snapshot, Verdict

CHECKS = load_all()
SETTINGS = profile().engines["glm"].model_copy(update={"gpus": [3]})


def result(check: str, subject: str, carried: bool = True) -> Result:
    return Result(
        check,
        Finding(subject, Verdict.PASS, "x"),
        Verdict.PASS,
        Verdict.PASS,
        ServingClass.HARD,
        1,
        1,
        60,
        carried,
    )


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        (result("gpu.lost", "gpu3"), ("gpu.lost gpu3",)),
        (result("gpu.lost", "gpu3", carried=False), ()),
        (result("gpu.lost", "gpu4"), ()),  # another engine's
        (result("gpu.count", "node"), ("gpu.count node",)),
        (result("host.driver", "node"), ()),  # slow
        (result("engine.health", "engine:glm"), ()),  # no admission check
        (result("gone.check", "node"), ()),
    ],
)
def test_a_fast_check_must_have_run(given: Result, missing: tuple[str, ...]) -> None:
    snapshot = Snapshot("n", "h", True, "b", 1.0, 1.0, {(given.check, given.subject): given})
    clean = Judgement()
    assert without_carried(clean, snapshot, CHECKS, "glm", SETTINGS).missing == missing
    before = replace(clean, missing=("gpu.ecc",))
    assert without_carried(before, snapshot, CHECKS, "glm", SETTINGS).missing == ("gpu.ecc", *missing)
