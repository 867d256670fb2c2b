"""The live bundle on a machine that may have no GPU, no NIC and no kernel log."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.errors import DeviceAbsent, SourceError, SourceUnavailable
from agent.sources.gpu_reading import NvmlGroup
from agent.sources.live import LiveSources, live_sources


@pytest.fixture
def bare(tmp_path: Path) -> LiveSources:
    """A machine with nothing under its root."""
    return live_sources(root=tmp_path, on_event=lambda _kind: None)


def test_what_is_missing_raises_when_read_not_when_started(bare: LiveSources) -> None:
    bare.start()
    try:
        sources = bare.sources
        assert not sources.simulated
        with pytest.raises(SourceUnavailable):
            sources.kmsg.records()
        with pytest.raises(DeviceAbsent):
            sources.tree.text("proc/cmdline")
        with pytest.raises(SourceUnavailable):
            sources.clock.boot_id()
        with pytest.raises(SourceUnavailable):
            sources.engines.observe("main")
        assert sources.net.link("lo").name == "lo"
    finally:
        bare.close()


def test_nvml_answers_or_says_why_not() -> None:
    live = live_sources()
    try:
        count = live.sources.nvml.system().device_count
        assert len(live.sources.nvml.inventory()) == count
    except SourceError as cause:
        assert str(cause)
        with pytest.raises(SourceError):
            live.sources.nvml.read("GPU-none", NvmlGroup.THERMAL)
    finally:
        live.close()


def test_closing_what_was_never_started(bare: LiveSources) -> None:
    bare.close()
    bare.close()
