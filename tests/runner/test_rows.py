"""Rows that say the same become one; nothing that differs is lost."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from runner_kit import result

from agent.check_track import ResultChange
from agent.commands.status import show_status
from agent.daemon_news import news_of
from agent.model import Finding, Verdict
from agent.rows import cause_of, merge, names, shared_causes, subjects, worst_first


@pytest.mark.parametrize(
    ("several", "text"),
    [
        (["gpu0", "gpu1", "gpu2", "gpu3"], "gpu0-gpu3"),
        (["gpu0", "gpu1"], "gpu0, gpu1"),
        (["gpu0", "gpu2", "gpu3", "gpu4", "node"], "gpu0, gpu2-gpu4, node"),
        (["mlx5_8/1", "mlx5_9/1", "mlx5_10/1"], "mlx5_8/1-mlx5_10/1"),
        (["mlx5_0/1", "mlx5_0/2", "mlx5_0/3"], "mlx5_0/1, mlx5_0/2, mlx5_0/3"),
        (["engine:a", "node"], "engine:a, node"),
        (["node"], "node"),
    ],
)
def test_subjects(several: list[str], text: str) -> None:
    assert subjects(several) == text


def test_names_of_checks() -> None:
    assert names(["a", "b", "c"]) == "a, b, c"
    assert names(["a", "b", "c", "d"]) == "a, b, ... (4 checks)"


def test_what_differs_in_another_column_stays_apart() -> None:
    rows = [("a", "gpu0", "x", 3), ("a", "gpu1", "y", 4), ("b", "gpu0", "x", 5)]
    assert merge(rows, 0, names) == rows
    assert merge(rows, 0, names, largest=3) == [("a, b", "gpu0", "x", 5), ("a", "gpu1", "y", 4)]


def test_the_worst_come_first_and_the_rest_stays_in_order() -> None:
    rows = [(1, "PASS"), (2, "WARN"), (3, "FAIL"), (4, "SKIP"), (5, "UNKNOWN"), (6, "FAIL")]
    assert [row[0] for row in worst_first(rows, 1)] == [3, 6, 5, 2, 1, 4]


def test_a_countdown_is_no_other_cause() -> None:
    assert cause_of("no answer; next try in 12 s") == "no answer"


def test_a_failure_is_logged_as_a_warning_and_a_burst_as_one_line() -> None:
    failed = [Finding(f"gpu{n}", Verdict.FAIL, "12 errors") for n in range(8)]
    bad = [
        ResultChange(None, replace(result("gpu.ecc", each.subject, Verdict.FAIL), finding=each))
        for each in failed
    ]
    well = ResultChange(result("xid", "node", Verdict.FAIL), result("xid", "node", Verdict.PASS))
    unchanged = ResultChange(None, result("gpu.count", "node", Verdict.PASS))
    lines = list(news_of([*bad, well, unchanged]))
    assert [level for level, *_ in lines] == [30, 20]
    assert [fields["subject"] for fields in lines[0][2]] == [f"gpu{n}" for n in range(8)]
    assert lines[0][1] == "gpu.ecc gpu0-gpu7: FAIL: 12 errors"
    assert lines[1][1].startswith("xid node: PASS: ")


def dark_status() -> dict[str, object]:
    """What the daemon says of two engines while NVML does not answer."""
    of = [(f"gpu.c{check}", f"gpu{gpu}") for check in range(12) for gpu in range(8)]
    nothing = {"kind": "none", "hint": "", "play": None}
    found = "NVML does not answer; next try in {} s"
    held = " (note: PASS held for up to 60 s)"
    blocking = [
        {"check": check, "subject": gpu, "summary": found.format(i) + held * (i % 2), "action": nothing}
        for i, (check, gpu) in enumerate(of)
    ]
    results = [
        {
            "check": check,
            "subject": gpu,
            "verdict": "PASS" if i % 2 else "UNKNOWN",
            "raw_verdict": "UNKNOWN",
            "waived": False,
            "age_s": i,
            "summary": found.format(i),
            "action": nothing,
            "first_seen_s": 1_700_000_000.0,
            "engines": [{"engine": "a", "effect": "degrades", "blocks_admission": True}],
        }
        for i, (check, gpu) in enumerate(of)
    ]
    warning = {**results[0], "check": "gpu.z", "verdict": "WARN", "summary": "warm"}
    gate = {
        "state": "failed", "ready": False, "forced": False, "since_s": 5, "process": None, "reason": "why",
        "force_open": None, "blocking": blocking,
    }  # fmt: skip
    gates = [{**gate, "engine": "a"}, {**gate, "engine": "b"}]
    return {
        "live": True,
        "profile_hash": "0" * 64,
        "gates": gates,
        "results": [*results, warning],
        "holds": None,
    }


def test_status_says_once_what_all_checks_say(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr("sys.stdout", stream)
    show_status(dark_status())
    lines = stream.getvalue().splitlines()
    about = [line for line in lines if "NVML" in line]
    assert about == [
        "a, b    gpu.c0, gpu.c1, ... (12 checks)  gpu0-gpu7  UNKNOWN  NVML does not answer",
        "-> gpu.c0, gpu.c1, ... (12 checks) gpu0, gpu2, gpu4, gpu6: One cause: NVML does not answer",
    ]
    assert [line.split() for line in lines if line.startswith("gpu.z")] == [
        ["gpu.z", "gpu0", "WARN", "0", "s", "warm"]
    ]
    at = lines.index("-> gpu.z gpu0")
    assert lines[at + 1].startswith("   WARN since 2023-11-1")
    assert lines[at + 2] == "   degrades a; a gate that is closed stays closed"
    assert lines[-1] == "48 PASS, 48 UNKNOWN, 1 WARN"
    assert all(line == line.rstrip() for line in lines)
    assert len(lines) < 20


def test_a_cause_that_several_checks_share_is_told_instead_of_their_sources() -> None:
    unknown = [
        ("gpu.a", "NVML does not start"),
        ("gpu.b", "NVML does not start"),
        ("gpu.a", "late"),
        ("c", ""),
    ]
    assert shared_causes(unknown) == {"NVML does not start": "One cause: NVML does not start"}
