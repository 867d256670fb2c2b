"""The console script: what it offers and how every end of a command becomes an exit code."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import typer
from cli_words import NODEGATE, complaint, in_process, nodegate
from repo_files import ROOT

from agent import __version__, cli
from agent.errors import ConfigError


def _app_that(raises: BaseException | None = None, returns: object = None) -> typer.Typer:
    app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)

    @app.callback()
    def _root() -> None:
        """Make the application a group, as the real one is."""

    @app.command("it")
    def _it() -> object:
        if raises is not None:
            raise raises
        return returns

    return app


def _run(monkeypatch: pytest.MonkeyPatch, app: typer.Typer, *words: str) -> int:
    monkeypatch.setattr(cli, "build_app", lambda _only: app)
    return cli.run_command_line(["it", *words])


@pytest.mark.parametrize(
    ("raised", "code"),
    [(None, 0), (typer.Exit(0), 0), (typer.Exit(1), 1), (typer.Exit(2), 2), (KeyboardInterrupt(), 130)],
)
def test_ends_and_their_codes(
    monkeypatch: pytest.MonkeyPatch, raised: BaseException | None, code: int
) -> None:
    assert _run(monkeypatch, _app_that(raised)) == code


def test_an_expected_error_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error = ConfigError("no such key\n  'x\x1b[31m'", where="p.yaml:3", remedy="remove it")
    assert _run(monkeypatch, _app_that(error)) == 3
    assert capsys.readouterr() == ("", "nodegate: p.yaml:3: no such key 'x\\x1b[31m'; remove it\n")


@pytest.mark.parametrize("words", [("--debug",), ()])
def test_only_debug_shows_the_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    assert _run(monkeypatch, _app_that(RuntimeError("broken")), *words) == 3
    text = capsys.readouterr().err
    assert ("Traceback" in text) is bool(words)
    assert "nodegate: internal error: RuntimeError: broken" in text


def test_version() -> None:
    answer = nodegate("--version")
    assert (answer.returncode, answer.stdout) == (0, f"nodegate {__version__}\n")


def test_no_command_shows_help() -> None:
    answer = nodegate()
    assert answer.returncode == 3
    assert "Usage: nodegate" in answer.stderr
    assert "check" in answer.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("frobnicate",),
        ("--frobnicate",),
        ("check", "--frobnicate"),
        ("check", "--phase", "someday"),
        ("check", "--profile"),
        ("check", "extra"),
        ("run", "--node", "/nonexistent", "--nope"),
        ("gate", "open"),
        ("maintenance",),
    ],
)
def test_bad_usage_is_exit_3(capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    answer = in_process(capsys, *words)
    assert answer.returncode == 3, answer.stderr
    assert "Traceback" not in answer.stderr
    assert answer.stderr


def test_every_command_is_registered_by_its_module(capsys: pytest.CaptureFixture[str]) -> None:
    group = typer.main.get_command(cli.build_app())
    assert set(group.commands) == set(cli.COMMANDS)
    for name in cli.COMMANDS:
        assert name in typer.main.get_command(cli.build_app(name)).commands
        answer = in_process(capsys, name, "--help")
        assert answer.returncode == 0, answer.stderr
        assert f"Usage: nodegate {name}" in answer.stdout


def test_the_interfaces_name_the_commands_that_are_built() -> None:
    text = (ROOT / "docs" / "interfaces.md").read_text()
    table = text[text.index("Built today:") : text.index("Not built yet:")]
    rows = [match.split() for match in re.findall(r"^\| `([^`]+)`", table, re.MULTILINE)]
    assert list(dict.fromkeys(row[0] for row in rows)) == [
        name for name in dict.fromkeys(row[0] for row in rows) if name in cli.COMMANDS
    ]
    assert {row[0] for row in rows} == set(cli.COMMANDS)
    group = typer.main.get_command(cli.build_app())
    for row in rows:
        below = getattr(group.commands[row[0]], "commands", None)
        if below is not None:
            assert set(row[1].replace("\\", "").split("|")) == set(below), row[0]


def test_a_closed_pipe_ends_quietly() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        command = [str(NODEGATE), "profile", "schema"]
        answer = subprocess.run(command, stdout=write_end, stderr=subprocess.PIPE, text=True, timeout=60)
    finally:
        os.close(write_end)
    assert (answer.returncode, answer.stderr) == (141, "")


def test_a_missing_profile_says_what_to_do() -> None:
    assert "name one with --profile FILE" in complaint(nodegate("check", "--node", "."))


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-", "2>/dev/full"])
def test_closed_streams_change_no_exit_code(closed: str) -> None:
    for words, code in (("--version", 0), ("check --nod", 3)):
        line = f'exec "$0" {words} {closed}'
        answer = subprocess.run(["sh", "-c", line, str(NODEGATE)], capture_output=True, timeout=60)
        assert answer.returncode == code, (words, answer.stderr)


def test_an_output_that_cannot_be_written_is_one_line() -> None:
    line = 'exec "$0" --version >/dev/full'
    answer = subprocess.run(["sh", "-c", line, str(NODEGATE)], capture_output=True, text=True, timeout=60)
    assert (answer.returncode, answer.stderr) == (
        3,
        "nodegate: the output cannot be written: No space left on device\n",
    )


def test_text_that_the_encoding_lacks_is_shown_as_an_escape(tmp_path: Path) -> None:
    node = shutil.copytree(ROOT / "agent/demo_nodes/h200-roce", tmp_path / "node")
    profile = node / "profile.yaml"
    profile.write_text(profile.read_text().replace("node: h200-roce", "node: \N{BLACK STAR}"))
    answer = nodegate("check", "--node", str(node), "--only", "gpu.model", PYTHONIOENCODING="ascii")
    assert answer.returncode == 0, answer.stderr
    assert "\\u2605: PASS" in answer.stdout
