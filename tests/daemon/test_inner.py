"""The daemon from within: a hung main loop, the way from an event to a closed gate, defects, reloads."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from daemon_rig import DaemonRig
from inner_daemon import Inner, run_inner

from agent import publisher
from agent.errors import DaemonError
from agent.operator_desk import EngineOrder, GateOrder, Given
from agent.profile_loader import LoadedProfile

TWO = {"glm": [0, 1, 2, 3], "kimi": [4, 5, 6, 7]}
GPU6_LOST = {
    "name": "gpu6-lost",
    "description": "GPU 6 falls off the bus",
    "steps": [
        {
            "at_s": 0.5,
            "kmsg": ["3;NVRM: Xid (PCI:0000:d1:00): 79, pid=1, name=x, GPU has fallen off the bus."],
            "set": {"nvml.gpus.6": {"error": "GPU_IS_LOST"}},
        },
        {"at_s": 3, "reset": ["nvml.gpus.6"]},
    ],
}


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[DaemonRig]:
    made = DaemonRig(tmp_path, TWO)
    yield made
    made.close()


def test_a_hung_main_loop_reads_as_not_ready_and_not_alive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher, "LIVE_WITHIN_S", 1.5)
    rig = DaemonRig(tmp_path, {"glm": [0, 1, 2, 3]})
    rig.profile["api"]["max_age_s"] = 1.5
    rig.write_profile()
    answers: list[tuple[float, int, int, str]] = []

    def ask(began_s: float) -> None:
        while time.monotonic() < began_s + 3:
            at_s = time.monotonic() - began_s
            codes = rig.get("/readyz/glm")[0], rig.get("/livez")[0]
            answers.append((at_s, *codes, rig.agent_line("glm").strip()))

    async def act(inner: Inner) -> None:
        await inner.until("glm", "serving")
        inner.daemon.parts.publisher.beat()
        inner.daemon.parts.publish()
        asker = threading.Thread(target=ask, args=(time.monotonic(),))
        asker.start()
        time.sleep(3.5)  # noqa: ASYNC251 (the fault under test)
        asker.join()
        await asyncio.to_thread(rig.wait_ready)

    run_inner(rig, act)
    assert (200, 200, "up ready 100%") in [answer[1:] for answer in answers], "fresh at first"
    late = [answer[1:] for answer in answers if answer[0] > 2.2]
    assert late
    assert set(late) == {(503, 503, "down #stale")}


def test_a_lost_gpu_closes_its_engines_gate_at_once_and_no_other(rig: DaemonRig) -> None:
    events: list[float] = []

    async def act(inner: Inner) -> None:
        await inner.until("glm", "serving")
        await inner.until("kimi", "serving")
        relay = inner.daemon.parts.runner.trigger

        def timed(kind: str) -> None:
            events.append(time.monotonic())
            relay(kind)

        inner.relay.connect(timed)
        inner.opened.start()
        await inner.until("kimi", "quarantined")
        assert inner.state("glm") == "serving"
        # The GPU answers again, but quarantine does not end by itself; its engine is stopped.
        controller = inner.daemon.parts.controllers["kimi"]
        await inner.until_true(lambda: controller.status.phase == "absent")
        assert (inner.state("kimi"), inner.state("glm")) == ("quarantined", "serving")
        await inner.until_true(lambda: not inner.opened.sources.nvml.inventory()[6].error)
        given = Given("the GPU was reset", "test")
        await inner.daemon.parts.desk.gate(GateOrder.CLEAR, "kimi", given)
        await inner.until("kimi", "serving")

    inner = run_inner(rig, act, GPU6_LOST)
    closed_s = next(at for at, engine, state in inner.states if (engine, state) == ("kimi", "quarantined"))
    # 0.2 s on a quiet machine (tests/e2e measures that); here others run too.
    assert 0 <= closed_s - events[0] < 2.0
    assert not [state for _, engine, state in inner.states if engine == "glm" and state == "failed"]


def test_a_fault_of_the_node_closes_every_gate_and_they_reopen(rig: DaemonRig) -> None:
    rig.profile["checks"]["nic.port"] = {"fail_for_s": 0.5, "clear_for_s": 1, "period_s": 0.5}
    for engine in rig.profile["engines"].values():
        engine["launch"]["rdma"] = True
    rig.write_profile()
    port_down = {
        "name": "port-down",
        "description": "a data port loses its link",
        "steps": [
            {"at_s": 0.2, "set": {"net.eth2.link.operstate": "down", "net.eth2.link.carrier": False}},
            {"at_s": 20, "reset": ["net.eth2"]},
        ],
    }

    async def act(inner: Inner) -> None:
        await inner.until("glm", "serving")
        await inner.until("kimi", "serving")
        controllers = inner.daemon.parts.controllers.values()
        pids = [controller.status.pid for controller in controllers]
        inner.opened.start()
        for engine in TWO:
            await inner.until(engine, "failed")
        captures = rig.state_dir / "captures"
        await inner.until_true(lambda: len([*captures.glob("2*")]) == 1)
        for engine in TWO:
            await inner.until(engine, "serving")
        assert pids == [controller.status.pid for controller in controllers], "the engines were kept"

    run_inner(rig, act, port_down)


def test_orders_move_engines_through_their_gates(rig: DaemonRig) -> None:
    async def act(inner: Inner) -> None:
        parts, given = inner.daemon.parts, Given("test", "test")
        await inner.until("glm", "serving")
        before = parts.controllers["glm"].status.pid
        await parts.desk.engine(EngineOrder.RESTART, "glm", given)
        assert ("glm", "draining") in {change[1:] for change in inner.states}
        await inner.until("glm", "launching")
        await inner.until("glm", "serving")
        assert parts.controllers["glm"].status.pid not in (None, before)
        await parts.desk.engine(EngineOrder.STOP, "glm", given)
        await inner.until("glm", "stopped")
        assert parts.controllers["glm"].status.phase == "absent"
        await parts.desk.engine(EngineOrder.START, "glm", given)
        await inner.until("glm", "serving")

    run_inner(rig, act)


def test_a_defect_in_the_gates_ends_the_daemon_with_nothing_open(
    rig: DaemonRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(inner: Inner) -> None:
        await inner.until("glm", "serving")

        def broken(*_: object) -> None:
            raise ZeroDivisionError("made for the test")

        monkeypatch.setattr(inner.daemon.parts.gates, "settle", broken)
        await asyncio.sleep(3600)

    with pytest.raises((DaemonError, asyncio.CancelledError)):
        run_inner(rig, act)
    assert rig.get("/readyz")[0] == 0
    assert not (rig.run_dir / "admin.sock").exists()
    assert rig.engine_pids(), "an engine is left for the next agent"


def test_a_profile_is_reloaded_whole_or_refused(rig: DaemonRig) -> None:
    async def act(inner: Inner) -> None:
        parts = inner.daemon.parts
        await inner.until("glm", "serving")
        old = parts.loaded.hash

        async def reload(marker: str) -> None:
            inner.daemon.request_reload()
            reloading = inner.daemon._reloading
            assert reloading is not None, marker
            await asyncio.wait({reloading})

        rig.profile["nonsense"] = 1
        rig.write_profile()
        await reload("bad")
        assert parts.loaded.hash == old
        status = await asyncio.to_thread(rig.json, "/status")
        assert "nonsense" in status["problems"][0] and "stays in force" in status["problems"][0]
        del rig.profile["nonsense"]
        rig.profile["engines"]["glm"]["port"] += 1
        rig.write_profile()
        await reload("other port")
        assert "restart the agent" in parts.problem
        rig.profile["engines"]["glm"]["port"] -= 1
        rig.profile["driver_version"] = "999.1"
        rig.write_profile()
        await reload("good")
        assert (parts.loaded.hash != old, parts.problem) == (True, "")
        await asyncio.sleep(1.5)
        assert inner.state("glm") in ("serving", "degraded"), [s for s in inner.states if s[1] == "glm"][-6:]

    run_inner(rig, act)


def test_a_reload_asked_for_during_another_reads_the_newest_profile(rig: DaemonRig) -> None:
    async def act(inner: Inner) -> None:
        parts, given = inner.daemon.parts, inner.daemon._given
        reading, release = threading.Event(), threading.Event()

        def load_slowly() -> LoadedProfile:
            loaded = given.load_again()
            reading.set()
            release.wait(60)
            return loaded

        inner.daemon._given = replace(given, load_again=load_slowly)
        try:
            inner.daemon.request_reload()
            await inner.until_true(reading.is_set)
            rig.profile["driver_version"] = "999.1"
            rig.write_profile()
            for _ in range(50):
                inner.daemon.request_reload()
        finally:
            release.set()
        await inner.until_true(lambda: parts.loaded.profile.driver_version == "999.1")

    run_inner(rig, act)
