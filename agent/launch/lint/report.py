"""lint(): flags and environment of a planned launch against the installed engine; nothing is started."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from agent.engine_profile import Launch
from agent.errors import ConfigError, DeviceAbsent, SourceUnavailable
from agent.fabric_profile import Fabric
from agent.launch.checkpoint.fault import printable
from agent.launch.lint.given import Given, file_flags, take_apart
from agent.launch.lint.image import image_source
from agent.launch.lint.installed import (
    EngineSource,
    NoProgram,
    NotLintable,
    engine_at,
    package_of,
    program_of,
    read_package,
)
from agent.launch.lint.names import Names, Used
from agent.launch.lint.nccl_lint import Around, nccl_problems, rendezvous_problems
from agent.launch.lint.nccl_settings import NcclSettings, own_home, read_settings
from agent.launch.lint.rules import rule_problems
from agent.launch.lint.settings import Gpus, Settings
from agent.launch.lint.values import repeated, stray_problem, value_problems
from agent.launch.lint.variables import gpu_problems, unknown_variables
from agent.launch_parts import Runtime
from agent.sources import Tree
from agent.sources.launch_reading import LaunchReport, Problem, Severity

if TYPE_CHECKING:
    from agent.launch.launch_profile import LaunchPlan
    from agent.node_profile import Engine


@dataclass
class _Lint:
    """What is known while a launch is looked at."""

    source: EngineSource
    names: Names
    problems: list[Problem] = field(default_factory=list)
    used: list[Used] = field(default_factory=list)

    def take(self, given: Given, *, model_may_follow: bool) -> bool:
        """Look at one flag; whether a word after it was taken for the model."""
        used, said = self.names.find(given)
        self.problems += said
        if used is None:
            return False
        self.used.append(used)
        wrong, stray = value_problems(used)
        self.problems += wrong
        if len(stray) == 1 and model_may_follow:
            return True
        if stray:
            self.problems.append(stray_problem(used, stray))
        return False


def lint(
    plan: LaunchPlan,
    engine: Engine,
    *,
    tree: Tree | None = None,
    fabric: Fabric | None = None,
    home: str | None = None,
    simulated: bool = False,
) -> LaunchReport:
    """Look at a plan. Raises SourceUnavailable where the engine's source cannot be read.

    `tree` is where /etc/nccl.conf, sysfs and a --config file are read; without it NCCL is not looked at.
    """
    try:
        source = installed_source(plan, engine)
    except NotLintable as reason:
        return LaunchReport(f"flags not checked: {reason}", _unchecked(engine, str(reason)))
    except NoProgram as reason:
        if simulated:
            raise SourceUnavailable(
                f"{reason}: the engine of a replayed node is not on this machine"
            ) from reason
        problem = Problem(
            Severity.ERROR, "launch.command", str(reason), "name the program with its full path"
        )
        return LaunchReport("the engine's program is missing", (problem,))
    return _report(source, _problems(source, plan, engine, tree, fabric, home), plan, engine)


def _unchecked(engine: Engine, reason: str) -> tuple[Problem, ...]:
    """A warning where it ought to be an engine whose flags are known, and is a wrapper or a broken file."""
    command = engine.launch.command
    words = [Path(word).name for word in command[engine_at(command) :][:2]]
    if words not in (["vllm", "serve"], ["sglang", "serve"]):
        return ()
    text = f"its flags are not checked: {reason}"
    remedy = "name the engine's own script, e.g. /opt/vllm/bin/vllm, in the place of a wrapper"
    return (Problem(Severity.WARNING, "launch.command", text, remedy),)


def installed_source(plan: LaunchPlan, engine: Engine) -> EngineSource:
    """What the program of a plan takes. Raises NotLintable, NoProgram, SourceUnavailable."""
    launch, env = engine.launch, plan.process_env()
    if launch.runtime is Runtime.PODMAN:
        return image_source(launch)
    program = program_of(launch.command, env, plan.working_dir)
    return read_package(program.engine, package_of(program, env))


def own_arguments(plan: LaunchPlan, engine: Engine) -> list[str]:
    """What the engine's program gets after `serve` or `-m MODULE`, whatever is wrapped around it."""
    command, argv = engine.launch.command, list(plan.argv)
    container = engine.launch.container
    if plan.runtime is Runtime.PODMAN and container is not None and container.image in argv:
        argv = [command[0], *argv[argv.index(container.image) + 1 :]]  # the program itself is the entrypoint
    at = engine_at(command)
    words = command.index("-m", at) + 2 if "-m" in command[at:] else at + 2
    wanted = list(command[:words])
    for at in range(len(argv) - len(wanted) + 1):
        if argv[at : at + len(wanted)] == wanted:
            return argv[at + len(wanted) :]
    raise SourceUnavailable(f"the launch does not run {' '.join(wanted)[:60]}")


def _problems(
    source: EngineSource,
    plan: LaunchPlan,
    engine: Engine,
    tree: Tree | None,
    fabric: Fabric | None,
    home: str | None,
) -> list[Problem]:
    launch = engine.launch
    state = _Lint(source, Names(source, launch.patched.flags))
    if launch.kind.value != source.engine:
        text = f"is {launch.kind.value} and the program is {source.engine}"
        state.problems.append(Problem(Severity.ERROR, "launch.kind", text, f"write {source.engine}"))
    leading, given = take_apart(own_arguments(plan, engine))
    _words_before(state, leading)
    _flags(state, [*given, *_from_file(state, given, plan, launch, tree)], has_model=bool(leading))
    state.problems += repeated(state.used)
    settings = Settings(state.used)
    state.problems += rule_problems(source, settings, Gpus(plan.gpu_uuids))
    names = [*(name for name in plan.env if name not in plan.inherited), *plan.secret_names]
    state.problems += unknown_variables(source, names, launch.patched.env)
    state.problems += gpu_problems(source, plan.env)
    if tree is not None and fabric is not None and engine.gpus:
        around = Around(tree, fabric, launch.rdma)
        state.problems += nccl_problems(_nccl(plan.process_env(), launch, tree, home), around)
        state.problems += rendezvous_problems(plan.process_env(), settings.count("--nnodes") or 1)
    return state.problems


def _words_before(state: _Lint, leading: Sequence[str]) -> None:
    """vllm takes the model before all flags, sglang takes no word there."""
    extra = leading[1:] if state.source.engine == "vllm" else leading
    if extra:
        shown = " ".join(extra)[:40]
        text = f"{shown!r} belongs to no flag"
        state.problems.append(
            Problem(Severity.ERROR, "launch.args", text, "remove it, or put its flag before it")
        )


def _flags(state: _Lint, given: Sequence[Given], *, has_model: bool) -> None:
    has_model = has_model or state.source.engine != "vllm"
    for one in given:
        has_model = state.take(one, model_may_follow=not has_model) or has_model


def _from_file(
    state: _Lint, given: Sequence[Given], plan: LaunchPlan, launch: Launch, tree: Tree | None
) -> list[Given]:
    """The flags of --config FILE."""
    found: list[Given] = []
    for one in given:
        if one.name != "--config" or not one.words:
            continue
        if one.inline is not None and state.source.engine == "vllm":
            text = "the engine reads the file only where its name is an argument of its own"
            state.problems.append(Problem(Severity.ERROR, "--config", text, "write --config and FILE apart"))
        try:
            path = _on_host(one.words[0], plan.working_dir, launch)
            found += file_flags(_read(path, tree), path)
        except ConfigError as cause:
            where, remedy = cause.where or "--config", cause.remedy or "correct it"
            state.problems.append(Problem(Severity.ERROR, where, cause.problem, remedy))
    return found


def _on_host(path: str, working_dir: str | None, launch: Launch) -> str:
    """Where a file of the engine is on this machine."""
    if launch.runtime is Runtime.PODMAN and launch.container is not None:
        for mount in launch.container.mounts:
            target = mount.target.rstrip("/")
            if path == target or path.startswith(f"{target}/"):
                return mount.source.rstrip("/") + path.removeprefix(target)
        raise ConfigError(
            "is inside the image and cannot be read", where=path, remedy="mount it from the host"
        )
    return str(Path(working_dir or "/") / path)


def _read(path: str, tree: Tree | None) -> str:
    try:
        if tree is not None:
            return tree.data(path.lstrip("/")).decode("utf-8", errors="replace")
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except (DeviceAbsent, FileNotFoundError) as cause:
        raise ConfigError("there is no such file", where=path, remedy="correct --config") from cause
    except (SourceUnavailable, OSError) as cause:
        raise ConfigError(f"cannot be read: {cause}", where=path, remedy="let the agent read it") from cause


def _nccl(env: Mapping[str, str], launch: Launch, tree: Tree, home: str | None) -> NcclSettings:
    """NCCL's settings; the files of an image are its own and are not looked into."""
    if launch.runtime is Runtime.PODMAN:
        return NcclSettings(env)
    return read_settings(env, tree, own_home() if home is None else home)


def _report(
    source: EngineSource, problems: Sequence[Problem], plan: LaunchPlan, engine: Engine
) -> LaunchReport:
    """Errors first, each said once."""
    rank: Callable[[Problem], bool] = lambda problem: problem.severity is not Severity.ERROR  # noqa: E731
    told = sorted(dict.fromkeys(map(_one_line, problems)), key=rank)
    errors = sum(problem.severity is Severity.ERROR for problem in told)
    count = len(take_apart(own_arguments(plan, engine))[1])
    words = f"{count} flags for {source.title}"
    found = f"{_count(errors, 'error')}, {_count(len(told) - errors, 'warning')}" if told else "nothing wrong"
    facts: dict[str, str | float] = {
        "engine": source.engine,
        "version": source.version,
        "package": source.root,
        "flags_given": count,
        "flags_known": len(source.flags),
    }
    return LaunchReport(f"{words}: {found}", tuple(told), facts=facts)


def _one_line(problem: Problem) -> Problem:
    """Words of flags and files as they may be printed."""
    parts = (printable(part) for part in (problem.where, problem.text, problem.remedy))
    return Problem(problem.severity, *parts)


def _count(number: int, word: str) -> str:
    return f"{number} {word}" + ("" if number == 1 else "s")
