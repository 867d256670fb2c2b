"""NVML events on the SIMULATED library: told at once, and no failure of theirs is anybody else's."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from nvml_lib import NvmlFile, build_library, uuid_of

from agent.node_profile import NodeProfile
from agent.sources.gpu_reading import NvmlGroup
from agent.sources.live import live_sources
from agent.sources.nvml_events import EventTimes, NvmlEvents
from agent.sources.nvml_pipe import Process, reap

Follow = Callable[..., NvmlEvents]
Children = Callable[[], list[int]]

#: For what must happen, on a busy machine.
PATIENT_S = 30.0
XID, CLOCK, RECOVERY = 0x8, 0x10, 0x8000


class Bell:
    """Counts events."""

    def __init__(self) -> None:
        self.kinds: list[str] = []
        self._rang = threading.Condition()

    def __call__(self, kind: str) -> None:
        with self._rang:
            self.kinds.append(kind)
            self._rang.notify_all()

    def wait(self, count: int) -> bool:
        with self._rang:
            return self._rang.wait_for(lambda: len(self.kinds) >= count, PATIENT_S)


@pytest.fixture
def bell() -> Bell:
    return Bell()


@pytest.fixture
def follow(node: NvmlFile, library: Path, bell: Bell, children: Children) -> Iterator[Follow]:
    """Makes followers, started; closes them and checks that no process is left."""
    made: list[NvmlEvents] = []

    def make(**options: object) -> NvmlEvents:
        times = EventTimes(start_s=PATIENT_S, gpu_s=PATIENT_S, beat_s=PATIENT_S / 3, rest_s=0.05)
        events = NvmlEvents(bell, **({"env": node.env(library), "times": times} | options))
        made.append(events)
        events.start()
        return events

    yield make
    for events in made:
        events.close()
        assert events.state == "closed"
    assert children() == []


def until(condition: Callable[[], object]) -> bool:
    end_s = time.monotonic() + PATIENT_S
    while not condition():
        if time.monotonic() > end_s:
            return False
        time.sleep(0.01)
    return True


def test_an_xid_is_told_at_once_and_a_burst_once_or_twice(follow: Follow, node: NvmlFile, bell: Bell) -> None:
    events = follow()
    assert events.wait_following(PATIENT_S)
    assert events.state == "NVML events are followed"
    node.set({"events": f"3:{XID}:79"})
    assert bell.wait(1)
    node.set({"events": f"3:{XID}:79" + f" 5:{XID}:48" * 10 + f" 5:{RECOVERY}:1"})
    assert bell.wait(2)
    assert set(bell.kinds) == {"nvml"}
    assert len(bell.kinds) <= 3, "eleven events at the same moment are not eleven calls"


def test_events_that_are_no_faults_are_not_asked_for(follow: Follow, node: NvmlFile, bell: Bell) -> None:
    assert follow().wait_following(PATIENT_S)
    node.set({"events": f"3:{CLOCK}:1 3:4:1"})
    node.set({"events": f"3:{CLOCK}:1 3:4:1 3:{XID}:79"})
    assert bell.wait(1)
    assert bell.kinds == ["nvml"]


def test_an_old_gpu_has_fewer_types_and_one_has_none(follow: Follow, node: NvmlFile, bell: Bell) -> None:
    node.set({"gpu1.event_types": 0x2 | XID, "gpu2.event_types": 0, "gpu4.event_types": "NOT_SUPPORTED"})
    node.fault("GPU_IS_LOST", gpu=5)
    assert follow().wait_following(PATIENT_S)
    node.set({"events": f"1:{XID}:79"})
    assert bell.wait(1)


def test_a_gpu_that_hangs_or_crashes_when_touched_is_left_out(
    follow: Follow, node: NvmlFile, bell: Bell, children: Children
) -> None:
    node.fault("hang", gpu=3, call="nvmlDeviceRegisterEvents")
    node.fault("segv", gpu=6, call="nvmlDeviceGetSupportedEventTypes")
    events = follow(times=EventTimes(start_s=PATIENT_S, gpu_s=1.5, beat_s=PATIENT_S, rest_s=0.05))
    assert events.wait_following(PATIENT_S)
    assert len(children()) == 1
    node.set({"events": f"2:{XID}:79"})
    assert bell.wait(1)


@pytest.mark.parametrize(
    ("call", "error", "rest"),
    [
        ("nvmlInitWithFlags", "DRIVER_NOT_LOADED", r"0\.\d+|\d+"),
        ("nvmlDeviceRegisterEvents", "NO_PERMISSION", "300"),
        ("nvmlDeviceGetSupportedEventTypes", "NOT_SUPPORTED", "300"),
    ],
)
def test_refused(follow: Follow, node: NvmlFile, call: str, error: str, rest: str) -> None:
    node.fault(error, call=call)
    events = follow()
    assert until(lambda: "not followed" in events.state)
    assert re.search(rf"not followed: {error}; next try in ({rest}) s", events.state)


def test_no_library_and_an_old_one(follow: Follow, node: NvmlFile, tmp_path: Path, bell: Bell) -> None:
    none = follow(library=str(tmp_path / "libnvidia-ml.so.1"))
    old = follow(env=node.env(build_library(tmp_path / "old", hide=["nvmlEventSetWait_v2"])))
    assert until(lambda: "LIBRARY_NOT_FOUND; next try in 300 s" in none.state)
    assert until(lambda: "FUNCTION_NOT_FOUND; next try in 300 s" in old.state)


def test_a_driver_reload_is_survived_and_makes_the_checks_look(
    follow: Follow, node: NvmlFile, bell: Bell, children: Children
) -> None:
    events = follow()
    assert events.wait_following(PATIENT_S)
    first = children()
    node.fault("GPU_IS_LOST", call="nvmlEventSetWait_v2")
    assert bell.wait(1)
    assert until(lambda: "GPU_IS_LOST" in events.state)
    node.fault("none", call="nvmlEventSetWait_v2")
    assert events.wait_following(PATIENT_S)
    assert children() != first
    node.set({"events": f"0:{XID}:79"})
    assert bell.wait(2)


@pytest.mark.parametrize("fault", ["segv", "hang"])
def test_a_wait_that_crashes_or_hangs(follow: Follow, node: NvmlFile, bell: Bell, fault: str) -> None:
    events = follow(times=EventTimes(start_s=PATIENT_S, gpu_s=PATIENT_S, beat_s=0.5, rest_s=0.05))
    assert events.wait_following(PATIENT_S)
    node.fault(fault, call="nvmlEventSetWait_v2")
    assert bell.wait(1), "whatever ended it may be news"
    node.fault("none", call="nvmlEventSetWait_v2")
    assert until(lambda: events.state == "NVML events are followed")


def test_a_process_killed_from_outside_is_replaced(follow: Follow, bell: Bell, children: Children) -> None:
    events = follow()
    assert events.wait_following(PATIENT_S)
    (pid,) = children()
    os.kill(pid, signal.SIGKILL)
    assert bell.wait(1)
    assert until(lambda: events.wait_following(PATIENT_S) and children() != [pid])


def test_while_a_process_cannot_be_killed_no_other_is_started(
    follow: Follow, node: NvmlFile, children: Children
) -> None:
    sticky = threading.Event()
    sticky.set()

    def reaper(process: Process, wait_s: float) -> bool:
        return not sticky.is_set() and reap(process, max(wait_s, 10.0))

    node.fault("hang", call="nvmlInitWithFlags")
    events = follow(times=EventTimes(start_s=0.5, rest_s=0.05), reaper=reaper)
    assert until(lambda: "stuck, unkillable" in events.state)
    assert len(children()) == 1
    sticky.clear()


def test_starting_and_closing_wait_for_nothing(follow: Follow, node: NvmlFile) -> None:
    node.fault("hang", call="nvmlInitWithFlags")
    began_s = time.monotonic()
    follow().close()
    assert time.monotonic() - began_s < PATIENT_S / 2
    never = NvmlEvents(lambda _kind: None)
    never.close()


def test_the_process_goes_when_its_parent_is_killed(node: NvmlFile, library: Path) -> None:
    script = (
        "import sys, psutil\n"
        "from agent.sources.nvml_events import NvmlEvents\n"
        "events = NvmlEvents(print)\nevents.start()\nevents.wait_following(60)\n"
        "print(psutil.Process().children()[0].pid, flush=True)\nsys.stdin.read()\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script],
        env={**os.environ, **node.env(library)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    assert until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)


def test_the_live_bundle_rings_and_reads_anew(
    node: NvmlFile,
    library: Path,
    bell: Bell,
    children: Children,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    for name, value in node.env(library).items():
        monkeypatch.setenv(name, value)
    live = live_sources(on_event=bell, root=tmp_path)
    live.start()
    try:
        nvml = live.sources.nvml
        assert nvml.read(uuid_of(3), NvmlGroup.MEMORY).integer("recovery_action") == 0
        assert until(lambda: len(children()) == 2)
        assert live._gpu_events is not None
        assert live._gpu_events.wait_following(PATIENT_S)
        before_s = nvml.read(uuid_of(3), NvmlGroup.MEMORY).mono_s
        node.set({"gpu3.field.230": 2, "events": f"3:{RECOVERY}:2"})
        assert until(lambda: "nvml" in bell.kinds)
        after = nvml.read(uuid_of(3), NvmlGroup.MEMORY)
        assert after.integer("recovery_action") == 2
        assert after.mono_s > before_s
    finally:
        live.close()
    assert children() == []


def test_a_node_without_gpus_follows_no_events(bell: Bell, tmp_path: Path) -> None:
    profile = NodeProfile.model_validate(
        {
            "gpus": {"count": 0},
            "nvlink": {"links_per_gpu": 0},
            "fabric": {"kind": "none"},
            "engines": {},
        }
    )
    live = live_sources(profile, on_event=bell, root=tmp_path)
    assert live._gpu_events is None
    live.close()
