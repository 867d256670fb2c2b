"""An agent that comes back: it adopts its engine, or ends it before it starts another; never two."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import launch_kit
import pytest
from launch_kit import engine_profile, launch_part, rig, session, wait_dead, wait_gone
from ports import free_port

from agent.launch import recovery as recovery_module
from agent.launch.run_record import RunFile, RunRecord
from agent.model import EnginePhase
from agent.profile_loader import LoadedProfile, profile_from_dict
from agent.sources.clock import LiveClock

_SETTLED = (EnginePhase.WARM, EnginePhase.BACKOFF, EnginePhase.EXITED)
AGENT = Path(launch_kit.__file__).with_name("launch_agent.py")


def left_by_a_killed_agent(folder: Path, port: int) -> int:
    """Start an agent, wait until its engine is warm, kill the agent; the engine's pid."""
    agent = subprocess.Popen(
        [sys.executable, str(AGENT), str(folder), str(port)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert agent.stdout is not None
        pid = int(agent.stdout.readline())
    finally:
        agent.kill()
        agent.communicate()
    assert len(session(pid)) == 2
    return pid


def left_running(folder: Path, port: int) -> int:
    """An engine without an agent, got in a cheaper way; its pid."""

    async def scenario() -> int:
        async with rig(folder, engine_profile(port), leave_running=True) as r:
            return await r.start()

    pid = asyncio.run(scenario())
    assert len(session(pid)) == 2
    return pid


def end(pid: int) -> None:
    """Kill what is left of an engine."""
    for stat in session(pid):
        os.kill(stat.pid, signal.SIGKILL)
    wait_gone(pid)


def test_a_living_engine_is_adopted(tmp_path: Path) -> None:
    port = free_port()
    pid = left_by_a_killed_agent(tmp_path, port)

    async def scenario() -> None:
        async with rig(tmp_path, engine_profile(port)) as r:
            await r.until_phase(EnginePhase.WARM)
            assert r.controller.status.pid == pid
            assert f"adopted as pid {pid}" in [status.reason for status in r.statuses]
            assert "warm-up 1 of 1" in [status.reason for status in r.statuses]
            (core,) = [stat.pid for stat in session(pid) if stat.pid != pid]
            os.kill(core, signal.SIGKILL)  # it is watched as well as one of its own
            await r.until("the news", lambda: EnginePhase.EXITED in r.phases)
            await r.until("a clean end", lambda: EnginePhase.BACKOFF in r.phases)
            assert not session(pid)

    try:
        asyncio.run(scenario())
    finally:
        end(pid)


def test_an_engine_that_has_run_for_longer_than_a_start_may_take_is_adopted_too(tmp_path: Path) -> None:
    port = free_port()
    pid = left_running(tmp_path, port)
    # Its deadline is over as soon as it is found: as if it had been started long ago.
    at_once = engine_profile(port, start_deadline_s=0.001)

    async def scenario() -> None:
        async with rig(tmp_path, at_once) as r:
            await r.until("an end of the search", lambda: r.controller.status.phase in _SETTLED)
            assert (r.controller.status.phase, r.controller.status.pid) == (EnginePhase.WARM, pid)

    try:
        asyncio.run(scenario())
    finally:
        end(pid)


def test_an_engine_found_in_its_warm_up_gets_all_of_it(tmp_path: Path) -> None:
    """The agent that launched it was killed before its end: nothing has shown yet that it bears full load."""
    port = free_port()
    pid = left_running(tmp_path, port)
    (tmp_path / "state" / "engine-sim.warmed").unlink()

    async def scenario() -> None:
        async with rig(tmp_path, engine_profile(port)) as r:
            await r.until_phase(EnginePhase.WARM)
            assert r.controller.status.pid == pid
            curve = r.controller.status.warmup
            assert curve is not None
            assert {step.kind for step in curve.steps} >= {"short", "concurrent", "first_token"}

    try:
        asyncio.run(scenario())
        assert (tmp_path / "state" / "engine-sim.warmed").is_file()
    finally:
        end(pid)


def test_orphans_of_a_dead_server_are_ended_before_a_start(tmp_path: Path) -> None:
    """As vLLM's EngineCore that outlived its API server while no agent was there."""
    port = free_port()
    pid = left_by_a_killed_agent(tmp_path, port)
    os.kill(pid, signal.SIGKILL)
    wait_dead(pid)

    async def scenario() -> None:
        async with rig(tmp_path, engine_profile(port)) as r:
            r.controller.start_engine()
            await r.until("the end of the old one", lambda: EnginePhase.STARTING in r.phases)
            assert not session(pid)
            assert r.phases[0] is EnginePhase.STOPPING
            await r.until_phase(EnginePhase.WARM)

    try:
        asyncio.run(scenario())
    finally:
        end(pid)


@pytest.mark.parametrize(
    "change", ["another launch", "garbled record", "no record", "another boot", "another pid"]
)
def test_what_cannot_be_adopted_is_ended_first(tmp_path: Path, change: str) -> None:
    port = free_port()
    pid = left_running(tmp_path, port)
    record = tmp_path / "state" / "engine-sim.json"
    profile = engine_profile(port)
    if change == "another launch":
        profile = engine_profile(port, launch=launch_part("--max-num-seqs", "4"))
    elif change == "garbled record":
        record.write_text('{"engine": ')
    elif change == "no record":
        record.unlink()
    else:
        data = json.loads(record.read_text())
        data |= {"boot_id": "another"} if change == "another boot" else {"pid": os.getpid(), "start_ticks": 1}
        record.write_text(json.dumps(data))

    async def scenario() -> None:
        async with rig(tmp_path, profile) as r:
            await r.until("an end", lambda: EnginePhase.STOPPING in r.phases)
            await r.until_phase(EnginePhase.ABSENT)
            assert not session(pid)
            assert not record.exists()

    try:
        asyncio.run(scenario())
    finally:
        end(pid)


def gpu_profile(port: int) -> LoadedProfile:
    """An engine on one GPU that is not pinned, so that its plan needs NVML."""
    data = engine_profile(port).profile.model_dump(mode="json")
    data["gpus"] |= {"count": 1, "pins": {}, "numa_node": {}}
    data["engines"]["sim"]["gpus"] = [0]
    return profile_from_dict(data)


def test_an_engine_is_not_ended_because_nvml_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long: an engine that runs is not at fault."""
    monkeypatch.setattr(recovery_module, "RECOVER_PATIENCE_S", 0.0)
    monkeypatch.setattr(recovery_module, "_RETRY_S", 0.05)
    port = free_port()
    uuid = "GPU-11111111-2222-3333-4444-555555555555"
    gpus = [{"identity": {"index": 0, "uuid": uuid}}]

    async def scenario() -> None:
        node = {"nvml": {"system": {}, "gpus": gpus}}
        async with rig(tmp_path, gpu_profile(port), leave_running=True, node=node) as r:
            pid = await r.start()
        node = {"nvml": {"system": {}, "gpus": {"error": "TIMEOUT"}}}
        async with rig(tmp_path, gpu_profile(port), node=node) as r:
            await r.until("a reason", lambda: "no launch plan yet" in r.controller.status.reason)
            await asyncio.sleep(0.3)  # several tries, all beyond the patience
            assert r.controller.status.phase is EnginePhase.ABSENT
            assert len(session(pid)) == 2
            r.node.set("nvml.gpus", gpus)
            await r.until_phase(EnginePhase.WARM)
            assert r.controller.status.pid == pid

    asyncio.run(scenario())


def test_agents_with_other_state_directories_leave_it_alone(tmp_path: Path) -> None:
    port = free_port()
    pid = left_running(tmp_path / "one", port)

    async def scenario() -> None:
        async with rig(tmp_path / "two", engine_profile(free_port())) as r:
            await r.start()
        assert len(session(pid)) == 2

    try:
        asyncio.run(scenario())
    finally:
        end(pid)


def test_the_record_is_whole_or_old(tmp_path: Path) -> None:
    file = RunFile(tmp_path / "deep" / "engine-a.json")
    assert file.load() is None
    record = RunRecord(
        engine="a",
        boot_id="b",
        token="t",
        launch_hash="h",
        started_mono_s=LiveClock().mono_s(),
        members=((1, 2),),
    )
    file.save(record)
    assert file.load() == record
    assert file.path.stat().st_mode & 0o777 == 0o600
    file.remove()
    assert file.load() is None


@pytest.mark.parametrize("text", ["", "[]", "[" * 100_000, '{"engine": "a"}', "\x00"])
def test_a_garbled_record_is_none(tmp_path: Path, text: str) -> None:
    file = RunFile(tmp_path / "engine-a.json")
    file.path.write_text(text)
    assert file.load() is None
