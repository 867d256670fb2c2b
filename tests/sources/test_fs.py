"""SysTree: what is there, what is not, what cannot be read."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from agent.errors import DeviceAbsent, ParseError, SourceUnavailable
from agent.sources.fs import SysTree


@pytest.fixture
def tree(tmp_path: Path) -> SysTree:
    folder = tmp_path / "sys/class/net/eth0"
    folder.mkdir(parents=True)
    (folder / "mtu").write_text("9000\n")
    (folder / "hex").write_text("0x030200\n")
    (folder / "padded").write_text("0008\n")
    (folder / "text").write_text("4: ACTIVE\n")
    (folder / "binary").write_bytes(b"\xff\xfe\x00")
    (folder / "huge").write_bytes(b"1" * ((1 << 20) + 1))
    (folder / "device").symlink_to("../../../0000:18:00.0")
    (folder / "loop").symlink_to("loop")
    return SysTree(tmp_path)


def test_reads_text_and_numbers(tree: SysTree) -> None:
    assert tree.text("sys/class/net/eth0/text") == "4: ACTIVE"
    assert tree.integer("sys/class/net/eth0/mtu") == 9000
    assert tree.integer("sys/class/net/eth0/hex") == 0x030200
    assert tree.integer("sys/class/net/eth0/padded") == 8


@pytest.mark.parametrize("error", [errno.ESRCH, errno.ENODEV])
def test_what_ends_between_open_and_read_is_absent(
    error: int, tree: SysTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread of /proc/PID/task answers ESRCH, a device that is pulled ENODEV."""

    def gone(*_: object) -> bytes:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(os, "read", gone)
    with pytest.raises(DeviceAbsent):
        tree.text("sys/class/net/eth0/text")


def test_lists_and_follows(tree: SysTree) -> None:
    assert tree.names("sys/class/net") == ["eth0"]
    assert tree.link_target("sys/class/net/eth0/device") == "../../../0000:18:00.0"
    assert tree.exists("sys/class/net/eth0/mtu")
    assert not tree.exists("sys/class/net/eth1")
    assert not tree.exists("sys/class/net/eth0/device/numa_node")


@pytest.mark.parametrize(
    "path",
    ["sys/class/net/eth1/mtu", "sys/class/net/eth0/mtu/x", "n" * 5000, "", "/etc/passwd", "../etc", "a\0b"],
)
def test_absent_is_absent(tree: SysTree, path: str) -> None:
    for read in (tree.text, tree.integer, tree.names, tree.link_target):
        with pytest.raises(DeviceAbsent):
            read(path)
    assert not tree.exists(path)


def test_no_link_is_absent(tree: SysTree) -> None:
    with pytest.raises(DeviceAbsent):
        tree.link_target("sys/class/net/eth0/mtu")


@pytest.mark.parametrize("name", ["text", "binary", "huge"])
def test_what_is_no_number_is_a_parse_error_naming_the_path(tree: SysTree, name: str) -> None:
    with pytest.raises(ParseError, match=f"/sys/class/net/eth0/{name}"):
        tree.integer(f"sys/class/net/eth0/{name}")


def test_a_folder_or_a_loop_cannot_be_read(tree: SysTree) -> None:
    with pytest.raises(SourceUnavailable, match="/sys/class/net"):
        tree.text("sys/class/net")
    with pytest.raises(SourceUnavailable):
        tree.exists("sys/class/net/eth0/loop")


def test_live_root() -> None:
    assert SysTree().text("proc/sys/kernel/ostype") == "Linux"


def test_a_fifo_in_a_files_place_holds_nobody(tree: SysTree, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "sys/class/net/eth0/pipe")
    assert tree.data("sys/class/net/eth0/pipe") == b""
