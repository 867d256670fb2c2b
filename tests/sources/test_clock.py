"""The live clock and the replay's."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from agent.errors import SourceUnavailable
from agent.sources.clock import LiveClock, ReplayClock


def test_live_clock_is_boottime() -> None:
    clock = LiveClock()
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before <= clock.mono_s() <= before + 60
    assert abs(clock.wall_s() - time.time()) < 60
    assert clock.boot_id() == Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def test_no_boot_id_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(SourceUnavailable, match="boot id"):
        LiveClock(tmp_path).boot_id()


def test_replay_clock_runs_but_has_the_captured_boot_id() -> None:
    clock = ReplayClock("the-boot")
    assert clock.boot_id() == "the-boot"
    assert clock.mono_s() >= time.clock_gettime(time.CLOCK_BOOTTIME) - 60
