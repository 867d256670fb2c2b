"""What a launch in a profile must not contradict: container and runtime, engine kind, the times of a stop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from agent.errors import LaunchError
from agent.launch.arguments import flag_value, flags_argv, refuse_twice
from agent.launch_parts import EngineKind, Runtime
from agent.profile_problem import CrossProblem, Path

if TYPE_CHECKING:
    from agent.engine_profile import Engine, Launch
    from agent.node_profile import NodeProfile

_DRAIN = "shutdown-timeout"


def launch_problems(profile: NodeProfile) -> Iterator[CrossProblem]:
    """Contradictions within the launch of each engine."""
    for name, engine in profile.engines.items():
        at = ("engines", name)
        yield from _flags(at, engine)
        yield from _twice(at, engine)
        yield from _runtime(at, engine)
        yield from _environment(at, engine)
        yield from _mounts(at, engine)
        yield from _program(at, engine)
        yield from _model(at, engine)
        yield from _stop(at, engine)


def _given(launch: Launch, flag: str) -> str | None:
    """The value of a flag in launch.flags or launch.args."""
    value = launch.flags.get(flag)
    if value is not None and not isinstance(value, list):
        return str(value)
    return flag_value(launch.args, f"--{flag}")


def _flags(at: Path, engine: Engine) -> Iterator[CrossProblem]:
    """Values that cannot be given as arguments."""
    for flag, value in engine.launch.flags.items():
        try:
            flags_argv({flag: value})
        except LaunchError as cause:
            problem, _, remedy = str(cause).removeprefix(f"launch.flags.{flag} ").partition("; ")
            yield CrossProblem((*at, "launch", "flags", flag), problem, None, remedy)


def _twice(at: Path, engine: Engine) -> Iterator[CrossProblem]:
    """One flag, said in two places: which one counts nobody would know."""
    try:
        refuse_twice(at[1], engine.launch.flags, engine.launch.args)
    except LaunchError as cause:
        problem, _, remedy = str(cause).removeprefix(f"engine {at[1]}: launch.flags.").partition("; ")
        yield CrossProblem((*at, "launch", "flags"), problem, (*at, "launch", "args"), remedy)


def _runtime(at: Path, engine: Engine) -> Iterator[CrossProblem]:
    """The container and the runtime podman need each other."""
    launch = engine.launch
    if launch.runtime is Runtime.PODMAN and launch.container is None:
        remedy = "add container with its image (name@sha256:...), or set runtime to host"
        container = (*at, "launch", "container")
        yield CrossProblem((*at, "launch", "runtime"), "podman needs launch.container", container, remedy)
    if launch.runtime is Runtime.HOST and launch.container is not None:
        text = "a container is described, and launch.runtime is host"
        remedy = "set runtime to podman, or container to null"
        yield CrossProblem((*at, "launch", "container"), text, (*at, "launch", "runtime"), remedy)


def _environment(at: Path, engine: Engine) -> Iterator[CrossProblem]:
    """What is installed is what is started."""
    launch = engine.launch
    if launch.environment is None:
        return
    key, folder, program = (*at, "launch", "environment"), launch.environment.path, launch.command[0]
    if launch.runtime is Runtime.PODMAN:
        text = "an environment of the host is described, and launch.runtime is podman"
        yield CrossProblem(key, text, (*at, "launch", "runtime"), "set environment to null")
    elif not program.startswith(f"{folder}/"):
        text = f"is {folder}, and the program {program} is not started from there"
        remedy = f"write {folder}/bin/{program.rpartition('/')[2]} as the first word of command"
        yield CrossProblem((*key, "path"), text, (*at, "launch", "command"), remedy)


def _mounts(at: Path, engine: Engine) -> Iterator[CrossProblem]:
    """podman reads a mount as a list with commas."""
    container = engine.launch.container
    for i, mount in enumerate(container.mounts if container else ()):
        for field, text in (("source", mount.source), ("target", mount.target)):
            if "," in text:
                path = (*at, "launch", "container", "mounts", str(i), field)
                yield CrossProblem(
                    path, "podman reads a comma in a path as its end", None, "use a path without"
                )


def _program(at: Path, engine: Engine) -> Iterator[CrossProblem]:
    """The default command starts vLLM."""
    launch = engine.launch
    if launch.kind is EngineKind.SGLANG and launch.command == ["vllm", "serve"]:
        text = "starts vLLM, and launch.kind is sglang"
        remedy = "write e.g. [python3, -m, sglang.launch_server]"
        yield CrossProblem((*at, "launch", "command"), text, (*at, "launch", "kind"), remedy)


def _model(at: Path, engine: Engine) -> Iterator[CrossProblem]:
    """Without a model vLLM would load a small one of its own choice."""
    launch = engine.launch
    if launch.preset is not None and launch.model is None and _given(launch, "model") is None:
        text = f"is missing: preset {launch.preset} does not know where the weights are"
        yield CrossProblem(
            (*at, "launch", "model"), text, (*at, "launch", "preset"), "write the folder of the checkpoint"
        )


def _stop(at: Path, engine: Engine) -> Iterator[CrossProblem]:
    """The engine's own drain must end before it is killed."""
    launch = engine.launch
    text = _given(launch, _DRAIN)
    if text is None or not text.replace(".", "", 1).isdecimal():
        return
    if float(text) and float(text) >= engine.stop_deadline_s:
        where = ("flags", _DRAIN) if _DRAIN in launch.flags else ("args",)
        problem = (
            f"the engine drains for up to {text} s, and is killed after stop_deadline_s = "
            f"{engine.stop_deadline_s:g} s"
        )
        remedy = f"make stop_deadline_s longer than {_DRAIN}"
        yield CrossProblem((*at, "launch", *where), problem, (*at, "stop_deadline_s"), remedy)
