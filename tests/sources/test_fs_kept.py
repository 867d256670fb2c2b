"""Files that stay open between readings: never an old value, never another file's, never too many."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.errors import DeviceAbsent, ParseError, SourceUnavailable
from agent.sources import fs_kept
from agent.sources.fs import SysTree

FOLDER = "sys/class/infiniband/mlx5_0/ports/1/counters"
PATH = f"{FOLDER}/symbol_error"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree with one counter; folders are looked at before each reading."""
    monkeypatch.setattr(fs_kept, "FOLDER_TRUST_S", 0.0)
    (tmp_path / FOLDER).mkdir(parents=True)
    (tmp_path / PATH).write_text("12\n")
    age(tmp_path)
    return tmp_path


@pytest.fixture
def tree(root: Path) -> SysTree:
    """With the counter kept open: read twice."""
    tree = SysTree(root)
    assert [tree.integer(PATH), tree.integer(PATH)] == [12, 12]
    assert len(tree._kept) == 1
    return tree


def age(root: Path) -> None:
    """Folders that have not changed for long."""
    for folder in (root, *root.rglob("*/")):
        os.utime(folder, (1_000_000, 1_000_000))


def opens(monkeypatch: pytest.MonkeyPatch, call: Callable[[], object]) -> int:
    """How many files a call opens."""
    counted: list[str] = []
    real_open, real_path_open = os.open, Path.open

    def counting(path: str, *args: object, **more: object) -> int:
        counted.append(str(path))
        return real_open(path, *args, **more)  # type: ignore[arg-type]

    def counting_path(path: Path, *args: object, **more: object) -> object:
        counted.append(str(path))
        return real_path_open(path, *args, **more)  # type: ignore[call-overload]

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", counting)
        patch.setattr(Path, "open", counting_path)
        call()
    return len(counted)


def test_no_file_is_opened_twice(tree: SysTree, monkeypatch: pytest.MonkeyPatch) -> None:
    assert opens(monkeypatch, lambda: [tree.text(PATH) for _ in range(100)]) == 0
    assert opens(monkeypatch, lambda: tree.data(PATH)) == 1


def test_a_new_value_is_read(tree: SysTree, root: Path) -> None:
    with (root / PATH).open("r+") as file:
        file.write("9000000\n")
        file.flush()
        assert tree.integer(PATH) == 9_000_000
        file.truncate(0)
        file.flush()
        assert tree.text(PATH) == ""


def test_a_file_that_vanished_is_absent(tree: SysTree, root: Path) -> None:
    (root / PATH).unlink()
    with pytest.raises(DeviceAbsent, match="symbol_error is not there"):
        tree.integer(PATH)
    (root / PATH).write_text("0")
    assert tree.integer(PATH) == 0


def test_a_file_that_was_replaced_is_read_anew(tree: SysTree, root: Path) -> None:
    other = root / FOLDER / "new"
    other.write_text("77")
    other.replace(root / PATH)
    assert tree.integer(PATH) == 77


def test_a_device_that_vanished_is_absent(tree: SysTree, root: Path) -> None:
    (root / "sys/class/infiniband/mlx5_0").rename(root / "sys/class/infiniband/mlx5_9")
    with pytest.raises(DeviceAbsent):
        tree.integer(PATH)
    assert tree.integer(PATH.replace("mlx5_0", "mlx5_9")) == 12


def test_two_devices_that_swapped_their_names(root: Path) -> None:
    """The counters must be those of the name, not of the device that had it before."""
    netdevs = root / "sys/class/net"
    for name, value in (("eth0", "100"), ("eth1", "200")):
        device = root / f"sys/devices/{name}/statistics"
        device.mkdir(parents=True)
        (device / "rx_bytes").write_text(value)
        netdevs.mkdir(parents=True, exist_ok=True)
        (netdevs / name).symlink_to(f"../../devices/{name}")
    age(root)
    tree = SysTree(root)
    paths = [f"sys/class/net/{name}/statistics/rx_bytes" for name in ("eth0", "eth1")]
    for _ in range(3):
        assert [tree.integer(path) for path in paths] == [100, 200]
    for name, target in (("eth0", "eth1"), ("eth1", "eth0")):
        (netdevs / name).unlink()
        (netdevs / name).symlink_to(f"../../devices/{target}")
    assert [tree.integer(path) for path in paths] == [200, 100]


@pytest.mark.parametrize("number", [errno.ENODEV, errno.ESTALE, errno.EIO])
def test_a_descriptor_that_fails_is_opened_anew(
    tree: SysTree, root: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """SIMULATED: what kernfs answers on a descriptor whose attribute was removed and made again."""
    real = os.pread
    failed: list[int] = []

    def fails_once(fd: int, size: int, offset: int) -> bytes:
        if not failed:
            failed.append(fd)
            raise OSError(number, os.strerror(number))
        return real(fd, size, offset)

    monkeypatch.setattr(os, "pread", fails_once)
    assert tree.integer(PATH) == 12
    assert failed
    assert tree.integer(PATH) == 12


def test_an_unreadable_file_says_so(tree: SysTree, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "pread", refuse)
    (root / PATH).unlink()
    (root / PATH).mkdir()
    with pytest.raises(SourceUnavailable):
        tree.integer(PATH)


def test_a_file_that_has_grown_is_read_whole(tree: SysTree, root: Path) -> None:
    with (root / PATH).open("r+") as file:
        file.write("7" * 10_000)
    assert tree.text(PATH) == "7" * 10_000
    assert tree.text(PATH) == "7" * 10_000
    assert len(tree._kept) == 0


def test_only_sysfs_and_only_what_is_read_again(root: Path) -> None:
    (root / "proc").mkdir()
    (root / "proc/stat").write_text("x")
    tree = SysTree(root)
    tree.text(PATH)
    for _ in range(3):
        tree.text("proc/stat")
    assert len(tree._kept) == 0


def test_no_more_than_allowed(root: Path) -> None:
    tree = SysTree(root, most_kept=3)
    for name in range(10):
        (root / FOLDER / f"c{name}").write_text(str(name))
    age(root)
    for _ in range(3):
        assert [tree.integer(f"{FOLDER}/c{name}") for name in range(10)] == list(range(10))
    assert len(tree._kept) == 3


def test_the_process_keeps_descriptors_for_other_things() -> None:
    assert 0 < fs_kept.room_for_descriptors() <= fs_kept.MOST_KEPT


def test_descriptors_are_closed_when_let_go(tree: SysTree) -> None:
    fd = tree._kept._files[PATH].fd
    os.fstat(fd)
    tree.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
    assert tree.integer(PATH) == 12


def test_paths_that_leave_the_root_are_absent(tree: SysTree) -> None:
    for path in ("sys/../etc/passwd", "sys//x", "sys/\0"):
        for _ in range(3):
            with pytest.raises(DeviceAbsent):
                tree.text(path)


def test_a_folder_that_has_just_changed_is_not_trusted(root: Path) -> None:
    (root / FOLDER / "new").write_text("1")
    os.utime(root / FOLDER)
    tree = SysTree(root)
    for _ in range(2):
        tree.text(PATH)
    assert all(file.folder.settled for file in tree._kept._files.values())
    age(root)
    tree.text(PATH)
    assert len(tree._kept) == 1


def test_not_text(root: Path) -> None:
    (root / PATH).write_bytes(b"\xff\xfe")
    tree = SysTree(root)
    for _ in range(3):
        with pytest.raises(ParseError, match="not text"):
            tree.text(PATH)


def test_readers_and_a_device_that_comes_and_goes(root: Path) -> None:
    """Each reading is a whole value of that file or DeviceAbsent, whatever the others do."""
    tree = SysTree(root)
    paths = [f"{FOLDER}/c{name}" for name in range(20)]
    for name, path in enumerate(paths):
        (root / path).write_text(str(name))
    wrong: list[object] = []
    end = threading.Event()

    def read() -> None:
        while not end.is_set():
            for name, path in enumerate(paths):
                try:
                    value: object = tree.integer(path)
                except DeviceAbsent:
                    continue
                except Exception as cause:
                    value = cause
                if value != name:
                    wrong.append((path, value))

    age(root)
    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    folder, away = root / FOLDER, root / "away"
    end_s = time.monotonic() + 0.5
    while time.monotonic() < end_s:
        folder.rename(away)
        away.rename(folder)
        (folder / "c3").unlink()
        fresh = folder / "fresh"
        fresh.write_text("3")
        fresh.replace(folder / "c3")
    end.set()
    for thread in threads:
        thread.join()
    assert not wrong


def test_real_sysfs_is_read_anew_each_time() -> None:
    path = "sys/class/net/lo/mtu"
    tree = SysTree()
    values = {tree.integer(path) for _ in range(5)}
    assert values == {int(Path("/", path).read_text())}
