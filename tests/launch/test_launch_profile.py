"""From profile and node to argv and environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake_h200 import h200_node, h200_profile, uuid_of

from agent.errors import LaunchError
from agent.launch import launch_profile
from agent.launch.arguments import flag_value, has_flag
from agent.launch.launch_profile import LaunchPlan, build_plan
from agent.launch.secret_words import shown_argv

ENVIRON = {"PATH": "/usr/bin", "HOME": "/home/x", "SECRET_OF_THE_AGENT": "no"}


def plan(launch: dict[str, Any] | None = None, engine: str = "glm", **profile: Any) -> LaunchPlan:
    """The plan of an engine of the healthy H200 node."""
    changes = {"engines": {engine: {"launch": launch or {}}}, **profile}
    return build_plan(h200_profile(changes), engine, h200_node().sources, ENVIRON)


def without_pins() -> dict[str, Any]:
    return {"gpus": {"pins": None}}


def test_gpus_are_full_uuids_in_slot_order() -> None:
    found = plan(engine="kimi")
    assert found.env["CUDA_VISIBLE_DEVICES"] == ",".join(uuid_of(slot) for slot in (4, 5, 6, 7))
    assert found.env["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert found.gpu_uuids == tuple(uuid_of(slot) for slot in (4, 5, 6, 7))


def test_without_pins_the_inventory_names_them() -> None:
    assert plan(**without_pins()).env["CUDA_VISIBLE_DEVICES"] == ",".join(uuid_of(slot) for slot in range(4))


def test_with_pins_nvml_is_not_asked() -> None:
    node = h200_node()
    build_plan(h200_profile(), "glm", node.sources, ENVIRON)
    assert "nvml.gpus" not in node.reads


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        ("nvml.gpus.2.identity.error", "GPU_IS_LOST", "gpu2: NVML answers GPU_IS_LOST"),
        ("nvml.gpus.2.identity.uuid", "GPU-12345678", "gpu2: GPU-12345678 is not a full GPU UUID"),
        ("nvml.gpus", [], "gpu0: NVML lists only 0 GPUs"),
    ],
)
def test_a_gpu_that_cannot_be_named_is_refused(path: str, value: Any, text: str) -> None:
    node = h200_node()
    node.set(path, value)
    with pytest.raises(LaunchError, match=text):
        build_plan(h200_profile(without_pins()), "glm", node.sources, ENVIRON)


def test_an_engine_without_gpus_gets_none_of_the_nodes() -> None:
    assert plan(engine="cpu", engines={"cpu": {"gpus": [], "port": 9000}}).env["CUDA_VISIBLE_DEVICES"] == ""


def test_on_a_node_without_gpus_nothing_is_set() -> None:
    profile = {
        "gpus": {"count": 0, "pins": None, "model": None},
        "nvlink": {"links_per_gpu": 0, "speed_mb_s": None},
    }
    engines = {"glm": None, "kimi": None, "cpu": {"gpus": [], "port": 9000}}
    found = build_plan(
        h200_profile({**profile, "fabric": {"kind": "none", "ports": []}, "engines": engines}),
        "cpu",
        h200_node().sources,
        ENVIRON,
    )
    assert set(found.env) == {"PATH", "HOME"}


def test_only_the_named_variables_are_inherited() -> None:
    found = plan()
    assert found.env["HOME"] == "/home/x"
    assert "SECRET_OF_THE_AGENT" not in found.env
    assert "LD_LIBRARY_PATH" not in found.env


def test_an_override_wins_and_is_noted() -> None:
    found = plan({"env": {"NCCL_IB_TC": "41"}})
    assert found.env["NCCL_IB_TC"] == "41"
    assert found.notes == ("NCCL_IB_TC from launch.env replaces the one from fabric",)


def test_the_engines_gpus_may_be_reordered_but_not_exchanged() -> None:
    order = ",".join(uuid_of(slot) for slot in (3, 2, 1, 0))
    assert plan({"env": {"CUDA_VISIBLE_DEVICES": order}}).env["CUDA_VISIBLE_DEVICES"] == order
    with pytest.raises(LaunchError, match=r"to other GPUs than engines\.glm\.gpus"):
        plan({"env": {"CUDA_VISIBLE_DEVICES": uuid_of(7)}})
    with pytest.raises(LaunchError, match="'0', which is not a full GPU UUID"):
        plan({"env": {"CUDA_VISIBLE_DEVICES": "0,1,2,3"}})


def test_host_port_and_name_are_added_before_the_args() -> None:
    found = plan({"model": "/m", "served_model_name": "glm", "args": ["--max-num-seqs", "8"]})
    assert found.argv == (
        "vllm", "serve", "/m", "--host", "127.0.0.1", "--port", "8000", "--served-model-name", "glm",
        "--max-num-seqs", "8",
    )  # fmt: skip
    assert found.model_name == "glm"


@pytest.mark.parametrize("args", [["--port", "8000"], ["--port=8000"]])
def test_what_the_args_say_is_not_said_twice(args: list[str]) -> None:
    found = plan({"args": [*args, "--host", "127.0.0.1", "--served_model_name=x"]})
    assert found.argv == ("vllm", "serve", *args, "--host", "127.0.0.1", "--served_model_name=x")
    assert found.model_name == "x"


@pytest.mark.parametrize(
    ("launch", "text"),
    [
        ({"args": ["--port", "9"]}, "has --port 9 and engines.glm.port is 8000; make them equal"),
        ({"args": ["--port"]}, "has --port  and engines.glm.port is 8000"),
        ({"args": ["--host=10.0.0.1"]}, "has --host 10.0.0.1 and engines.glm.host is 127.0.0.1"),
        ({"args": ["--served-model-name", "b"], "served_model_name": "a"}, "has --served-model-name b"),
        ({"args": ["a\0b"]}, "an argument has a NUL byte"),
        ({"env": {"NODEGATE_ENGINE": "x"}}, "NODEGATE_ENGINE is set by nodegate itself"),
        ({"env": {"A=B": "x"}}, "'A=B' is not a usable environment variable"),
        ({"env": {"A\n": "x"}}, "'A\\n' is not a usable environment variable"),
        ({"env_file": "/no/such/file"}, "/no/such/file: cannot be read: No such file or directory"),
    ],
)
def test_contradictions_are_one_line(launch: dict[str, Any], text: str) -> None:
    with pytest.raises(LaunchError) as refused:
        plan(launch)
    assert text in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_credential_is_not_to_be_created_like_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    with pytest.raises(LaunchError, match=r"run nodegate\.service, or write a path$"):
        plan({"env_file": "credential:key"})


def test_a_wildcard_host_in_the_args_reaches_the_engines_host() -> None:
    assert "--host" not in plan({"args": ["--host=0.0.0.0"]}).argv


def test_an_unknown_engine_names_those_there_are() -> None:
    with pytest.raises(LaunchError, match="no engine x; it has: glm, kimi"):
        build_plan(h200_profile(), "x", h200_node().sources, ENVIRON)


def test_secrets_are_in_the_process_and_not_in_the_plan(tmp_path: Path) -> None:
    file = tmp_path / "env"
    file.write_text("VLLM_API_KEY=hush-hush\nHF_TOKEN=quiet\n")
    file.chmod(0o600)
    found = plan({"env_file": str(file)})
    assert found.secret_names == ("HF_TOKEN", "VLLM_API_KEY")
    assert found.process_env()["VLLM_API_KEY"] == "hush-hush"
    assert found.api_key == "hush-hush"
    assert "hush" not in repr(found)


def test_a_secret_must_not_choose_the_gpus(tmp_path: Path) -> None:
    file = tmp_path / "env"
    file.write_text("CUDA_VISIBLE_DEVICES=0\n")
    file.chmod(0o600)
    with pytest.raises(LaunchError, match="env_file sets CUDA_VISIBLE_DEVICES"):
        plan({"env_file": str(file)})


def test_a_key_in_the_args_is_used_and_complained_of() -> None:
    found = plan({"args": ["--api-key", "open"]})
    assert found.api_key == "open"
    assert "visible to every user" in found.notes[0]


def test_the_hash_follows_the_profile_and_not_the_shell(tmp_path: Path) -> None:
    node, profile = h200_node(), h200_profile()
    first = build_plan(profile, "glm", node.sources, {"PATH": "/usr/bin"}).launch_hash()
    assert build_plan(profile, "glm", node.sources, {"PATH": "/bin", "HOME": "/"}).launch_hash() == first
    assert plan({"args": ["--seed", "1"]}).launch_hash() != plan().launch_hash()
    file = tmp_path / "env"
    hashes = []
    for secret in ("a", "b"):
        file.write_text(f"HF_TOKEN={secret}\n")
        file.chmod(0o600)
        hashes.append(plan({"env_file": str(file)}).launch_hash())
    assert hashes[0] != hashes[1]


def numa_node(nodes: dict[int, str]) -> Any:
    """The H200 node with NUMA nodes in sysfs, and its profile's PCI addresses."""
    node = h200_node()
    for slot, gpu in enumerate(node.data["nvml"]["gpus"]):
        path = f"files:sys/bus/pci/devices/{gpu['identity']['pci_bus_id']}/numa_node"
        node.set(path, nodes.get(slot))
    return node


def numa_plan(node: Any, engine: dict[str, Any] | None = None, **changes: Any) -> LaunchPlan:
    launch = {"numa_bind": True, **(engine or {})}
    profile = h200_profile({"engines": {"glm": {"launch": launch}}, **changes})
    return build_plan(profile, "glm", node.sources, ENVIRON)


def test_numa_binding_follows_the_gpus() -> None:
    found = numa_plan(numa_node(dict.fromkeys(range(4), "1")))
    assert found.argv[:4] == ("numactl", "--cpunodebind=1", "--membind=1", "vllm")
    assert found.notes == ()


def test_gpus_on_both_nodes_bind_to_both_and_say_so() -> None:
    found = numa_plan(numa_node({0: "1", 1: "1", 2: "0", 3: "0"}))
    assert found.numa == (0, 1)
    assert found.argv[:3] == ("numactl", "--cpunodebind=0,1", "--membind=0,1")
    assert "the GPUs sit on NUMA nodes 0 and 1" in found.notes[0]


def test_the_profile_can_name_the_numa_node() -> None:
    found = numa_plan(h200_node(), gpus={"numa_node": dict.fromkeys(range(4), 3)})
    assert found.numa == (3,)


@pytest.mark.parametrize(
    ("nodes", "text"),
    [({0: "-1"}, "names no NUMA node"), ({}, "cannot be read"), ({0: "x"}, "cannot be read")],
)
def test_an_unknown_numa_node_is_refused(nodes: dict[int, str], text: str) -> None:
    with pytest.raises(LaunchError, match=f"gpu0: .*{text}.*set gpus.numa_node.0"):
        numa_plan(numa_node(nodes))


def test_numa_binding_needs_numactl_on_a_live_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = numa_node(dict.fromkeys(range(4), "0"))
    object.__setattr__(node.sources, "simulated", False)
    profile = h200_profile({"engines": {"glm": {"launch": {"numa_bind": True}}}})
    with pytest.raises(LaunchError, match="needs numactl, which is not in the engine's PATH"):
        build_plan(profile, "glm", node.sources, {"PATH": str(tmp_path)})
    program = tmp_path / "numactl"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    found = build_plan(profile, "glm", node.sources, {"PATH": str(tmp_path)})
    assert found.argv[0] == str(program)
    (tmp_path / "bin").symlink_to(tmp_path)  # as /bin and /usr/bin are one
    again = build_plan(profile, "glm", node.sources, {"PATH": f"{tmp_path}/bin"})
    assert again.launch_hash() == found.launch_hash()


def test_numa_binding_without_gpus_is_refused() -> None:
    with pytest.raises(LaunchError, match="needs GPUs"):
        plan(
            {"numa_bind": True},
            engine="cpu",
            engines={"cpu": {"gpus": [], "port": 9, "launch": {"numa_bind": True}}},
        )


def test_nccl_follows_the_fabric() -> None:
    found = plan()
    assert found.env["NCCL_IB_HCA"] == "=" + ",".join(f"mlx5_{i}:1" for i in range(8))
    assert found.env["NCCL_IB_TC"] == "106"  # DSCP 26, ECN-capable
    assert "NCCL_IB_GID_INDEX" not in found.env and "NCCL_SOCKET_IFNAME" not in found.env
    assert found.origins["NCCL_IB_HCA"] == "fabric"


@pytest.mark.parametrize(
    ("roce", "expected"),
    [
        ({"ecn": False}, {"NCCL_IB_TC": "104"}),
        ({"dscp": 34}, {"NCCL_IB_TC": "138"}),
        ({"trust": "pcp", "priority": 5}, {"NCCL_IB_TC": "106", "NCCL_IB_SL": "5"}),
    ],
)
def test_nccl_traffic_lands_in_the_lossless_priority(roce: dict[str, Any], expected: dict[str, str]) -> None:
    found = plan(fabric={"roce": roce}).env
    assert {key: value for key, value in found.items() if key in ("NCCL_IB_TC", "NCCL_IB_SL")} == expected


def test_infiniband_has_no_traffic_class() -> None:
    found = plan(fabric={"kind": "ib"})
    assert "NCCL_IB_HCA" in found.env and "NCCL_IB_TC" not in found.env


def test_nccl_can_be_left_alone() -> None:
    assert not [key for key in plan({"nccl_env": False}).env if key.startswith("NCCL")]
    assert not [key for key in plan(fabric={"kind": "none", "ports": []}).env if key.startswith("NCCL")]


def test_arguments_are_read_as_argparse_does() -> None:
    arguments = ["serve", "--max_num_seqs=4", "--port", "1", "--port=2", "--api-key", "k", "--api_key=l"]
    assert flag_value(arguments, "--max-num-seqs") == "4"
    assert flag_value(arguments, "--port") == "2"
    assert flag_value(arguments, "--host") is None
    assert has_flag(arguments, "--api-key")
    assert shown_argv(arguments)[-3:] == ["--api-key", "***", "--api_key=***"]
    assert launch_profile.MARKER == "NODEGATE_ENGINE"
