"""The child's life: replies that make no sense, interruption, closing, and the death of the parent."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from nvml_lib import NvmlFile, uuid_of

from agent.errors import ParseError, SourceUnavailable
from agent.sources.gpu_reading import NvmlGroup
from agent.sources.nvml import CHILD_ARGV, NvmlProcess

Start = Callable[..., NvmlProcess]
Children = Callable[[], list[int]]

UUID = uuid_of(0)
#: A child that starts well and then says whatever it is told to.
LIAR = """
import json, sys
lies = json.loads(sys.argv[1])
for line in sys.stdin:
    request = json.loads(line)
    lie = lies.get(request["op"])
    if lie is None:
        print(json.dumps({"id": request["id"], "ok": {}}), flush=True)
    elif isinstance(lie, str):
        sys.stdout.write("x" * 2_000_000 if lie == "endless" else lie + "\\n")
        sys.stdout.flush()
    else:
        print(json.dumps({"id": request["id"], "ok": lie}), flush=True)
"""
SYSTEM = {"driver_version": "1", "nvml_version": "1", "cuda_version": 1, "device_count": 1}
IDENTITY = {"uuid": UUID, "pci_bus_id": "00000000:19:00.0"}
FABRIC = {"state": 3, "status": 0, "health_mask": 0, "clique_id": 0}


def liar(**lies: object) -> list[str]:
    return [sys.executable, "-c", LIAR, json.dumps({"system": SYSTEM, "identity": IDENTITY, **lies})]


def until(condition: Callable[[], bool], wait_s: float = 30.0) -> bool:
    end_s = time.monotonic() + wait_s
    while not condition():
        if time.monotonic() > end_s:
            return False
        time.sleep(0.02)
    return True


def test_the_liar_can_tell_the_truth(start: Start) -> None:
    nvml = start(argv=liar(read=FABRIC))
    assert dict(nvml.read(UUID, NvmlGroup.FABRIC).values) == FABRIC


@pytest.mark.parametrize(
    "garbage",
    ["not JSON", "[]", "null", '{"id": 99, "ok": {}}', '{"ok": {}}', "\x00\x7f", "endless"],
    ids=["text", "list", "null", "other request", "no request", "control", "endless"],
)
def test_garbled_replies(start: Start, children: Children, garbage: str) -> None:
    nvml = start(argv=liar(read=garbage))
    nvml.inventory()
    first = children()
    with pytest.raises(ParseError, match=f"garbled fabric of {UUID}"):
        nvml.read(UUID, NvmlGroup.FABRIC)
    nvml.system()
    assert children() != first, "a garbled process is replaced"


@pytest.mark.parametrize(
    "values",
    [
        {**FABRIC, "state": "3"},
        {**FABRIC, "state": True},
        {**FABRIC, "status": None},
        {**FABRIC, "health_mask": [0]},
        {**FABRIC, "clique_id": {"wrong": "shape"}},
        {**FABRIC, "clique_id": {"error": 3}},
        {key: value for key, value in FABRIC.items() if key != "state"},
        {**FABRIC, "surprise": 1},
        [1, 2],
    ],
)
def test_values_of_the_wrong_type(start: Start, children: Children, values: object) -> None:
    nvml = start(argv=liar(read=values))
    nvml.inventory()
    first = children()
    with pytest.raises(ParseError):
        nvml.read(UUID, NvmlGroup.FABRIC)
    nvml.system()
    assert children() != first


@pytest.mark.parametrize("op", ["system", "identity"])
@pytest.mark.parametrize(
    "values", [{}, [], {"driver_version": 1}, {"uuid": 7}, {**IDENTITY, "pci_bus_id": "here"}]
)
def test_system_and_identity_of_the_wrong_type(start: Start, op: str, values: object) -> None:
    with pytest.raises(ParseError):
        start(argv=liar(**{op: values})).inventory()


def test_a_child_that_cannot_start(start: Start, tmp_path: Path) -> None:
    with pytest.raises(SourceUnavailable, match="cannot start the NVML process"):
        start(argv=[str(tmp_path / "no-python")]).system()


def test_a_child_that_ends_says_why(start: Start) -> None:
    nvml = start(argv=[sys.executable, "-c", "raise SystemExit('no binding here')"])
    with pytest.raises(SourceUnavailable, match=r"ended with exit code 1 \(no binding here\)"):
        nvml.system()


def test_a_child_that_talks_on_standard_error_is_not_blocked(start: Start) -> None:
    talk = "sys.stderr.write('x' * 100000)\nfor line in sys.stdin:"
    script = LIAR.replace("for line in sys.stdin:", talk)
    nvml = start(argv=[sys.executable, "-c", script, json.dumps({"system": SYSTEM})])
    assert nvml.system().device_count == 1


def test_an_interrupted_call_leaves_no_reply_for_the_next(start: Start, node: NvmlFile) -> None:
    class Interrupted(Exception):
        pass

    def interrupt(_number: int, _frame: object) -> None:
        raise Interrupted

    node.set({"gpu0.temperature": 71, "gpu0.us.nvmlDeviceGetTemperature": 1_000_000})
    nvml = start()
    nvml.inventory()
    before = signal.signal(signal.SIGUSR1, interrupt)
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1))
    try:
        timer.start()
        with pytest.raises(Interrupted):
            nvml.read(uuid_of(0), NvmlGroup.THERMAL)
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, before)
    assert nvml.read(uuid_of(1), NvmlGroup.THERMAL).integer("temperature_c") == 38


def test_close_ends_the_child_and_all_calls(start: Start, node: NvmlFile, children: Children) -> None:
    nvml = start()
    nvml.inventory()
    node.fault("hang", gpu=0)
    errors: list[Exception] = []

    def read() -> None:
        with pytest.raises(SourceUnavailable, match="closed") as caught:
            nvml.read(uuid_of(0), NvmlGroup.THERMAL)
        errors.append(caught.value)

    thread = threading.Thread(target=read)
    thread.start()
    (child,) = children()
    assert until(lambda: psutil.Process(child).status() == psutil.STATUS_SLEEPING)
    nvml.close()
    thread.join(timeout=20)
    assert len(errors) == 1
    assert children() == []
    with pytest.raises(SourceUnavailable, match="closed"):
        nvml.system()
    nvml.close()


PARENT = """
import os, signal, sys, threading, psutil
from agent.errors import SourceError
from agent.sources.gpu_reading import NvmlGroup
from agent.sources.nvml import NvmlProcess
nvml = NvmlProcess(deadline_s=600)
uuids = [gpu.uuid for gpu in nvml.inventory()]
print(psutil.Process().children()[0].pid, flush=True)
if sys.argv[1] == "hung":
    nvml.read(uuids[3], NvmlGroup.THERMAL)
sys.stdin.read()
"""


@pytest.mark.parametrize("state", ["idle", "hung"])
def test_the_child_goes_when_its_parent_is_killed(node: NvmlFile, library: Path, state: str) -> None:
    node.fault("hang", gpu=3, call="nvmlDeviceGetMarginTemperature")
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, state],
        env={**os.environ, **node.env(library)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        assert child.cmdline()[1:] == list(CHILD_ARGV[1:])
        parent.kill()
    assert until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)


def test_the_child_outlives_the_thread_that_started_it(nvml: NvmlProcess, children: Children) -> None:
    thread = threading.Thread(target=nvml.inventory)
    thread.start()
    thread.join()
    first = children()
    assert nvml.system().device_count == 8
    assert children() == first


def test_the_child_is_light(nvml: NvmlProcess, children: Children) -> None:
    nvml.inventory()
    (pid,) = children()
    assert psutil.Process(pid).memory_info().rss < 40 * 2**20
