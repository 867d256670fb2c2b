"""Bad profiles, captures, scenarios and arguments: one clear line that names the place, and exit code 3."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_words import complaint, nodegate
from daemon_rig import DEMO_NODE, DaemonRig

from agent.cli import run_command_line

PROFILE = "platform: h200\nnode: a\n"
ENGINE = "engines:\n  a: {gpus: [0], port: 8000}\n"
BAD_PROFILES = {
    "not YAML": ("platform: [h200\n", ":2"),
    "binary": ("\x00\x01\x02", ""),
    "a list": ("- platform\n", ":1"),
    "an unknown key": (f"{PROFILE}gpu_count: 8\n", ":3"),
    "an unknown platform": ("platform: h999\n", ":1"),
    "an unknown mode": (f"{PROFILE}mode: loud\n", ":3"),
    "a unit in a number": (f"{PROFILE}gpus:\n  power_limit_w: 700W\n", ":4"),
    "a negative count": (f"{PROFILE}gpus:\n  count: -1\n", ":4"),
    "not a number": (f"{PROFILE}api: {{max_age_s: .nan}}\n", ":3"),
    "a short UUID": (f"{PROFILE}gpus:\n  pins:\n    0: {{uuid: GPU-1234}}\n", ":5"),
    "a slot that is not there": (f"{PROFILE}engines:\n  a: {{gpus: [8], port: 8000}}\n", ":4"),
    "a slot in two engines": (f"{PROFILE}{ENGINE}  b: {{gpus: [0], port: 8001}}\n", ":5"),
    "a port used twice": (f"{PROFILE}{ENGINE}  b: {{gpus: [1], port: 8000}}\n", ":5"),
    "a port of the API": (f"{PROFILE}engines:\n  a: {{gpus: [0], port: 9470}}\n", ":4"),
    "a check that is not there": (f"{PROFILE}limits:\n  gpu.colour: {{red: 1}}\n", ":4"),
    "a limit that is not there": (f"{PROFILE}limits:\n  gpu.thermal_margin: {{red: 1}}\n", ":4"),
    "a key twice": (f"{PROFILE}node: b\n", ":3"),
    "a tag": (f"{PROFILE}gpus: !!python/object:os.system {{}}\n", ""),
}


def _one_line(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Run in this process: exit 3 and one line."""
    assert run_command_line(list(words)) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1, err
    assert "internal error" not in err
    return err


@pytest.mark.parametrize("what", BAD_PROFILES)
def test_bad_profiles(what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, line = BAD_PROFILES[what]
    path = tmp_path / "site.yaml"
    path.write_text(text)
    assert f"{path}{line}" in _one_line(capsys, "check", "--profile", str(path), "--node", str(DEMO_NODE))


def _drop(folder: Path, name: str) -> None:
    (folder / name).unlink()


def _write(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text)


BAD_CAPTURES: dict[str, tuple[Callable[[Path], None], str]] = {
    "no node.yaml": (lambda folder: _drop(folder, "node.yaml"), "node.yaml"),
    "garbled node.yaml": (lambda folder: _write(folder, "node.yaml", "schema: [1"), "node.yaml"),
    "another schema": (lambda folder: _write(folder, "node.yaml", "schema: 99\nname: x\n"), "node.yaml"),
    "garbled nvml.json": (lambda folder: _write(folder, "nvml.json", '{"system": '), "nvml.json"),
    "nvml.json of another shape": (
        lambda folder: _write(folder, "nvml.json", '{"system": 3, "gpus": {}}'),
        "nvml.json",
    ),
    "a GPU without identity": (
        lambda folder: _write(folder, "nvml.json", '{"system": {}, "gpus": [{}]}'),
        "nvml.json",
    ),
    "garbled net.json": (lambda folder: _write(folder, "net.json", "[1, 2]"), "net.json"),
    "garbled kmsg.txt": (lambda folder: _write(folder, "kmsg.txt", "no kernel wrote this\n"), "kmsg.txt"),
    "garbled links.json": (lambda folder: _write(folder, "links.json", '{"sys/a": 3}'), "links.json"),
}


@pytest.mark.parametrize("what", BAD_CAPTURES)
def test_bad_captures(what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spoil, name = BAD_CAPTURES[what]
    folder = tmp_path / "node"
    shutil.copytree(DEMO_NODE, folder, symlinks=True)
    spoil(folder)
    assert name in _one_line(capsys, "check", "--node", str(folder))


def test_a_folder_that_is_no_capture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _one_line(capsys, "check", "--node", str(tmp_path))
    _one_line(capsys, "check", "--node", str(tmp_path / "missing"))
    _one_line(capsys, "check", "--profile", str(DEMO_NODE / "profile.yaml"), "--node", str(tmp_path))


STEP = "name: x\nsteps:\n  - at_s: 1\n"
BAD_SCENARIOS = {
    "nothing at all": "",
    "not YAML": "name: [",
    "no steps": "name: x\n",
    "an unknown key": f"{STEP}    sett: {{}}\n",
    "a time that is none": "name: x\nsteps:\n  - at_s: soon\n",
    "a time before the beginning": "name: x\nsteps:\n  - at_s: -1\n",
    "a GPU that is not there": f"{STEP}    set: {{nvml.gpus.42.thermal.margin_c: 1}}\n",
    "a value that is not there": f"{STEP}    set: {{nvml.gpus.1.thermal.colour: 1}}\n",
    "a text for a number": f"{STEP}    set: {{nvml.gpus.1.thermal.margin_c: hot}}\n",
    "a path out of the node": f"{STEP}    files: {{../../etc/passwd: x}}\n",
    "a kernel line without a level": f"{STEP}    kmsg: [NVRM hello]\n",
    "an unknown fault of an engine": f"{STEP}    engine: {{main: explode}}\n",
}


@pytest.mark.parametrize("what", BAD_SCENARIOS)
def test_bad_scenarios(what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text(BAD_SCENARIOS[what])
    assert str(path) in _one_line(capsys, "check", "--node", str(DEMO_NODE), "--scenario", str(path))


@pytest.mark.parametrize(
    "words",
    [
        ("demo", "--scenario", "no-such-one"),
        ("demo", "--scenario", "missing.yaml"),
        ("demo", "--seconds", "0"),
        ("demo", "--seconds", "nan"),
        ("demo", "--seconds", "soon"),
        ("check", "--only", "no.such.check", "--node", str(DEMO_NODE)),
        ("check", "--sample-seconds", "-1", "--node", str(DEMO_NODE)),
        ("check", "--scenario", "x.yaml", "--profile", str(DEMO_NODE / "profile.yaml")),
        ("status", "--run-dir", "/nonexistent"),
        ("history", "--run-dir", "/nonexistent"),
        ("history", "--since", "yesterday", "--run-dir", "/nonexistent"),
        ("gate", "drain", "--reason", "x", "--run-dir", "/nonexistent"),
        ("gate", "force-open", "main", "--reason", "x", "--for", "5", "--run-dir", "/nonexistent"),
        ("waive", "xid", "gpu1", "--for", "2h", "--reason", "x", "--run-dir", "/nonexistent"),
        ("engine", "restart", "main", "--run-dir", "/nonexistent"),
        ("maintenance", "enter", "--reason", "x", "--run-dir", "/nonexistent"),
        ("profile", "render", "--profile", "/nonexistent"),
        ("profile", "validate", "--profile", "/nonexistent"),
        ("launch", "command", "no-such-engine", "--node", str(DEMO_NODE)),
        ("capture", "/proc/no/such/place", "--node", str(DEMO_NODE)),
    ],
)
def test_bad_arguments(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    _one_line(capsys, *words)


@pytest.mark.parametrize("spoil", ["profile", "scenario", "state", "run", "port"])
def test_a_daemon_that_cannot_run_says_so_and_leaves_nothing(spoil: str, tmp_path: Path) -> None:
    rig = DaemonRig(tmp_path, {"main": [0]})
    words = rig.words()[1:]
    taken = tmp_path / "taken"
    taken.write_text("a file where a folder should be")
    match spoil:
        case "profile":
            rig.profile_path.write_text("platform: h200\nmode: loud\n")
        case "scenario":
            words += ["--scenario", str(taken)]
        case "state":
            words[words.index("--state-dir") + 1] = str(taken / "state")
        case "run":
            words[words.index("--run-dir") + 1] = str(taken)
        case "port":
            rig.profile["engines"]["main"]["agent_check_port"] = rig.profile["api"]["port"]
            rig.write_profile()
    assert complaint(nodegate(*words))
    assert rig.engine_pids() == []
    assert not (rig.run_dir / "admin.sock").exists()


def test_a_port_in_use_is_one_line(tmp_path: Path) -> None:
    rig = DaemonRig(tmp_path, {"main": [0]})
    with socket.create_server(("127.0.0.1", rig.api_port)):
        text = complaint(nodegate(*rig.words()[1:]))
    assert str(rig.api_port) in text
    assert "api.port" in text
    assert rig.engine_pids() == []
    assert [path.name for path in rig.run_dir.iterdir() if path.name != "daemon.lock"] == []
