"""The engine's own command line: command, model, what nodegate adds, group flags, flags, args (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from agent.errors import LaunchError
from agent.group.flags import group_flags
from agent.launch.arguments import flag_value, flags_argv, has_flag, parallel_sizes, refuse_twice
from agent.launch.checkpoint.fault import printable
from agent.launch_parts import EngineKind, FlagValue
from agent.node_profile import Engine

#: What vLLM reads its API key from.
API_KEY = "VLLM_API_KEY"


def engine_arguments(engine: Engine) -> list[str]:
    """What the profile says: flags, then args."""
    return [*flags_argv(engine.launch.flags), *engine.launch.args]


def given_arguments(engine: Engine) -> list[str]:
    """All that the engine is given by the profile: what stands behind its program in launch.command, too."""
    return [*engine.launch.command[1:], *engine_arguments(engine)]


def served_name(engine: Engine) -> str | None:
    """The name that clients ask for: from the profile, the arguments, or the model; None = ask the engine."""
    launch = engine.launch
    given = flag_value(given_arguments(engine), "--served-model-name")
    return launch.served_model_name or given or launch.model


def engine_argv(
    name: str, engine: Engine, numa_nodes: Sequence[int] = ()
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The command line and notes about it; `numa_nodes` are given to the workers (--numa-bind-nodes)."""
    launch = engine.launch
    refuse_twice(name, launch.flags, launch.args)
    given = given_arguments(engine)
    added = _address(name, engine, given)
    if launch.served_model_name is not None:
        added += _same(
            name, engine, given, "--served-model-name", launch.served_model_name, "launch.served_model_name"
        )
    if numa_nodes:
        added += flags_argv({"numa-bind-nodes": list(numa_nodes)})
    argv = (*launch.command, *_model(name, engine, given), *added, *_group(name, engine, given))
    argv = (*argv, *engine_arguments(engine))
    for part in argv:
        if "\0" in part:
            raise LaunchError(f"engine {name}: an argument has a NUL byte; remove it")
    _refuse_too_few_gpus(name, engine, argv)
    return argv, tuple(_notes(engine, given))


def _notes(engine: Engine, given: Sequence[str]) -> list[str]:
    """What is worth knowing of arguments that are right."""
    notes = []
    sglang = engine.launch.kind is EngineKind.SGLANG
    if has_flag(given, "--api-key"):
        instead = "" if sglang else f"; put {API_KEY} into launch.env_file instead"
        notes.append(f"--api-key is visible to every user of the node{instead}")
    if sglang and not has_flag(given, "--enable-metrics"):
        notes.append(
            "SGLang exports no metrics without --enable-metrics: each period has its canary, however busy it "
            "is, and queue, cache and latency are not judged; set launch.flags.enable-metrics to true"
        )
    return notes


def _model(name: str, engine: Engine, given: Sequence[str]) -> list[str]:
    """The model: vLLM takes it as its first argument, SGLang as --model-path."""
    launch = engine.launch
    if launch.model is None:
        return []
    if launch.kind is EngineKind.SGLANG:
        return _same(name, engine, given, "--model-path", launch.model, "launch.model")
    return [launch.model]


def _address(name: str, engine: Engine, given: Sequence[str]) -> list[str]:
    """--host and --port, unless the profile's own arguments have them, and then the same."""
    host = flag_value(given, "--host")
    if host in ("0.0.0.0", "::"):  # noqa: S104 (compared, not bound)
        host_part: list[str] = []  # a wildcard reaches the engine's address too
    else:
        host_part = _same(name, engine, given, "--host", engine.host, f"engines.{name}.host")
    return [*host_part, *_same(name, engine, given, "--port", str(engine.port), f"engines.{name}.port")]


def _same(name: str, engine: Engine, given: Sequence[str], flag: str, value: str, key: str) -> list[str]:
    """The flag and its value; nothing when it is given with this value, LaunchError with another one."""
    found = flag_value(given, flag)
    if found is None:
        return [flag, value]
    if found == value:
        return []
    shown = printable(found[:80])
    where = _where(engine, flag)
    raise LaunchError(f"engine {name}: {where} has {flag} {shown} and {key} is {value}; make them equal")


def _where(engine: Engine, flag: str) -> str:
    """The key of the profile that gives a flag."""
    return "launch.flags" if has_flag(flags_argv(engine.launch.flags), flag) else "launch.args"


def _group(name: str, engine: Engine, given: Sequence[str]) -> list[str]:
    """The flags of this rank; one that the profile gives too must agree."""
    missing: dict[str, FlagValue] = {}
    for key, value in group_flags(engine).items():
        flag = f"--{key}"
        if isinstance(value, bool):
            if not has_flag(given, flag):
                missing[key] = value
        elif _same(name, engine, given, flag, str(value), f"what engines.{name}.group gives"):
            missing[key] = value
    return flags_argv(missing)


def _refuse_too_few_gpus(name: str, engine: Engine, argv: Sequence[str]) -> None:
    """A model spread over more GPUs than there are waits for the others for ever and says nothing."""
    sizes = parallel_sizes(argv)
    nodes = flag_value(argv, "--nnodes") or "1"
    elsewhere = flag_value(argv, "--distributed-executor-backend") in ("ray", "external_launcher")
    if not engine.gpus or elsewhere or not nodes.isdecimal():
        return
    have = len(engine.gpus) * int(nodes)
    if sizes.world > have:
        raise LaunchError(
            f"engine {name}: tensor {sizes.tensor} x pipeline {sizes.pipeline} needs {sizes.world} GPUs and "
            f"there are {have}; list its nodes under engines.{name}.group or make the sizes smaller"
        )
