"""A gate that closes on a fault leaves a capture that replays; nothing waits, and only a few are kept."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bundle_kit import NODE

from agent.errors import SourceTimeout
from agent.fault_captures import LEAST_BETWEEN_S, MOST_KEPT, FaultCaptures
from agent.profile_loader import load_profile
from agent.sources.node_folder import load_node_folder
from agent.sources.replay import replay_sources

WAIT_S = 60.0


class Log:
    """The journal, as gates see it."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, str, str]] = []

    def record_gate(self, engine: str, old: str, new: str, *_rest: object, **_more: object) -> None:
        self.entries.append((engine, old, new))


@contextmanager
def _captures(folder: Path, **parts: Any) -> Iterator[tuple[FaultCaptures, Log, Callable[[float], None]]]:
    """Captures of a replayed node, their journal, and a way to let time pass."""
    opened, journal, now = replay_sources(NODE, None), Log(), [0.0]
    profile = load_profile(NODE / "profile.yaml").profile

    def later(seconds: float) -> None:
        now[0] += seconds

    sources = replace(opened.sources, **parts)
    captures = FaultCaptures(journal, folder, sources, lambda: profile, mono_s=lambda: now[0])
    try:
        yield captures, journal, later
    finally:
        captures.wait(WAIT_S)
        opened.close()


def test_a_closing_fault_leaves_a_capture_that_can_be_read(tmp_path: Path) -> None:
    with _captures(tmp_path) as (captures, journal, _later):
        captures.record_gate("main", "serving", "failed", "gpu3 is lost")
        assert captures.wait(WAIT_S)
        (made,) = captures.folder.iterdir()
        folder = load_node_folder(made)
    assert made.name.endswith("Z-main")
    assert len(folder.nvml["gpus"]) == 8
    assert folder.meta.simulated
    assert journal.entries == [("main", "serving", "failed")]
    assert captures.folder.stat().st_mode & 0o007 == 0


@pytest.mark.parametrize(
    ("old", "new"),
    [("serving", "draining"), ("warming", "failed"), ("failed", "quarantined"), ("serving", "degraded")],
)
def test_other_changes_only_go_into_the_journal(tmp_path: Path, old: str, new: str) -> None:
    with _captures(tmp_path) as (captures, journal, _later):
        captures.record_gate("main", old, new, "")
        assert captures.wait(WAIT_S)
    assert journal.entries == [("main", old, new)]
    assert not captures.folder.exists()


def test_one_fault_of_many_gates_is_one_capture_and_flapping_makes_no_more(tmp_path: Path) -> None:
    with _captures(tmp_path) as (captures, journal, later):
        for engine in ("a", "b"):
            captures.record_gate(engine, "serving", "quarantined", "")
        captures.wait(WAIT_S)
        later(LEAST_BETWEEN_S - 1)
        captures.record_gate("a", "degraded", "failed", "")
        captures.wait(WAIT_S)
        assert len(list(captures.folder.iterdir())) == 1
        later(1)
        captures.record_gate("c", "member", "failed", "")
        captures.wait(WAIT_S)
        assert [path.name[-2:] for path in sorted(captures.folder.iterdir())] == ["-a", "-c"]
    assert len(journal.entries) == 4


def test_only_the_newest_are_kept_and_what_was_cut_short_is_taken_away(tmp_path: Path) -> None:
    with _captures(tmp_path) as (captures, _journal, _later):
        old = [f"20200101T00000{number}Z-main" for number in range(MOST_KEPT + 2)]
        for name in (*old, ".half.x"):
            (captures.folder / name).mkdir(parents=True)
        captures.record_gate("main", "serving", "failed", "")
        captures.wait(WAIT_S)
        names = sorted(path.name for path in captures.folder.iterdir())
    assert len(names) == MOST_KEPT
    assert names[:-1] == old[-MOST_KEPT + 1 :]


def test_a_gate_never_waits_for_a_capture_that_hangs(tmp_path: Path) -> None:
    asked, release = threading.Event(), threading.Event()

    class Hanging:
        def system(self) -> object:
            asked.set()
            release.wait(WAIT_S)
            raise SourceTimeout("NVML hangs")

    with _captures(tmp_path, nvml=Hanging()) as (captures, journal, _later):
        captures.record_gate("main", "serving", "failed", "")
        assert asked.wait(WAIT_S)
        captures.record_gate("other", "serving", "failed", "")  # returns though the capture hangs
        assert journal.entries == [("main", "serving", "failed"), ("other", "serving", "failed")]
        release.set()
        assert captures.wait(WAIT_S)
        (made,) = captures.folder.iterdir()
        assert "NVML hangs" in (made / "node.yaml").read_text()


@pytest.mark.parametrize("broken", ["folder", "source"])
def test_a_capture_that_fails_is_one_line_of_the_log(
    tmp_path: Path, broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        def system(self) -> object:
            raise RuntimeError("a defect")

    if broken == "folder":
        (tmp_path / "captures").write_text("in the way")
    parts = {"nvml": Broken()} if broken == "source" else {}
    with caplog.at_level(logging.WARNING), _captures(tmp_path, **parts) as (captures, journal, _later):
        captures.record_gate("main", "serving", "failed", "")
        assert captures.wait(WAIT_S)
    assert [record.message.partition(":")[0] for record in caplog.records] == ["no capture of the fault"]
    assert journal.entries == [("main", "serving", "failed")]
