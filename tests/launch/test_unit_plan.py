"""The plan file of a unit and the starter that becomes the engine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agent.errors import LaunchError
from agent.launch import exec_plan
from agent.launch.launch_profile import MARKER
from agent.launch.unit_plan import UnitPlan, UnitPlanFile, read_unit_plan

SHOW = """
import json, os, sys
seen = {"env": dict(os.environ), "cwd": os.getcwd(), "argv": sys.argv[1:], "pid": os.getpid()}
print(json.dumps(seen), flush=True)
print("to stderr", file=sys.stderr)
"""


def unit_plan(folder: Path, **changes: Any) -> UnitPlan:
    values: dict[str, Any] = {
        "engine": "a",
        "argv": (sys.executable, "-c", SHOW, "--flag"),
        "env": {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
        "env_file": None,
        "working_dir": str(folder),
        "mark": "a@home:token",
        "log": str(folder / "log" / "a.log"),
        "token": "token",
        "launch_hash": "hash",
        "started_mono_s": 12.5,
    }
    return UnitPlan(**{**values, **changes})


def written(folder: Path, **changes: Any) -> UnitPlanFile:
    file = UnitPlanFile(folder / "run", "a")
    file.write(unit_plan(folder, **changes))
    return file


def started(file: UnitPlanFile) -> subprocess.CompletedProcess[str]:
    """What systemd does: the starter with an environment of systemd's own."""
    return subprocess.run(
        [sys.executable, "-P", "-m", "agent.launch.exec_plan", str(file.path)],
        env={"INVOCATION_ID": "run-1", "JOURNAL_STREAM": "8:1", "HOME": "/nowhere"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_plan_is_read_as_it_was_written_and_only_its_owner_can(tmp_path: Path) -> None:
    file = written(tmp_path)
    assert read_unit_plan(file.path) == unit_plan(tmp_path)
    assert file.path.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in file.path.parent.iterdir()] == ["a.json"]
    file.remove()
    file.remove()
    assert list(file.path.parent.iterdir()) == []


def test_the_starter_becomes_the_engine(tmp_path: Path) -> None:
    secrets = tmp_path / "secrets.env"
    secrets.write_text("VLLM_API_KEY='very secret'\n")
    secrets.chmod(0o600)
    file = written(tmp_path, env_file=str(secrets))
    done = started(file)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    told, errors = (tmp_path / "log" / "a.log").read_text().splitlines()
    seen = json.loads(told)
    assert errors == "to stderr"
    assert seen["argv"] == ["--flag"] and seen["cwd"] == str(tmp_path)
    assert seen["env"] == {
        "PATH": "/usr/bin:/bin",
        "LC_ALL": "C.UTF-8",
        "VLLM_API_KEY": "very secret",
        MARKER: "a@home:token",
    }
    receipt = file.receipt()
    assert receipt is not None
    assert (receipt.token, receipt.launch_hash, receipt.invocation_id) == ("token", "hash", "run-1")
    assert (receipt.pid, receipt.started_mono_s, receipt.error) == (seen["pid"], 12.5, "")
    file.write(unit_plan(tmp_path))
    assert file.receipt() is None  # it was about the launch before


def test_a_program_that_cannot_be_executed_is_told_in_journal_and_receipt(tmp_path: Path) -> None:
    program = tmp_path / "engine"
    program.write_bytes(b"\x7fELF no program")
    program.chmod(0o755)
    file = written(tmp_path, argv=(str(program),))
    done = started(file)
    assert done.returncode == exec_plan.EXIT_REFUSED
    assert done.stderr.startswith(f"engine a: {program} cannot be started: Exec format error; check")
    assert done.stderr.count("\n") == 1
    receipt = file.receipt()
    assert receipt is not None and receipt.error == done.stderr.strip()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"argv": ("/no/such/vllm",)}, "/no/such/vllm cannot be started: No such file or directory"),
        ({"argv": ("no-such-vllm",)}, "no-such-vllm cannot be started: No such file or directory"),
        ({"argv": ("/etc/passwd",)}, "/etc/passwd cannot be started: Permission denied"),
        ({"working_dir": "/no/such/folder"}, "/no/such/folder cannot be started: No such file or directory"),
        ({"env_file": "/no/such/secrets"}, "/no/such/secrets: cannot be read"),
        ({"log": "/proc/no/a.log"}, "its log /proc/no/a.log cannot be written: No such file or directory"),
    ],
)
def test_what_is_not_there_is_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    changes: dict[str, Any],
    text: str,
) -> None:
    """In this process: each of them is refused before the starter touches its outputs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys.stderr, "fileno", lambda: 2, raising=False)
    file = written(tmp_path, **changes)
    assert exec_plan.main([str(file.path)]) == exec_plan.EXIT_REFUSED
    told = capsys.readouterr().err
    assert text in told and told.count("\n") == 1
    receipt = file.receipt()
    assert receipt is not None and text in receipt.error


@pytest.mark.parametrize(
    "changes",
    [
        {"working_dir": "/tmp\0x"},
        {"working_dir": "/\ud800"},
        {"log": "/tmp/a\0.log"},
        {"env_file": "/a\0b"},
        {"env": {"A": "\ud800"}},
        {"env": {"A\0": "b"}},
        {"argv": ("/bin/true", "\0")},
        {"started_mono_s": float("nan")},
        {"started_mono_s": float("inf")},
    ],
)
def test_what_no_program_can_be_given_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any]
) -> None:
    assert exec_plan.main([str(written(tmp_path, **changes).path)]) == exec_plan.EXIT_REFUSED
    told = capsys.readouterr().err
    assert " must " in told and told.count("\n") == 1


def test_a_fifo_in_the_place_of_the_log_does_not_hang_the_starter(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "fileno", lambda: 2, raising=False)
    os.mkfifo(tmp_path / "pipe")
    assert exec_plan.main([str(written(tmp_path, log=str(tmp_path / "pipe")).path)]) == exec_plan.EXIT_REFUSED
    assert "cannot be written: No such device or address" in capsys.readouterr().err


def test_bytes_of_an_odd_environment_survive_the_plan(tmp_path: Path) -> None:
    file = written(tmp_path, env={"PATH": "/bin", "ODD": "\udcff"})
    assert read_unit_plan(file.path).env["ODD"] == "\udcff"


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_plan_that_others_can_write_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], mode: int
) -> None:
    file = written(tmp_path)
    file.path.chmod(mode)
    assert exec_plan.main([str(file.path)]) == exec_plan.EXIT_REFUSED
    assert f"mode is {mode:04o}, others can write it" in capsys.readouterr().err


def test_a_plan_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path)
    owner = file.path.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    if owner == 0:  # root may write anybody's plan
        assert read_unit_plan(file.path).engine == "a"
        os.chown(file.path, 12345, -1)
    with pytest.raises(LaunchError, match="owned by uid"):
        read_unit_plan(file.path)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, "cannot be read: No such file or directory; the agent writes it"),
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "not a file of schema 1"),
        ({"schema": 2}, "not a file of schema 1"),
        ({"token": None}, "token must be a string"),
        ({"argv": []}, "argv must be a list of strings, not empty"),
        ({"argv": ["vllm", 1]}, "argv must be a list of strings"),
        ({"env": {"A": 1}}, "env must hold strings"),
        ({"env_file": 1}, "env_file must be a string or null"),
        ({"started_mono_s": "soon"}, "started_mono_s must be a number"),
        ({"more": 1}, "missing or unknown: more"),
    ],
)
def test_a_bad_plan_is_one_line(tmp_path: Path, content: object, text: str) -> None:
    file = written(tmp_path)
    if content is None:
        file.remove()
    elif isinstance(content, str):
        file.path.write_text(content)
    else:
        assert isinstance(content, dict)
        file.path.write_text(json.dumps({**json.loads(file.path.read_text()), **content}))
    with pytest.raises(LaunchError, match=text) as refused:
        read_unit_plan(file.path)
    assert str(file.path) in str(refused.value) and "\n" not in str(refused.value)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    file = written(tmp_path)
    link = file.path.with_name("b.json")
    link.symlink_to(file.path)
    with pytest.raises(LaunchError, match=r"b.json: cannot be read"):
        read_unit_plan(link)


def test_a_plan_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file")
    with pytest.raises(LaunchError, match=r"cannot be written: (Not a directory|File exists); free space"):
        written(tmp_path)
