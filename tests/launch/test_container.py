"""An engine in a container: podman's command line, and a run that ends when its time is over."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from fake_h200 import h200_node, h200_profile, uuid_of
from launch_kit import engine_profile, launch_part, rig
from ports import free_port

from agent.errors import LaunchError
from agent.launch import strays
from agent.launch.arguments import flag_value
from agent.launch.launch_profile import LaunchPlan, build_plan
from agent.launch.podman_unit import in_unit
from agent.launch.strays import StrayFinder
from agent.model import EnginePhase
from agent.sources.processes import ProcessStat

IMAGE = "registry.example/vllm@sha256:" + "a" * 64
ENVIRON = {"PATH": "/usr/bin", "HOME": "/home/x", "LANG": "C"}


def plan(container: dict[str, Any] | None = None, node: Any = None, **launch: Any) -> LaunchPlan:
    """The plan of an engine of the H200 node in a container."""
    described = {"runtime": "podman", "container": {"image": IMAGE, **(container or {})}, **launch}
    profile = h200_profile({"engines": {"glm": {"launch": described}}})
    return build_plan(profile, "glm", (node or h200_node()).sources, ENVIRON)


def test_the_engine_runs_inside_the_image() -> None:
    found = plan(model="/m", flags={"max-num-seqs": 8})
    at = found.argv.index(IMAGE)
    assert found.argv[:2] == ("podman", "run")
    assert found.argv[at - 1] == "--entrypoint=vllm"
    assert found.argv[at + 1 :] == (
        "serve", "/m", "--host", "127.0.0.1", "--port", "8000", "--max-num-seqs", "8",
    )  # fmt: skip
    assert found.container_name == "nodegate-glm" and "--name=nodegate-glm" in found.argv


def test_it_is_closed_by_default() -> None:
    options = set(plan().argv)
    assert {
        "--rm", "--replace", "--restart=no", "--pull=never", "--read-only", "--cap-drop=all",
        "--security-opt=no-new-privileges", "--network=host", "--ipc=host", "--http-proxy=false",
    } <= options  # fmt: skip
    assert not [option for option in options if option.startswith(("--privileged", "--memory", "--timeout"))]


def test_gpus_are_devices_by_full_uuid() -> None:
    devices = [word for word in plan().argv if word.startswith("--device")]
    assert devices == [f"--device=nvidia.com/gpu={uuid_of(slot)}" for slot in range(4)]


def test_rdma_brings_its_devices_and_locked_memory() -> None:
    argv = plan(rdma=True, container={"devices": ["/dev/gdrdrv"]}).argv
    assert {"--device=/dev/infiniband", "--device=/dev/gdrdrv", "--ulimit=memlock=-1:-1"} <= set(argv)
    assert not any("memlock" in word for word in plan().argv)


def test_limits_are_exact() -> None:
    limits = {"cpus": 1.5, "memory_gib": 0.5, "pids": 100, "shm_gib": 2, "max_run_s": 100}
    found = plan(limits)
    assert {
        "--cpus=1.5", "--memory=536870912b", "--memory-swap=536870912b", "--pids-limit=100",
        "--shm-size=2147483648b", "--timeout=740",
    } <= set(found.argv)  # fmt: skip
    assert "--ipc=host" not in found.argv and found.max_run_s == 100
    assert "--memory-swap=1073741824b" in plan({**limits, "memory_swap_gib": 1}).argv


def test_variables_are_passed_by_name_and_inherited_ones_are_podmans_alone(tmp_path: Path) -> None:
    secrets = tmp_path / "env"
    secrets.write_text("HF_TOKEN=hush\n")
    secrets.chmod(0o600)
    found = plan(env={"VLLM_X": "loud"}, env_file=str(secrets))
    passed = [word.removeprefix("--env=") for word in found.argv if word.startswith("--env=")]
    assert passed[:2] == ["HOME=/tmp", "NODEGATE_ENGINE"]
    assert {"VLLM_X", "HF_TOKEN", "CUDA_VISIBLE_DEVICES", "NCCL_IB_HCA"} <= set(passed)
    assert not {"PATH", "LANG", "LD_LIBRARY_PATH"} & set(passed)
    assert "hush" not in " ".join(found.argv) and "loud" not in " ".join(found.argv)
    assert found.process_env()["HF_TOKEN"] == "hush" and found.env["PATH"] == "/usr/bin"


@pytest.mark.parametrize("key", ["PATH", "HOME", "CONTAINER_HOST"])
def test_what_podman_reads_itself_is_refused(key: str) -> None:
    with pytest.raises(LaunchError, match=f"env sets {key}, which podman itself reads; write --env={key}"):
        plan(env={key: "x"})


def mounts(found: LaunchPlan) -> list[str]:
    return [word.removeprefix("--mount=type=bind,") for word in found.argv if word.startswith("--mount=")]


def test_weights_are_mounted_read_only_where_no_mount_has_them() -> None:
    assert mounts(plan(model="/models/kimi")) == ["source=/models/kimi,target=/models/kimi,readonly"]
    models = {"source": "/data", "target": "/models"}
    cache = {"source": "/var/cache/x", "target": "/cache", "read_only": False}
    assert mounts(plan({"mounts": [models, cache]}, model="/models/kimi")) == [
        "source=/data,target=/models,readonly",
        "source=/var/cache/x,target=/cache",
    ]
    assert mounts(plan(model="/m", checkpoint={"path": "/data/m"})) == ["source=/data/m,target=/m,readonly"]
    assert mounts(plan(model="org/name")) == []
    assert mounts(plan(env={"NCCL_TOPO_FILE": "/etc/t.xml"})) == [
        "source=/etc/t.xml,target=/etc/t.xml,readonly"
    ]


def test_binding_is_podmans_and_not_numactls() -> None:
    node = h200_node()
    for slot, gpu in enumerate(node.data["nvml"]["gpus"]):
        path = f"files:sys/bus/pci/devices/{gpu['identity']['pci_bus_id']}/numa_node"
        node.set(path, "0" if slot < 2 else "1")
    node.set("files:sys/devices/system/node/node0/cpulist", "0-3\n")
    node.set("files:sys/devices/system/node/node1/cpulist", "4-7\n")
    found = plan(node=node, numa_bind=True, flags={"numa-bind": True})
    assert {"--cpuset-cpus=0-3,4-7", "--cpuset-mems=0,1", "--cap-add=SYS_NICE"} <= set(found.argv)
    assert found.argv[0] == "podman" and found.numa == (0, 1)
    at = found.argv.index("--numa-bind-nodes")
    assert found.argv[at + 1 : at + 5] == ("0", "0", "1", "1")


def test_the_working_folder_is_the_containers() -> None:
    found = plan(working_dir="/srv")
    assert "--workdir=/srv" in found.argv and found.working_dir is None


def test_in_a_unit_the_container_stays_in_the_units_cgroup() -> None:
    assert in_unit(plan().argv)[:3] == ("podman", "run", "--cgroups=split")
    assert in_unit(("vllm", "serve", "run")) == ("vllm", "serve", "run")


def stat(pid: int, ppid: int, comm: str) -> ProcessStat:
    return ProcessStat(pid, ppid, pid, "S", 1, 100, comm)


def test_the_first_process_of_a_container_is_found_by_its_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []

    def carries(found: ProcessStat, _mark: str) -> bool:
        looked.append(found.pid)
        return found.pid == 30

    monkeypatch.setattr(strays, "carries", carries)
    conmon, other = stat(20, os.getpid(), "conmon"), stat(40, 1, "conmon")
    starting = [conmon, other, stat(30, 20, "runc:[2:INIT]"), stat(50, 40, "nginx"), stat(60, 50, "nginx")]
    running = [conmon, other, stat(30, 20, "vllm"), stat(31, 30, "VLLM::EngineCor"), stat(50, 40, "nginx")]

    async def scenario() -> None:
        finder = StrayFinder("X=", 5.0)
        assert await finder.find(starting, set()) == []
        assert [found.pid for found in await finder.find(running, set())] == [30]
        assert await finder.find(running, {(30, 100)}) == []

    asyncio.run(scenario())
    assert sorted(looked) == [20, 30, 40, 50]  # each once, and not before it is what it will be


def test_a_conmon_that_has_ended_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    let_go: list[int] = []
    monkeypatch.setattr(strays, "reap", let_go.append)
    ended = [
        ProcessStat(pid, parent, pid, state, 1, 100, comm)
        for pid, parent, state, comm in (
            (20, os.getpid(), "Z", "conmon"),
            (21, os.getpid(), "S", "conmon"),
            (22, os.getpid(), "Z", "vllm"),
            (23, 1, "Z", "conmon"),
        )
    ]
    monkeypatch.setattr(strays, "carries", lambda _stat, _mark: False)
    asyncio.run(StrayFinder("X=", 5.0).find(ended, set()))
    assert let_go == [20]


PODMAN = """#!/bin/sh
# SIMULATED podman: runs the entrypoint with what follows the image, on the host itself.
for word in "$@"; do
  case "$word" in --entrypoint=*) program="${word#--entrypoint=}" ;; esac
  shift
  case "$word" in *@sha256:*) exec "$program" "$@" ;; esac
done
"""


def test_an_engine_whose_time_is_over_is_stopped_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "podman"
    program.write_text(PODMAN)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    launch = launch_part(runtime="podman", container={"image": IMAGE, "max_run_s": 0.5})
    profile = engine_profile(free_port(), launch=launch, gate={"drain_grace_s": 0})

    async def scenario() -> None:
        async with rig(tmp_path, profile) as r:
            r.controller.start_engine()
            await r.until("the end of its time", lambda: EnginePhase.STOPPING in r.phases)
            await r.until_phase(EnginePhase.ABSENT)
            assert "its time is over (max_run_s = 0.5 s)" in r.controller.status.reason
            assert r.controller.status.restarts == 0

    asyncio.run(scenario())


def test_numa_nodes_of_another_machine_are_named() -> None:
    node = h200_node()
    for gpu in node.data["nvml"]["gpus"]:
        node.set(f"files:sys/bus/pci/devices/{gpu['identity']['pci_bus_id']}/numa_node", "1")
    found = plan(node=node, flags={"numa-bind": True, "numa-bind-nodes": [0, 0, 0, 0]})
    assert "numa-bind-nodes says 0 0 0 0, and this machine's GPUs sit on 1 1 1 1" in found.notes[0]
    assert flag_value(found.argv, "--numa-bind-nodes") == "0"
    with pytest.raises(LaunchError, match="numa-bind-nodes has 2 nodes and the engine 4 GPUs"):
        plan(node=node, flags={"numa-bind": True, "numa-bind-nodes": [0, 0]})
    for gpu in node.data["nvml"]["gpus"]:
        node.set(f"files:sys/bus/pci/devices/{gpu['identity']['pci_bus_id']}/numa_node", "-1")
    assert (
        "taken as given"
        in plan(node=node, flags={"numa-bind": True, "numa-bind-nodes": [0, 0, 0, 0]}).notes[0]
    )
