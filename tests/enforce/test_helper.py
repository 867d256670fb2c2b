"""The helper's loop: systemd's watchdog is fed however long a period is."""

from __future__ import annotations

import threading
import time

import pytest
from server_kit import profile

from agent.commands import enforce
from agent.errors import SourceUnavailable
from agent.node_profile import NodeProfile


def _refuse(_table: str) -> str | None:
    raise SourceUnavailable("nft: cannot list")


def test_the_watchdog_is_fed_within_a_long_period(monkeypatch: pytest.MonkeyPatch) -> None:
    """And a table that cannot be listed is loaded all the same."""
    loaded: list[str] = []
    beats: list[float] = []
    stop = threading.Event()
    monkeypatch.setattr("agent.sources.nft.load_rules", loaded.append)
    monkeypatch.setattr("agent.sources.nft.show_table", _refuse)
    monkeypatch.setattr(enforce, "_WATCHDOG_S", 0.01)
    plain = profile().model_dump()
    more = {"enforce": {"enabled": True, "period_s": 60.0, "timeout_s": 180.0}, "api": {"port": 1}}
    of = NodeProfile.model_validate({**plain, **more})

    def beat() -> None:
        beats.append(time.monotonic())
        if len(beats) == 5:
            stop.set()

    ready: list[str] = []
    enforce._keep(of, ready.append, beat, stop)
    assert ready == ["1 engines"]
    assert beats[-1] - beats[0] < 30
    assert "chain input" in loaded[0]
