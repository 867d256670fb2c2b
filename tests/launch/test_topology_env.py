"""NCCL_TOPO_FILE: which engines are given the profile's topology file."""

from __future__ import annotations

from topo_nodes import topo_node

from agent.launch.launch_profile import build_plan
from agent.node_profile import NodeProfile
from agent.profile_loader import profile_from_dict
from agent.topo.named import named_files

FILE = "/etc/nodegate/nccl-topo.xml"


def _profile(launch: dict[str, object], file: str | None = FILE) -> NodeProfile:
    engine = {"gpus": [0, 1], "port": 8000, "launch": {"command": ["vllm", "serve"], "model": "m", **launch}}
    return profile_from_dict(
        {
            "platform": "h200",
            "gpus": {"count": 8},
            "fabric": {"kind": "none"},
            "engines": {"a": engine},
            "topology": {"nccl_file": file},
        }
    ).profile


def _env(profile: NodeProfile) -> str | None:
    return build_plan(profile, "a", topo_node("h200-roce").sources, {}).env.get("NCCL_TOPO_FILE")


def test_an_engine_with_gpus_gets_the_file_and_its_own_setting_wins() -> None:
    assert _env(_profile({})) == FILE
    assert _env(_profile({"nccl_env": False})) == FILE
    assert _env(_profile({"env": {"NCCL_TOPO_FILE": "/other.xml"}})) == "/other.xml"
    assert _env(_profile({}, None)) is None


def test_each_named_file_is_looked_at_once() -> None:
    def told(launch: dict[str, object], file: str | None = FILE) -> list[tuple[str, str | None]]:
        return [(named.subject, named.host) for named in named_files(_profile(launch, file))]

    own = {"env": {"NCCL_TOPO_FILE": "/other.xml"}}
    assert told({}) == [("node", FILE)]
    assert told({"env": {"NCCL_TOPO_FILE": FILE}}) == [("node", FILE)]
    assert told(own) == [("node", FILE), ("engine:a", "/other.xml")]
    assert told(own, None) == [("engine:a", "/other.xml")]
    assert told({}, None) == []


def test_in_a_container_the_file_is_that_of_the_mount() -> None:
    def told(mounts: list[dict[str, object]]) -> list[tuple[str, str | None]]:
        container = {"image": f"vllm@sha256:{'0' * 64}", "mounts": mounts}
        named = named_files(_profile({"runtime": "podman", "container": container}))
        return [(each.subject, each.host) for each in named]

    assert told([]) == [("node", FILE), ("engine:a", None)]
    same = {"source": "/etc/nodegate", "target": "/etc/nodegate"}
    assert told([same]) == [("node", FILE)]
    other = {"source": "/srv/topo.xml", "target": FILE}
    assert told([same, other]) == [("node", FILE), ("engine:a", "/srv/topo.xml")]
