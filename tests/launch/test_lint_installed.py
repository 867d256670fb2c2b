"""Which engine a command runs: by the script's first line, its Python's folders, PYTHONPATH, an image."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from fake_sources import FakeNode
from lint_kit import cpu_profile, launch_of, linted, plan_of, told, vllm_site

from agent.errors import SourceUnavailable
from agent.launch.lint import image, lint
from agent.launch.lint.installed import (
    NoProgram,
    NotLintable,
    package_of,
    program_of,
    read_package,
    source_from,
)
from agent.launch.lint.own_parser import parser_problems
from agent.sources import command
from agent.sources.command import Commands
from agent.sources.launch_reading import Severity

IMAGE = "registry.example/vllm@sha256:" + "0" * 64


def test_the_script_names_its_python(tmp_path: Path) -> None:
    script = vllm_site(tmp_path)
    found = program_of([str(script), "serve"], {}, None)
    assert (found.engine, found.python) == ("vllm", tmp_path / "bin/python3")
    by_path = program_of(["vllm", "serve"], {"PATH": f"/nowhere:{tmp_path}/bin"}, None)
    assert by_path == found
    assert program_of(["bin/vllm", "serve"], {}, str(tmp_path)) == found
    long = f"#!/bin/sh\n'''exec' \"{tmp_path}/bin/python3\" \"$0\" \"$@\"\n' '''\nimport sys\n"
    script.write_text(long)
    assert program_of([str(script), "serve"], {}, None) == found
    script.write_text("#!/usr/bin/env python3\n")
    assert program_of([str(script), "serve"], {"PATH": f"{tmp_path}/bin"}, None) == found


def test_a_module_of_python(tmp_path: Path) -> None:
    vllm_site(tmp_path)
    python = str(tmp_path / "bin/python3")
    assert program_of([python, "-P", "-m", "vllm.entrypoints.openai.api_server"], {}, None).engine == "vllm"
    assert program_of([python, "-m", "sglang.launch_server"], {}, None).engine == "sglang"
    launch = {"command": [python, "-m", "vllm.entrypoints.openai.api_server"], "args": ["--model", "x"]}
    assert linted(launch).summary.endswith("nothing wrong")


@pytest.mark.parametrize(
    "words", [["{py}", "-m", "agent.launch.embedded_engine"], ["{py}", "x.py"], ["/bin/sh", "x"]]
)
def test_other_programs_are_not_linted_and_say_so(words: list[str]) -> None:
    found = linted({"command": [word.format(py=sys.executable) for word in words]})
    assert found.problems == ()
    assert found.summary.startswith("flags not checked: ")


def test_what_is_no_server_or_no_script(tmp_path: Path) -> None:
    script = vllm_site(tmp_path)
    with pytest.raises(NotLintable, match="is not told to serve"):
        program_of([str(script), "bench"], {}, None)
    script.write_text("#!/bin/bash\nexec something\n")
    with pytest.raises(NotLintable, match="is no Python script"):
        program_of([str(script), "serve"], {}, None)
    with pytest.raises(NoProgram, match="there is no file"):
        program_of([str(tmp_path / "none/vllm"), "serve"], {}, None)


def test_a_wrapper_with_the_engines_name_is_warned_of(tmp_path: Path) -> None:
    script = vllm_site(tmp_path)
    for text in ("#!/bin/bash\nexec something\n", "", "\x7fELF"):
        script.write_text(text)
        found = linted({"command": [str(script), "serve"]})
        assert [(p.severity, p.where) for p in found.problems] == [(Severity.WARNING, "launch.command")]
    script.chmod(0o644)
    with pytest.raises(NoProgram, match="is not executable"):
        program_of([str(script), "serve"], {}, None)


@pytest.mark.parametrize("around", [["/usr/bin/nice", "-n", "5"], ["/usr/bin/env", "-u", "A", "B=c"]])
def test_an_engine_behind_another_program_is_looked_at(tmp_path: Path, around: list[str]) -> None:
    script = vllm_site(tmp_path)
    command = [*around, str(script), "serve"]
    assert program_of(command, {}, None) == program_of([str(script), "serve"], {}, None)
    assert linted({"command": command, "args": ["--swap-space", "4"]}).problems[0].where == "--swap-space"
    with pytest.raises(NoProgram, match="no program no-such"):
        program_of(["no-such", str(script), "serve"], {}, None)


def test_env_may_be_told_to_split_its_words(tmp_path: Path) -> None:
    script = vllm_site(tmp_path)
    script.write_text("#!/usr/bin/env -S python3 -P\n")
    assert program_of([str(script), "serve"], {"PATH": f"{tmp_path}/bin"}, None).engine == "vllm"


def test_a_missing_program_is_an_error_here_and_unknown_on_a_replayed_node() -> None:
    profile = cpu_profile({"command": ["vllm", "serve"]})
    node = FakeNode({"nvml": {"system": {}, "gpus": []}})
    plan, engine = plan_of(profile, node), profile.engines["e"]
    assert "no program vllm in the PATH" in told(lint(plan, engine))["launch.command"]
    with pytest.raises(SourceUnavailable, match="of a replayed node is not on this machine"):
        lint(plan, engine, simulated=True)


def test_where_the_package_is(tmp_path: Path) -> None:
    site = vllm_site(tmp_path / "a").parents[1] / "lib/python3.11/site-packages"
    other = vllm_site(tmp_path / "b", "0.33.0", "entrypoints/common/cli_args.py")
    program = program_of([str(other), "serve"], {}, None)
    assert read_package("vllm", package_of(program, {})).version == "0.33.0"
    assert package_of(program, {"PYTHONPATH": f"{site}:/x"}) == site / "vllm"
    bare = tmp_path / "c/lib/python3.11/site-packages"
    bare.mkdir(parents=True)
    (tmp_path / "c/pyvenv.cfg").write_text("")
    (tmp_path / "c/bin").mkdir()
    (tmp_path / "c/bin/python3").symlink_to(sys.executable)
    python = program_of([str(tmp_path / "c/bin/python3"), "-m", "vllm"], {}, None)
    with pytest.raises(SourceUnavailable, match=f"has no package vllm; looked in {bare}"):
        package_of(python, {})
    (bare / "editable.pth").write_text(f"import os\n{site}\n")
    assert package_of(python, {}) == site / "vllm"


def test_a_change_within_a_file_of_a_folder_is_seen(tmp_path: Path) -> None:
    root = package_of(program_of([str(vllm_site(tmp_path)), "serve"], {}, None), {})
    assert read_package("vllm", root).flags["--max-num-seqs"].number == "int"
    file = root / "config/model.py"
    file.write_text(file.read_text().replace("max_num_seqs: int", "max_num_seqs: Any"))
    assert read_package("vllm", root).flags["--max-num-seqs"].number == ""


@pytest.mark.parametrize("spoiled", ["fifo", "deep", "circle"])
def test_source_that_would_hang_or_exhaust_the_reader_is_no_evidence(tmp_path: Path, spoiled: str) -> None:
    root = package_of(program_of([str(vllm_site(tmp_path)), "serve"], {}, None), {})
    file = root / "config/model.py"
    text = file.read_text()
    file.unlink()
    if spoiled == "fifo":
        os.mkfifo(file)
    elif spoiled == "deep":
        file.write_text("x = " + "(" * 500 + "1" + ")" * 500)
    else:
        file.write_text(
            text.replace("class ModelConfig:", "class A(ModelConfig): pass\nclass ModelConfig(A):")
        )
        cli = root / "engine/arg_utils.py"
        cli.write_text(cli.read_text().replace('model_kwargs["model"]', 'model_kwargs["nothing"]'))
    with pytest.raises(SourceUnavailable, match="cannot be read"):
        read_package("vllm", root)


def test_changed_source_is_read_anew_and_broken_source_is_no_evidence(tmp_path: Path) -> None:
    root = vllm_site(tmp_path).parents[1] / "lib/python3.11/site-packages/vllm"
    first = read_package("vllm", root)
    assert read_package("vllm", root) is first
    cli = root / "entrypoints/launchers/cli_args.py"
    cli.write_text(cli.read_text().replace('"--headless"', '"--headless2"'))
    assert "--headless2" in read_package("vllm", root).flags
    cli.write_text("def (")
    with pytest.raises(SourceUnavailable, match="cannot be read"):
        read_package("vllm", root)
    cli.unlink()
    with pytest.raises(SourceUnavailable, match="has none of entrypoints/launchers"):
        read_package("vllm", root)


@pytest.mark.parametrize("answer", [{}, {"flags": 3}, {"flags": {"--x": {}}}, {"flags": {}, "env": []}])
def test_an_answer_of_another_form_is_no_evidence(answer: dict[str, object]) -> None:
    with pytest.raises(SourceUnavailable):
        source_from({"engine": "vllm", "version": "1", "root": "/x", "env": [], **answer})


def test_the_scanner_runs_alone(tmp_path: Path) -> None:
    """As it does inside an image: nothing of nodegate is there."""
    site = vllm_site(tmp_path).parents[1] / "lib/python3.11/site-packages"
    text = image.scanner_text()
    assert "import agent" not in text and "from agent" not in text
    env = {"PYTHONPATH": str(site), "PATH": os.environ["PATH"]}
    done = subprocess.run(
        [sys.executable, "-c", text, "vllm"], capture_output=True, text=True, env=env, cwd="/", timeout=60
    )
    assert done.returncode == 0, done.stderr
    found = source_from(json.loads(done.stdout))
    assert found == read_package("vllm", site / "vllm")
    none = subprocess.run(
        [sys.executable, "-c", text, "sglang"], capture_output=True, text=True, env=env, cwd="/", timeout=60
    )
    assert json.loads(none.stdout) == {"error": "this Python has no package sglang"}


PODMAN = """#!{python}
import json, subprocess, sys
words = sys.argv[1:]
open({log!r}, "a").write(json.dumps(words[:8]) + chr(10))
at = words.index({image!r})
env = {{"PYTHONPATH": {site!r}}}
sys.exit(subprocess.run([sys.executable, *words[at + 1 :]], env=env, cwd="/").returncode)
"""


@pytest.fixture
def podman(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for podman that runs the script with this Python; returns its log."""
    site = vllm_site(tmp_path / "image").parents[1] / "lib/python3.11/site-packages"
    log, folder = tmp_path / "log", tmp_path / "bin"
    folder.mkdir()
    text = PODMAN.format(python=sys.executable, log=str(log), image=IMAGE, site=str(site))
    (folder / "podman").write_text(text)
    (folder / "podman").chmod(0o755)
    monkeypatch.setitem(command.ENVIRONMENT, "PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setattr(image, "_known", {})
    return log


def test_flags_inside_an_image(podman: Path) -> None:
    mounts = [{"source": "/srv/conf", "target": "/conf"}]
    container = {"image": IMAGE, "mounts": mounts}
    args = ["--swap-space", "8", "--config", "/conf/e.yaml"]
    launch = {
        "command": ["vllm", "serve"],
        "model": "m",
        "args": args,
        "runtime": "podman",
        "container": container,
    }
    files = {"srv/conf/e.yaml": "ndma-enabled: true\n"}
    assert set(told(linted(launch, files))) == {"--swap-space", "/srv/conf/e.yaml: --ndma-enabled"}
    assert linted(launch, files).facts["version"] == "0.32.0"
    (words,) = [json.loads(line) for line in podman.read_text().splitlines()]  # a digest is scanned once
    assert words[:5] == ["run", "--rm", "--network=none", "--pull=never", "--read-only"]
    inside = {**launch, "args": ["--config", "/opt/e.yaml"]}
    assert "is inside the image" in told(linted(inside))["/opt/e.yaml"]


def test_an_image_without_the_engine_is_no_evidence(podman: Path) -> None:
    launch = {
        "command": ["sglang", "serve"],
        "kind": "sglang",
        "runtime": "podman",
        "container": {"image": IMAGE},
    }
    with pytest.raises(SourceUnavailable, match="this Python has no package sglang"):
        linted(launch)


PARSER = """
import argparse
class FlexibleArgumentParser(argparse.ArgumentParser):
    pass
"""
CLI = """
def make_arg_parser(parser):
    parser.add_argument("model_tag", nargs="?")
    parser.add_argument("--host")
    parser.add_argument("--model")
    parser.add_argument("--port", type=int)
    parser.add_argument("--max-num-seqs", type=int)
    return parser
class FrontendArgs:
    host: str
    port: int
"""
ENGINE_ARGS = """
class AsyncEngineArgs:
    @classmethod
    def from_cli_args(cls, namespace):
        self = cls()
        self.seqs = namespace.max_num_seqs
        assert namespace.model == "tiny"
        return self
    def create_engine_config(self):
        if self.seqs > 1000:
            raise ValueError("too many requests")
"""


def test_the_engines_own_parser(tmp_path: Path) -> None:
    program = vllm_site(tmp_path)
    root = tmp_path / "lib/python3.11/site-packages/vllm"
    files = {"utils/argparse_utils.py": PARSER, "entrypoints/launchers/cli_args.py": CLI}
    for path, text in {**files, "engine/arg_utils.py": ENGINE_ARGS}.items():
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_text(text)
    env = {"PYTHONPATH": str(root.parent)}  # the stand-in's Python is the tests' own

    def ask(seqs: str, *, config: bool = False) -> tuple[str, list[str]]:
        profile = cpu_profile(launch_of(program, "--max-num-seqs", seqs, env=env))
        plan = plan_of(profile)
        said, problems = parser_problems(plan, profile.engines["e"], Commands(), config=config)
        return said, [str(problem) for problem in problems]

    assert ask("4") == ("the engine's own parser: taken", [])
    said, (text,) = ask("x")
    assert said == "the engine's own parser: refused"
    assert text == (
        "vllm, its parser: argument --max-num-seqs: invalid int value: 'x'; correct what it names"
    )
    said, (text,) = ask("2000", config=True)
    assert text.startswith("vllm, its configuration: ValueError: too many requests")
    (root / "utils/argparse_utils.py").unlink()
    said, (text,) = ask("4")
    assert text.startswith("vllm, the engine cannot be imported: ")
