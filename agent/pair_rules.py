"""What prefill-decode pairs in a profile must not contradict, and what they usually need (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from agent.launch.arguments import flag_value
from agent.profile_problem import CrossProblem, Path

if TYPE_CHECKING:
    from agent.engine_profile import Launch
    from agent.group_profile import Pair
    from agent.node_profile import NodeProfile

#: The flags that make an engine hand key-value caches to another one: of vLLM and of SGLang.
_TRANSFER_FLAGS = ("kv-transfer-config", "disaggregation-mode")
#: Settings of vLLM's flag whose caches never leave the node: to host memory or disk.
_LOCAL_CONNECTORS = ("OffloadingConnector", "LMCache", "SharedStorageConnector", "ExampleConnector")

_CONNECTOR = re.compile(r"\w*Connector\w*")
#: SGLang's word for an engine that is no part of a pair.
_NO_MODE = "null"


def pair_problems(profile: NodeProfile) -> Iterator[CrossProblem]:
    """Contradictions of each pair."""
    for name, pair in profile.pairs.items():
        if name in profile.engines:
            text = f"{name} is the name of an engine, and /readyz/{name} can be only one of them"
            yield CrossProblem(("pairs", name), text, ("engines", name), "give the pair another name")
        yield from _members(profile, name, pair)
        yield from _least(name, pair)


def _members(profile: NodeProfile, name: str, pair: Pair) -> Iterator[CrossProblem]:
    """Engines that there are not, that are named twice, or that can never be ready."""
    seen: dict[str, Path] = {}
    for role, engines in (("prefill", pair.prefill), ("decode", pair.decode)):
        for i, engine in enumerate(engines):
            path = ("pairs", name, role, str(i))
            if engine not in profile.engines:
                known = ", ".join(profile.engines) or "none"
                yield CrossProblem(path, f"there is no engine {engine}", None, f"engines are: {known}")
            elif profile.engines[engine].follows:
                text = f"engine {engine} is no head of its group: it is never ready on this node"
                yield CrossProblem(
                    path,
                    text,
                    ("engines", engine, "group", "rank"),
                    "list the pair in the profile of the head's node",
                )
            if engine in seen:
                text = f"engine {engine} is already listed under {seen[engine][2]}"
                yield CrossProblem(path, text, seen[engine], "list each engine of a pair once")
            seen.setdefault(engine, path)


def _least(name: str, pair: Pair) -> Iterator[CrossProblem]:
    """More engines asked for than listed."""
    for role, engines, least in (
        ("prefill", pair.prefill, pair.min_prefill),
        ("decode", pair.decode, pair.min_decode),
    ):
        if least > len(engines):
            listed = f"{len(engines)} {role} engine{'s are' if len(engines) > 1 else ' is'} listed"
            at = ("pairs", name, f"min_{role}")
            yield CrossProblem(
                at, f"asks for {least}, and {listed}", ("pairs", name, role), f"write at most {len(engines)}"
            )


def pair_notes(profile: NodeProfile) -> Iterator[str]:
    """What is allowed but often not meant."""
    for name, engine in profile.engines.items():
        flag = _transfer(engine.launch)
        if flag and not engine.launch.rdma and profile.fabric.kind != "none":
            yield (
                f"engines.{name}: {flag} hands key-value caches to another engine, and launch.rdma is false: "
                "no network fault closes its gate; set launch.rdma: true unless they stay within this node"
            )
    if profile.mode != "manage":
        return
    for pair_name, pair in profile.pairs.items():
        for engine_name in (*pair.prefill, *pair.decode):
            if engine_name in profile.engines and not _transfer(profile.engines[engine_name].launch):
                flags = " and ".join(f"--{flag}" for flag in _TRANSFER_FLAGS)
                text = f"engine {engine_name} has none of {flags}: started like this it hands no cache on"
                yield f"pairs.{pair_name}: {text}"


def _transfer(launch: Launch) -> str:
    """The flag of this launch that hands caches to other engines, empty without one."""
    for flag in _TRANSFER_FLAGS:
        given = launch.flags.get(flag)
        value = str(given) if given is not None else flag_value(launch.args, f"--{flag}")
        if value and value != _NO_MODE and not _stays(value):
            return flag
    return ""


def _stays(value: str) -> bool:
    """Whether every connector that a setting names (MultiConnector has several) is a local one."""
    named = [name for name in _CONNECTOR.findall(value) if name != "MultiConnector"]
    return bool(named) and all(any(local in name for local in _LOCAL_CONNECTORS) for name in named)
