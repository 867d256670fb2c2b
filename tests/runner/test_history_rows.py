"""The table of `nodegate history`: what began well is counted, what says the same shares a row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.commands import history


def _result(subject: str, before: str | None, verdict: str, summary: str = "same") -> dict[str, Any]:
    entry = {"kind": "result", "wall_s": 1_700_000_000.0, "check": "c", "subject": subject, "before": before}
    return entry | {"verdict": verdict, "summary": summary, "evidence": {}, "part": ""}


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
    assert "PASS -> PASS" in text
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
