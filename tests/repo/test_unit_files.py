"""The files that make nodegate a service: complete in the package, each with its place, installed whole."""

from __future__ import annotations

import configparser
from pathlib import Path

import pytest
from typer.testing import CliRunner

import agent
from agent.cli import build_app
from agent.unit_files import FOR_PROCESSES, PREFIX, unit_files

UNITS = Path(agent.__file__).parent / "units"


def _install(root: Path, *more: str) -> list[str]:
    done = CliRunner().invoke(build_app("systemd"), ["systemd", "install", "--root", str(root), *more])
    assert done.exit_code == 0, done.output
    return done.output.splitlines()


def test_every_file_has_a_place() -> None:
    files = unit_files(processes=True)
    optional = {path.name for path in UNITS.glob("*.conf")} - {FOR_PROCESSES}
    assert {file.name for file in files} == {path.name for path in UNITS.iterdir()} - optional
    assert len({file.path for file in files}) == len(files)
    assert Path("/etc/systemd/system/nodegate.service") in {file.path for file in files}
    assert FOR_PROCESSES not in {file.name for file in unit_files()}


def test_install_writes_what_differs(tmp_path: Path) -> None:
    would = _install(tmp_path, "--dry-run", "--prefix", "/srv/env")
    assert not list(tmp_path.iterdir())
    assert [line.removeprefix("would ") for line in would] == [
        line.replace("wrote", "write")
        for line in _install(tmp_path, "--prefix", "/srv/env")
        if "wrote" in line
    ]
    unit = tmp_path / "etc/systemd/system/nodegate.service"
    assert "ExecStart=/srv/env/bin/nodegate run" in unit.read_text()
    assert PREFIX not in unit.read_text()
    assert _install(tmp_path, "--prefix", "/srv/env") == ["every file is in place"]
    unit.write_text("# changed")
    assert _install(tmp_path, "--prefix", "/srv/env")[0] == "wrote /etc/systemd/system/nodegate.service"


@pytest.mark.parametrize("prefix", ["relative", "/with space", "/%h", "", "/line\n"])
def test_a_prefix_that_a_unit_cannot_name_is_refused(prefix: str, tmp_path: Path) -> None:
    words = ["systemd", "install", "--root", str(tmp_path), "--prefix", prefix]
    done = CliRunner().invoke(build_app("systemd"), words)
    assert "cannot be named in a unit" in str(done.exception)
    assert not list(tmp_path.iterdir())


def test_the_agent_has_no_more_than_the_kernel_log() -> None:
    unit = configparser.RawConfigParser(strict=False, allow_no_value=True, delimiters=["="])
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string((UNITS / "nodegate.service").read_text())
    service = unit["Service"]
    assert service["AmbientCapabilities"] == service["CapabilityBoundingSet"] == "CAP_SYSLOG"
    assert (service["User"], service["Type"], service["NotifyAccess"]) == ("nodegate", "notify", "main")
    # An end of the agent is no end of its engines, their shared memory and their plans.
    assert (service["KillMode"], service["RemoveIPC"], service["RuntimeDirectoryPreserve"]) == (
        "process",
        "no",
        "yes",
    )
