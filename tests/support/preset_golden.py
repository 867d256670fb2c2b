"""Golden launches: argv and environment of every preset, its variants and ranks, on simulated nodes.

Write them anew, from the root of the repository: python -m tests.support.preset_golden
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from agent.launch.launch_profile import LaunchPlan, build_plan
from agent.launch.preset import preset, preset_names
from agent.profile_loader import profile_from_dict
from agent.sources import Sources
from agent.sources.replay import replay_sources

TESTS = Path(__file__).parent.parent
GOLDEN = TESTS / "golden"
ENVIRON = {"PATH": "/usr/bin", "HOME": "/home/engine"}
MODEL = "/models/checkpoint"
IMAGE = "registry.example/vllm@sha256:" + "0123456789abcdef" * 4
#: The simulated node for each deployment, and how many nodes one model takes there.
NODES = {
    "d1": "b300-roce",
    "d2": "h200-ib",
    "d2b": "gb10",
    "d3": "b300-x16",
    "d4": "h20-roce",
    "d5": "b300-roce",
}
MEMBERS = {"d2": 2, "d2b": 16, "d4": 2}
#: The nodes of D5 have InfiniBand.
INFINIBAND = {
    "kind": "ib",
    "ports": [{"device": f"mlx5_{i}", "rate_gbps": 400, "gpu": i} for i in range(8)],
}


def stems() -> list[str]:
    """The presets without their variants."""
    return [name for name in preset_names() if "/" not in name]


def plan_of(name: str, rank: int = 0, **launch: Any) -> LaunchPlan:
    """The plan of a preset for one rank; keywords are further keys of its launch."""
    deployment = name.partition("-")[0]
    data = {**_node_profile(NODES[deployment]), "mode": "manage", "node": f"node-{rank}"}
    if deployment == "d5":
        data["fabric"] = INFINIBAND
    data["engines"] = {"model": _engine(name, MEMBERS.get(deployment, 1), rank, launch)}
    return build_plan(profile_from_dict(data).profile, "model", _sources(NODES[deployment]), ENVIRON)


def golden(stem: str) -> str:
    """The golden text of a preset."""
    names = [name for name in preset_names() if name.partition("/")[0] == stem]
    return "\n".join(line for name in names for line in _sections(name)) + "\n"


def _sections(name: str) -> Iterator[str]:
    """One section a rank; of a long row of ranks that differ by their number, the first and the last."""
    members = MEMBERS.get(name.partition("-")[0], 1)
    for rank in dict.fromkeys((0, members - 1)):
        plan = plan_of(name, rank)
        yield f"== {name}" + (f", rank {rank} of {members}" if members > 1 else "")
        yield f"# {preset(name).title}"
        yield from _lines(plan.argv)
        yield from (f"  {key}={value}  # {plan.origins[key]}" for key, value in sorted(plan.env.items()))
        yield from (f"  note: {note}" for note in plan.notes)
        yield ""


def _lines(argv: tuple[str, ...]) -> Iterator[str]:
    """The argv, a line for each flag with its values."""
    line: list[str] = []
    for word in argv:
        if word.startswith("--") and line:
            yield shlex.join(line)
            line = []
        line.append(word)
    yield shlex.join(line)


def _engine(name: str, members: int, rank: int, launch: dict[str, Any]) -> dict[str, Any]:
    """What a site adds to the preset."""
    engine: dict[str, Any] = {"launch": {"preset": name, "model": MODEL, **launch}}
    if name.startswith("d4-"):
        engine["launch"].setdefault("container", {"image": IMAGE})
    if members > 1:
        engine["group"] = {"rank": rank, "key_file": "/etc/nodegate/group.key", "members": _members(members)}
    return engine


def _members(count: int) -> list[dict[str, Any]]:
    """Nodes with a management and a data address."""
    return [
        {"node": f"node-{i}", "address": f"192.0.2.{i + 1}", "data_address": f"198.51.100.{i + 1}"}
        for i in range(count)
    ]


@cache
def _node_profile(node: str) -> dict[str, Any]:
    """The profile of a simulated node."""
    data = yaml.safe_load((TESTS / "nodes" / node / "profile.yaml").read_text())
    assert isinstance(data, dict)
    return data


@cache
def _sources(node: str) -> Sources:
    """The sources of a simulated node, which does not run: a plan needs no time."""
    return replay_sources(TESTS / "nodes" / node, None).sources


def main() -> None:
    """Write every golden file anew."""
    GOLDEN.mkdir(exist_ok=True)
    for old in GOLDEN.glob("*.txt"):
        old.unlink()
    for stem in stems():
        (GOLDEN / f"{stem}.txt").write_text(golden(stem))


if __name__ == "__main__":
    main()
