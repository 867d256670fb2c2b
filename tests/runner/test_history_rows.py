"""The table of `nodegate history`: what began well is counted, what says the same shares a row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.commands import history


def _result(subject: str, before: str | None, verdict: str, summary: str = "same") -> dict[str, Any]:
    entry = {"kind": "result", "wall_s": 1_700_000_000.0, "check": "c", "subject": subject, "before": before}
    return entry | {
        "verdict": verdict,
        "raw_verdict": verdict,
        "summary": summary,
        "evidence": {},
        "part": "",
    }


def _told(entries: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    class Desk:
        def __init__(self, _run_dir: Path) -> None:
            pass

        def get(self, _path: str, **_asked: object) -> dict[str, Any]:
            return {"entries": entries}

    monkeypatch.setattr("agent.admin_client.AdminClient", Desk)
    history.history_command(since="2h", run_dir=Path("unused"), as_json=False, limit=1000, part=None)


def test_what_began_well_is_counted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = [_result("gpu0", None, "PASS"), _result("gpu1", None, "SKIP"), _result("gpu2", None, "UNKNOWN")]
    _told([*first, _result("gpu0", "PASS", "PASS")], monkeypatch)
    text = capsys.readouterr().out
    assert "new -> UNKNOWN" in text
    assert "still PASS" in text and "PASS -> PASS" not in text
    assert "new -> PASS" not in text
    assert "left out: 2 first results" in text


def test_what_says_the_same_shares_a_row(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    several = [_result(f"gpu{number}", "PASS", "UNKNOWN") | {"part": f"GPU-{number}"} for number in range(8)]
    _told([*several, _result("gpu3", "PASS", "FAIL", "hot") | {"part": "GPU-3"}], monkeypatch)
    text = capsys.readouterr().out
    assert "gpu3 (GPU-3)" in text
    assert "GPU-0" not in text
    assert text.count("PASS -> UNKNOWN") == 1
    assert "gpu0-gpu7" in text
    assert "left out" not in text


def test_a_crash_is_told_with_the_engines_last_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    crash = {"kind": "trace", "wall_s": 1_700_000_000.0, "check": "engine:glm", "summary": "process 7 ended"}
    trace = "loading\nRuntimeError: out of memory\nshutting down\n"
    _told([crash | {"trace": trace}, crash | {"trace": "", "check": "engine:dsv"}], monkeypatch)
    text = " ".join(capsys.readouterr().out.split())
    assert "glm crashed process 7 ended; its last words: RuntimeError: out of memory (--json has 3" in text
    assert "dsv crashed process 7 ended; it wrote nothing" in text


@pytest.mark.parametrize(
    ("before", "verdict", "seen", "told"),
    [
        (None, "FAIL", "FAIL", "new -> FAIL"),
        ("PASS", "PASS", "FAIL", "seen, not confirmed: FAIL"),
        ("PASS", "PASS", "PASS", "still PASS"),
        ("PASS", "PASS", "UNKNOWN", "seen, not confirmed: UNKNOWN"),
        ("FAIL", "FAIL", "PASS", "still FAIL, last reading PASS"),
        ("WARN", "FAIL", "FAIL", "WARN -> FAIL"),
    ],
)
def test_a_verdict_that_stays_says_why_it_is_told(
    before: str | None,
    verdict: str,
    seen: str,
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _told([_result("gpu0", before, verdict) | {"raw_verdict": seen}], monkeypatch)
    assert f"  {told}  same" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("ever", "now", "told"),
    [
        ([], "gpu1", "nothing is known of a part 'gpu0': name its place (gpu3), a GPU's UUID, "),
        ([], "gpu0", "nothing has changed of gpu0 in the last 2h\n"),
        ([_result("gpu0", None, "PASS")], "gpu1", "nothing has changed of gpu0 in the last 2h\n"),
    ],
)
def test_a_part_that_nobody_knows_is_not_one_that_is_quiet(
    ever: list[dict[str, Any]],
    now: str,
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Desk:
        def __init__(self, _run_dir: Path) -> None:
            pass

        def get(self, path: str, **asked: Any) -> dict[str, Any]:
            old = asked.get("since_s", 0) > 7200
            return {"results": [{"subject": now}]} if path == "/status" else {"entries": ever if old else []}

    monkeypatch.setattr("agent.admin_client.AdminClient", Desk)
    history.history_command(since="2h", run_dir=Path("unused"), as_json=False, limit=1000, part="gpu0")
    text = capsys.readouterr().out
    assert text.startswith(told) and text.count("\n") == 1
