"""What must be equal on all members before their ranks start (pure).

Ranks that differ in a flag or a version do not fail, they wait for each other in NCCL without a word. Each
part of the launch has a hash of its own, so that a difference can be named; what names a node's own devices,
addresses and files is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from agent.group.status import MemberStatus, keyed_hash
from agent.launch_parts import FlagValue
from agent.node_profile import Engine, NodeProfile

#: Flags that name a node's own addresses, NUMA nodes or rank.
_OWN_FLAGS = frozenset(
    [
        "host",
        "port",
        "node-rank",
        "headless",
        "numa-bind-nodes",
        "numa-bind-cpus",
        "api-key",
        "dist-init-addr",
    ]
)
#: Variables that name a node's own addresses, devices or files.
_OWN_ENV = re.compile(
    r"VLLM_HOST_IP|[A-Z]+_SOCKET_IFNAME|NCCL_IB_HCA|NCCL_IB_GID_INDEX|NCCL_TOPO_FILE|CUDA_VISIBLE_DEVICES"
    r"|CUDA_DEVICE_ORDER|PATH|HOME|LANG|LD_LIBRARY_PATH|TMPDIR|.*_(?:CACHE|CACHE_ROOT|CACHE_DIR)|HF_HOME"
)


def launch_parts(profile: NodeProfile, engine: Engine, key: bytes) -> dict[str, str]:
    """A hash of each part of the profile that all members must share, by its name in the profile."""
    launch, group = engine.launch, engine.group
    if group is None:
        return {}
    members = [[m.node, m.address, m.port, m.data_address] for m in group.members]
    parts: dict[str, object] = {
        "launch.kind": launch.kind.value,
        "launch.command": launch.command,
        "launch.model": launch.model,
        "launch.served_model_name": launch.served_model_name,
        "launch.flags": _shared_flags(launch.flags),
        "launch.args": list(_shared_args(launch.args)),
        "launch.env": {k: v for k, v in sorted(launch.env.items()) if not _OWN_ENV.fullmatch(k)},
        "launch.runtime": [launch.runtime.value, launch.container.image if launch.container else None],
        "gpus": len(engine.gpus),
        "group.members": members,
        "group.master_port": group.master_port,
        "group.ports": sorted(group.ports),
        "fabric.kind": str(profile.fabric.kind),
    }
    return {name: keyed_hash(key, value) for name, value in parts.items()}


def _shared_flags(flags: Mapping[str, FlagValue]) -> dict[str, FlagValue]:
    return {name: value for name, value in sorted(flags.items()) if name not in _OWN_FLAGS}


def _shared_args(args: Sequence[str]) -> Iterator[str]:
    """The arguments less a node's own flags with their values."""
    skipping = False
    for word in args:
        if word.startswith("--"):
            name, equals, _ = word.removeprefix("--").replace("_", "-").partition("=")
            skipping = name in _OWN_FLAGS and not equals
            if name in _OWN_FLAGS:
                continue
        elif skipping:
            continue
        yield word


_VERSIONS = {
    "driver": "NVIDIA driver",
    "engine_version": "engine version",
    "nccl_version": "NCCL version",
    "checkpoint": "checkpoint",
}


def disagreements(mine: MemberStatus, other: MemberStatus) -> tuple[str, ...]:
    """What differs between this member and another, each in a few words."""
    who = f"{other.node} (rank {other.rank})"
    names = sorted(mine.parts.keys() | other.parts.keys())
    differing = [name for name in names if mine.parts.get(name) != other.parts.get(name)]
    found = []
    if differing:
        found.append(f"{', '.join(differing)} of the profile differ from those of {who}; make them equal")
    # A member that has not read its own yet names none, and waits for that itself.
    for field, words in _VERSIONS.items() if mine.driver and other.driver else ():
        ours, theirs = getattr(mine, field), getattr(other, field)
        if ours != theirs:
            found.append(f"{words} is {ours or 'not known'} here and {theirs or 'not known'} on {who}")
    return tuple(found)


def not_compared(mine: MemberStatus) -> tuple[str, ...]:
    """What is known nowhere (a program that is not installed as a package) and so was not compared."""
    return tuple(_VERSIONS[field] for field in ("engine_version", "nccl_version") if not getattr(mine, field))
