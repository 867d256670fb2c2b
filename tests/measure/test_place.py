"""Where a worker runs: an engine's own Python, on the host or in its image, without its secrets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake_h200 import h200_node, h200_profile, uuid_of

from agent.measure.place import WORKERS, NoPlace, Place, find_place
from agent.node_profile import NodeProfile

IMAGE = "registry.example/vllm@sha256:" + "0123456789abcdef" * 4


def vllm_at(folder: Path) -> list[str]:
    """A program as pip installs it; its interpreter need not be there to be named."""
    folder.mkdir(parents=True)
    program = folder / "vllm"
    program.write_text(f"#!{folder}/python3\n")
    program.chmod(0o755)
    return [str(program), "serve"]


def profile(glm: dict[str, Any], kimi: dict[str, Any] | None = None, **more: Any) -> NodeProfile:
    engines = {"glm": {"launch": glm}, "kimi": {"launch": kimi or {"command": ["/nowhere/vllm", "serve"]}}}
    return h200_profile({"engines": engines, **more})


def found(of: NodeProfile, gpus: list[int], engine: str | None = None) -> Place:
    return find_place(of, h200_node().sources, gpus, "gpu_load.py", {"size": "full"}, engine)


def test_the_engines_python_with_the_tests_gpus(tmp_path: Path) -> None:
    env = {"NCCL_IB_TIMEOUT": "22", "CUDA_VISIBLE_DEVICES": ",".join(uuid_of(s) for s in (3, 2, 1, 0))}
    of = profile(
        {"command": vllm_at(tmp_path / "bin"), "env": env, "rdma": True},
        topology={"nccl_file": "/etc/topo.xml"},
    )
    place = found(of, [5, 2])
    assert place.engine == "glm"
    assert place.argv[:3] == (f"{tmp_path}/bin/python3", "-B", "-u")
    assert place.argv[3:] == (str(WORKERS / "gpu_load.py"), '{"size": "full"}')
    assert place.env["CUDA_VISIBLE_DEVICES"] == f"{uuid_of(2)},{uuid_of(5)}"
    assert (place.env["NCCL_IB_TIMEOUT"], place.env["NCCL_NET"]) == ("22", "IB")
    assert place.env["NCCL_TOPO_FILE"] == "/etc/topo.xml"
    assert place.env["NCCL_IB_HCA"].startswith("=mlx5_")


def test_secrets_are_not_given_to_it(tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    secrets.write_text("HF_TOKEN=hidden\n")
    secrets.chmod(0o600)
    place = found(profile({"command": vllm_at(tmp_path / "bin"), "env_file": str(secrets)}), [0, 1])
    assert "hidden" not in str(place)


def test_in_the_engines_image_under_a_name_of_its_own(tmp_path: Path) -> None:
    launch = {"runtime": "podman", "command": ["vllm", "serve"], "container": {"image": IMAGE}}
    place = found(profile(launch), [0, 1])
    words = list(place.argv)
    assert words[:3] == ["podman", "run", "--interactive"]
    assert "--name=nodegate-glm-measure" in words and "--env=NODEGATE_WORKLOAD" in words
    assert f"--mount=type=bind,source={WORKERS},target={WORKERS},readonly" in words
    assert [word for word in words if "nvidia.com" in word] == [
        f"--device=nvidia.com/gpu={uuid_of(slot)}" for slot in (0, 1)
    ]
    at = words.index(IMAGE)
    assert words[at - 1] == "--entrypoint=python3" and words[at + 1 :][2] == str(WORKERS / "gpu_load.py")


def test_the_next_engine_where_the_first_has_none_and_why_where_none_has(tmp_path: Path) -> None:
    of = profile({"command": ["/nowhere/vllm", "serve"]}, {"command": vllm_at(tmp_path / "bin")})
    assert found(of, [0, 1]).engine == "kimi"
    assert found(of, [4, 5]).engine == "kimi"  # whose GPUs they are
    with pytest.raises(NoPlace, match=r"glm: there is no file /nowhere/vllm$"):
        found(of, [0, 1], "glm")
    none = profile({"command": ["/nowhere/vllm", "serve"]}, {"command": ["/opt/other", "go"]})
    with pytest.raises(NoPlace, match="glm: there is no file /nowhere/vllm; kimi: "):
        found(none, [0, 1])
    with pytest.raises(NoPlace, match="the profile has no engine x; it has: glm, kimi"):
        found(of, [0, 1], "x")
    with pytest.raises(NoPlace, match="the profile has no engine whose Python could run it"):
        found(of.model_copy(update={"engines": {}}), [0, 1])
