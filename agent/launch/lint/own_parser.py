"""The engine's own parser on a planned command line: 20 s of imports, but it knows every type and value."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import resources
from typing import TYPE_CHECKING

from agent.errors import SourceUnavailable
from agent.launch.lint.image import LONGEST_ANSWER_B, podman_python
from agent.launch.lint.installed import package_of, program_of
from agent.launch.lint.parser_script import MARK
from agent.launch.lint.report import own_arguments
from agent.launch_parts import Runtime
from agent.sources.command import ENVIRONMENT, Commands, Output
from agent.sources.launch_reading import Problem, Severity

if TYPE_CHECKING:
    from agent.launch.launch_profile import LaunchPlan
    from agent.node_profile import Engine

DEADLINE_S = 120.0
#: The engine must not look for a model on the network only to have its command line parsed.
_OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
}
_NO_DEVICE = "Failed to infer device type"
_STEPS = {"import": "the engine cannot be imported", "parser": "its parser", "config": "its configuration"}


def parser_problems(
    plan: LaunchPlan, engine: Engine, commands: Commands, *, config: bool
) -> tuple[str, list[Problem]]:
    """What was asked, and what the engine's parser (with `config` its configuration too) complains of.

    Raises NotLintable, NoProgram and SourceError.
    """
    words = [own_engine(plan, engine), json.dumps(own_arguments(plan, engine))]
    words += ["config"] if config else []
    words += [f"dir={plan.working_dir}"] if plan.working_dir else []
    answer = _ask(plan, engine, commands, words, {})
    said = "the engine's own parser"
    if _NO_DEVICE in answer["error"]:
        said += ", told that this machine is a CPU for it sees no GPU"
        answer = _ask(plan, engine, commands, words, {"VLLM_TARGET_DEVICE": "cpu"})
    if answer["step"] == "config":
        said += " and configuration"
    if not answer["error"]:
        return f"{said}: taken", []
    text = " ".join(answer["error"].split())
    for secret in filter(None, plan.hidden):
        text = text.replace(secret, "***")
    text = text[:300]
    where = f"{words[0]}, {_STEPS.get(answer['step'], answer['step'])}"
    problem = Problem(Severity.ERROR, where, text, "correct what it names")
    return f"{said}: refused", [problem]


def own_engine(plan: LaunchPlan, engine: Engine) -> str:
    """Which engine the command runs."""
    if plan.runtime is Runtime.PODMAN:
        return plan.kind.value
    return program_of(engine.launch.command, plan.process_env(), plan.working_dir).engine


def _ask(
    plan: LaunchPlan, engine: Engine, commands: Commands, words: list[str], more: Mapping[str, str]
) -> dict[str, str]:
    """Run the script in the engine's Python."""
    script = resources.files("agent.launch.lint").joinpath("parser_script.py").read_text(encoding="utf-8")
    env = {**ENVIRONMENT, **plan.env, **_OFFLINE, **more}
    launch = engine.launch
    if plan.runtime is Runtime.PODMAN and launch.container is not None:
        passed = [f"--env={name}={value}" for name, value in {**_OFFLINE, **more}.items()]
        argv, env = podman_python(launch.container.image, passed, script, words), ENVIRONMENT
    else:
        program = program_of(launch.command, plan.process_env(), plan.working_dir)
        package_of(program, plan.process_env())  # says where it looked when the package is missing
        argv = [str(program.python), "-c", script, *words]
    output = commands.run(
        argv, deadline_s=DEADLINE_S, key=f"the parser of {plan.engine}", limit_b=LONGEST_ANSWER_B, env=env
    )
    return _answer(output)


def _answer(output: Output) -> dict[str, str]:
    """The last marked line."""
    lines = [line for line in output.text.splitlines() if line.startswith(MARK)]
    try:
        found = json.loads(lines[-1].removeprefix(MARK)) if lines else None
    except ValueError:
        found = None
    if not isinstance(found, dict) or not {"step", "error"} <= set(found):
        words = (output.errors.strip().splitlines() or [f"exit status {output.status}"])[-1][:160]
        raise SourceUnavailable(f"the engine's parser gives no answer: {words}")
    return {"step": str(found["step"]), "error": str(found["error"])}
