"""The helper's loop: systemd's watchdog is fed however long a period is."""

from __future__ import annotations

import json
import logging
import threading
import time
from pathlib import Path

import pytest

from agent.commands import enforce
from agent.errors import SourceUnavailable
from agent.profile_loader import LoadedProfile, load_profile


def _refuse(_table: str) -> str | None:
    raise SourceUnavailable("nft: cannot list")


def _loaded(folder: Path, period_s: float, timeout_s: float) -> LoadedProfile:
    """Nobody answers at the API's port."""
    site = {
        "mode": "gate",
        "gpus": {"count": 0},
        "nvlink": {"links_per_gpu": 0},
        "fabric": {"kind": "none"},
        "engines": {"glm": {"gpus": [], "port": 8000}},
        "api": {"host": "127.0.0.1", "port": 1},
        "enforce": {"enabled": True, "period_s": period_s, "timeout_s": timeout_s},
    }
    (folder / "site.yaml").write_text(json.dumps(site))
    return load_profile(folder / "site.yaml")


def test_the_watchdog_is_fed_within_a_long_period(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a table that cannot be listed is loaded all the same."""
    loaded: list[str] = []
    beats: list[float] = []
    stop = threading.Event()
    monkeypatch.setattr("agent.sources.nft.load_rules", loaded.append)
    monkeypatch.setattr("agent.sources.nft.show_table", _refuse)
    monkeypatch.setattr(enforce, "_WATCHDOG_S", 0.01)

    def beat() -> None:
        beats.append(time.monotonic())
        if len(beats) == 5:
            stop.set()

    ready: list[str] = []
    enforce._keep(_loaded(tmp_path, 60.0, 180.0), ready.append, beat, stop)
    assert ready == ["1 engines"]
    assert beats[-1] - beats[0] < 30
    assert "chain input" in loaded[0]


def test_a_profile_that_has_changed_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("agent.sources.nft.load_rules", lambda _text: None)
    monkeypatch.setattr("agent.sources.nft.show_table", lambda _table: None)
    loaded = _loaded(tmp_path, 0.05, 2.0)
    stop = threading.Event()
    said: list[int] = []

    def beat() -> None:
        said.append(len([record for record in caplog.records if record.levelno == logging.WARNING]))
        if len(said) == 2:
            (tmp_path / "site.yaml").write_text("engines: {}\n")
        if len(said) == 8:
            stop.set()

    with caplog.at_level(logging.WARNING, "nodegate.enforce"):
        enforce._keep(loaded, lambda _text: None, beat, stop)
    assert said[1] == 0
    assert said[-1] == 1
    assert "systemctl restart nodegate-enforce" in caplog.text
