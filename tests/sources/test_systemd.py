"""systemctl as the agent asks it, and control groups."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.errors import ParseError, SourceUnavailable
from agent.sources.cgroup import group_folder, group_pids, own_group
from agent.sources.systemd import Systemctl, parse_unit_now

SHOWN = """LoadState=loaded
ActiveState=failed
SubState=failed
MainPID=0
InvocationID=0123456789abcdef0123456789abcdef
ControlGroup=/system.slice/system-nodegate\\x2dengine.slice/nodegate-engine@a.service
Result=exit-code
ExecMainStatus=3
"""


def test_what_systemctl_shows() -> None:
    unit = parse_unit_now("nodegate-engine@a.service", SHOWN)
    assert unit.ended and unit.main_pid == 0
    assert unit.words == "failed (failed), result exit-code, exit status 3"
    assert unit.control_group == "/system.slice/system-nodegate\\x2dengine.slice/nodegate-engine@a.service"
    running = SHOWN.replace("ActiveState=failed", "ActiveState=deactivating").replace(
        "MainPID=0", "MainPID=7"
    )
    assert not parse_unit_now("a", running).ended and parse_unit_now("a", running).main_pid == 7


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("", "LoadState"),
        ("LoadState=loaded\n", "ActiveState"),
        (SHOWN.replace("=0\n", "=-1\n"), "MainPID is '-1'"),
    ],
)
def test_what_cannot_be_read_is_no_state(text: str, wrong: str) -> None:
    with pytest.raises(ParseError, match=wrong):
        parse_unit_now("a", text)


@pytest.mark.parametrize(
    ("errors", "text"),
    [
        (
            "Failed to start a.service: Access denied\\nSee system logs",
            "Failed to start a.service: Access denied; install the polkit rule 50-nodegate.rules",
        ),
        ("Failed to start a.service: Interactive authentication required.", "install the polkit rule"),
        ("Failed to start a.service: Unit a.service not found.", "install the unit file and run systemctl"),
        ("Failed to connect to bus: Host is down", "systemctl start a.service: Failed to connect to bus"),
        ("", "systemctl start a.service: exit status 4"),
    ],
)
def test_a_refusal_is_one_line_with_its_remedy(tmp_path: Path, errors: str, text: str) -> None:
    program = tmp_path / "systemctl"
    program.write_text(f"#!/bin/sh\nprintf '{errors}' >&2\nexit 4\n")
    program.chmod(0o755)
    with pytest.raises(SourceUnavailable) as refused:
        Systemctl(str(program)).start("a.service")
    assert text in str(refused.value) and "\n" not in str(refused.value)


def test_a_host_without_systemctl(tmp_path: Path) -> None:
    with pytest.raises(SourceUnavailable, match="cannot start"):
        Systemctl(str(tmp_path / "none")).show("a.service")


def test_nothing_is_asked_on_a_terminal(tmp_path: Path) -> None:
    program = tmp_path / "systemctl"
    program.write_text(f'#!/bin/sh\necho "$*" > {tmp_path}/said\n')
    program.chmod(0o755)
    systemctl = Systemctl(str(program))
    for call, words in (
        (systemctl.kill_all, "kill --signal=SIGKILL -- a.service"),
        (systemctl.stop, "stop --no-block -- a.service"),
    ):
        call("a.service")
        said = (tmp_path / "said").read_text()
        assert said == f"--system --no-ask-password --no-pager {words}\n"


def test_a_group_and_those_below_it(tmp_path: Path) -> None:
    (tmp_path / "a" / "container").mkdir(parents=True)
    (tmp_path / "a" / "cgroup.procs").write_text("12\n7\n")
    (tmp_path / "a" / "container" / "cgroup.procs").write_text("9\n")
    assert sorted(group_pids(tmp_path / "a")) == [7, 9, 12]
    assert group_pids(tmp_path / "gone") == []


@pytest.mark.parametrize("tree", ["", "unified", "systemd"])
def test_where_systemd_keeps_its_groups(tmp_path: Path, tree: str) -> None:
    folder = tmp_path / tree / "system.slice" / "a.service"
    folder.mkdir(parents=True)
    assert group_folder("/system.slice/a.service", tmp_path) is None
    (folder / "cgroup.procs").touch()
    assert group_folder("/system.slice/a.service", tmp_path) == folder
    assert group_folder("/", tmp_path) is None and group_folder("", tmp_path) is None


def test_the_own_group(tmp_path: Path) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "cgroup").write_text("1:name=systemd:/x\n0::/system.slice/nodegate.service\n")
    assert own_group(tmp_path) == "/system.slice/nodegate.service"
    (tmp_path / "self" / "cgroup").write_text("9:name=systemd:/system.slice/x.service\n2:cpu:/\n0::/\n")
    assert own_group(tmp_path) == "/system.slice/x.service"
    (tmp_path / "self" / "cgroup").write_text("2:cpu:/a.service\nodd\n")
    assert own_group(tmp_path) is None
    assert own_group(tmp_path / "none") is None
