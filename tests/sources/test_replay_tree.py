"""The replayed tree: links, folders, and files that come and go."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from node_kit import SetClock, small_documents, write_node, write_scenario

from agent.errors import DeviceAbsent, ParseError, SourceUnavailable
from agent.sources import Tree
from agent.sources.replay import replay_sources

PORT = "sys/class/infiniband/mlx5_0/ports/1"


def replayed(folder: Path, steps: Any = (), at_s: float = 0.0, links: dict[str, str] | None = None) -> Tree:
    documents = small_documents()
    documents["links.json"] |= links or {}
    node = write_node(folder / "node", documents)
    for path, text in {
        "sys/bus/pci/devices/0000:18:00.0/numa_node": "1\n",
        "proc/version": "not a number\n",
    }.items():
        (node / "root" / path).parent.mkdir(parents=True, exist_ok=True)
        (node / "root" / path).write_text(text)
    clock = SetClock()
    replay = replay_sources(node, write_scenario(folder, list(steps)), clock=clock)
    replay._stage.started_mono_s = clock.now_s
    clock.now_s += at_s
    return replay.sources.tree


def test_reads(tmp_path: Path) -> None:
    tree = replayed(tmp_path)
    assert tree.integer(f"{PORT}/counters/link_downed") == 3
    assert tree.names("sys/class") == ["infiniband", "net"]
    assert tree.names(PORT) == ["counters"]
    assert tree.exists(PORT) and not tree.exists(f"{PORT}/state")
    with pytest.raises(ParseError, match="/proc/version"):
        tree.integer("proc/version")
    with pytest.raises(SourceUnavailable, match="is a folder"):
        tree.text(PORT)


@pytest.mark.parametrize("path", ["sys/none", "", "../etc", "/etc", f"{PORT}/counters/link_downed/x"])
def test_absent(tmp_path: Path, path: str) -> None:
    tree = replayed(tmp_path)
    for read in (tree.text, tree.names, tree.link_target):
        with pytest.raises(DeviceAbsent):
            read(path)


def test_links(tmp_path: Path) -> None:
    links = {
        "sys/class/net/eth1/device": "../../../bus/pci/devices/0000:18:00.0",
        "sys/class/net/eth2": "/sys/class/net/eth1",
        "sys/a": "b",
        "sys/b": "a",
        "sys/out": "../../..",
    }
    tree = replayed(tmp_path, links=links)
    assert tree.link_target("sys/class/net/eth1/device") == "../../../bus/pci/devices/0000:18:00.0"
    assert tree.integer("sys/class/net/eth1/device/numa_node") == 1
    assert tree.integer("sys/class/net/eth2/device/numa_node") == 1
    assert tree.exists("sys/class/net/eth0/device")  # what it points to was not captured
    for path in ("sys/a/x", "sys/out/etc", "sys/class/net/eth0/device/numa_node"):
        with pytest.raises(DeviceAbsent):
            tree.text(path)


def test_files_change_come_and_go(tmp_path: Path) -> None:
    counter = f"{PORT}/counters/link_downed"
    steps = [
        {"at_s": 1, "files": {counter: "4", "sys/new/folder/file": "x"}},
        {"at_s": 2, "files": {counter: None}},
        {"at_s": 3, "reset": [counter, "sys/new/folder/file"]},
    ]
    now, later, gone, back = (replayed(tmp_path / str(i), steps, i) for i in range(4))
    assert (now.text(counter), later.text(counter), back.text(counter)) == ("3", "4", "3")
    with pytest.raises(DeviceAbsent):
        gone.text(counter)
    assert later.names("sys/new") == ["folder"]
    for tree in (now, back):
        assert not tree.exists("sys/new")
        assert "new" not in tree.names("sys")


def test_a_device_vanishes_with_all_below(tmp_path: Path) -> None:
    steps = [
        {"at_s": 1, "files": {"sys/class/infiniband/mlx5_0": None, "sys/class/net/eth0/device": None}},
        {"at_s": 2, "reset": ["sys/class/infiniband/mlx5_0"]},
    ]
    gone, back = replayed(tmp_path / "1", steps, 1), replayed(tmp_path / "2", steps, 2)
    assert gone.names("sys/class/infiniband") == []
    assert not gone.exists(PORT)
    for read in (gone.text, gone.names, gone.link_target):
        with pytest.raises(DeviceAbsent):
            read(f"{PORT}/counters/link_downed" if read == gone.text else "sys/class/net/eth0/device")
    assert back.names("sys/class/infiniband") == ["mlx5_0"]
    assert back.integer(f"{PORT}/counters/link_downed") == 3


def test_without_root_nothing_can_be_told(tmp_path: Path) -> None:
    folder = tmp_path / "node"
    folder.mkdir()
    for name, document in small_documents().items():
        if name != "links.json":
            (folder / name).write_text(json.dumps(document))
    tree = replay_sources(folder, None).sources.tree
    for read in (tree.text, tree.names, tree.exists):
        with pytest.raises(SourceUnavailable, match="root/"):
            read("proc/cmdline")
