"""What lint reads in the source of a real vLLM against what its own parser takes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import preset_golden
import pytest
from lint_kit import cpu_profile, plan_of, told
from vllm_rig import VENV

from agent.launch.launch_profile import build_plan
from agent.launch.lint import lint, report
from agent.launch.lint.installed import EngineSource, package_of, program_of, read_package
from agent.launch.lint.own_parser import parser_problems
from agent.launch.preset import preset_names
from agent.sources.command import Commands

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

PROGRAM = str(VENV / "bin" / "vllm")
#: Every flag of the parser: its names, how many values it takes, and which.
DUMP = """
import json
from agent_parsers import first, FLEXIBLE, PARSERS
parser = first(PARSERS, "make_arg_parser")(first(FLEXIBLE, "FlexibleArgumentParser")())
rows = [[a.option_strings, str(a.nargs), type(a).__name__, [str(c) for c in a.choices or []]]
        for a in parser._actions if a.option_strings]
print("\\nROWS " + json.dumps(rows))
"""
ARITY = {
    "None": ("value", "append"),
    "+": ("list",),
    "*": ("list",),
    "?": ("optional",),
    "0": ("toggle", "switch"),
}


@pytest.fixture(scope="module")
def source() -> EngineSource:
    program = program_of([PROGRAM, "serve"], {}, None)
    return read_package("vllm", package_of(program, {}))


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[list[str], str, str, list[str]]]:
    folder = tmp_path_factory.mktemp("dump")
    script = Path(__file__).parents[2] / "agent" / "launch" / "lint" / "parser_script.py"
    (folder / "agent_parsers.py").write_text(script.read_text())
    python, env = str(VENV / "bin" / "python"), {"PYTHONPATH": str(folder), "VLLM_NO_USAGE_STATS": "1"}
    done = subprocess.run(
        [python, "-c", DUMP], capture_output=True, text=True, env=env, cwd=folder, timeout=200, check=True
    )
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("ROWS "))
    return [tuple(row) for row in json.loads(line.removeprefix("ROWS "))]


def test_the_source_has_every_flag_of_the_parser_but_help(source: EngineSource, rows: list) -> None:
    by_name = {name: flag for flag in source.flags.values() for name in (flag.name, *flag.also)}
    seen = set()
    for names, nargs, action, choices in rows:
        if "--help" in names:
            continue
        own = [name for name in names if not (action == "BooleanOptionalAction" and name.startswith("--no-"))]
        assert set(own) <= set(by_name), own
        flag = by_name[own[0]]
        seen.add(flag.name)
        assert flag.kind == "any" or flag.kind in ARITY[nargs], (own, flag)
        assert (flag.kind == "toggle") == (action == "BooleanOptionalAction") or flag.kind == "any", own
        if flag.choices is not None:
            assert sorted(flag.choices) == sorted(set(choices) - {"None"}), own
    assert seen == set(source.flags)
    assert sum(flag.kind == "any" for flag in source.flags.values()) <= 5


def test_lint_and_the_engines_own_parser_agree(source: EngineSource) -> None:
    def ask(*args: str) -> tuple[bool, bool]:
        launch = {"command": [PROGRAM, "serve"], "model": "tiny", "args": list(args)}
        profile = cpu_profile(launch)
        plan, engine = plan_of(profile), profile.engines["e"]
        _, problems = parser_problems(plan, engine, Commands(), config=False)
        return not told(lint(plan, engine)), not problems

    assert ask("--max_num_seqs", "4", "--compilation-config.mode", "0", "--enforce-eager") == (True, True)
    assert ask("--swap-space", "8") == (False, False)


#: What the reports of the deployments have and current versions do not.
GONE = {"d3": {"--swap-space"}, "d5": {"--disable-log-requests"}}


@pytest.mark.parametrize("name", preset_names())
def test_the_engine_takes_every_preset(
    name: str, source: EngineSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "installed_source", lambda _plan, _engine: source)
    errors: set[str] = set()

    def looked_at(profile: Any, engine: str, sources: Any, environ: Any) -> Any:
        plan = build_plan(profile, engine, sources, environ)
        errors.update(told(lint(plan, profile.engines[engine])))
        return plan

    monkeypatch.setattr(preset_golden, "build_plan", looked_at)
    preset_golden.plan_of(name)
    reported = name.endswith("/as-reported")
    assert errors == (GONE.get(name.partition("-")[0], set()) if reported else set())
