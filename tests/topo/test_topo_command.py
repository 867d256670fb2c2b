"""`nodegate topo show|write|verify|record`: what is printed, written, and the exit codes."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
from nodes import node_dir

from agent.cli import run_command_line
from agent.errors import ConfigError
from agent.profile_loader import load_profile
from agent.topo.new_file import write_whole

NODE = str(node_dir("h200-roce"))


def _run(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> tuple[str, str]:
    ended = run_command_line(["topo", *words, "--node", NODE])
    out, err = capsys.readouterr()
    assert ended == code, (out, err)
    return out, err


def test_write_then_verify_then_a_change(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "topo.xml"
    out, err = _run(capsys, "write", str(file))
    assert out == f"{file}: written\n"
    assert "SIMULATED" in err
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert [path.name for path in tmp_path.iterdir()] == ["topo.xml"]
    assert _run(capsys, "verify", str(file))[0] == f"{file}: fits the machine\n"

    text = file.read_text()
    file.write_text(text.replace('busid="0000:1b:00.0"', 'busid="0000:1c:00.0"'))
    out, _ = _run(capsys, "verify", str(file), code=1)
    assert f"{file}: gpu0: 0000:1b:00.0 is not in the file" in out
    file.write_text(text.replace("\n  <cpu", "\n\t<cpu", 1))
    out, _ = _run(capsys, "verify", str(file), code=1)
    assert out.startswith(f"NCCL cannot read it: {file}:")
    assert "TAB" in out


def test_a_file_that_cannot_be_read_or_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (
        ("verify", str(tmp_path / "none.xml")),
        ("verify", str(tmp_path)),
        ("write", str(tmp_path)),
        ("write", str(tmp_path / "no" / "folder.xml")),
        ("record", "--write", str(tmp_path / "no" / "folder.yaml")),
    ):
        _, err = _run(capsys, *words, code=3)
        assert err.startswith("nodegate: /"), err
        assert err.count("\n") == 1
    long = tmp_path / "long.xml"
    long.write_bytes(b" " * (1 << 20) + b"<")
    assert "longer than" in _run(capsys, "verify", str(long), code=3)[1]


def test_a_node_whose_gpus_do_not_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scenario = tmp_path / "lost.yaml"
    scenario.write_text(
        "name: lost\ndescription: gpu3 is lost\nsteps:\n"
        '  - {at_s: 0.0, say: lost, set: {"nvml.gpus.3.identity.error": GPU_IS_LOST}}\n'
    )
    file = tmp_path / "topo.xml"
    _, err = _run(capsys, "write", str(file), "--scenario", str(scenario), code=2)
    assert "the topology of this machine cannot be read: NVML answers GPU_IS_LOST" in err
    assert not file.exists()
    _, err = _run(capsys, "show", "--scenario", str(scenario), code=2)
    assert "GPU_IS_LOST" in err


def test_show_for_people_and_programs(capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = _run(capsys, "show")
    line = next(line for line in out.splitlines() if line.startswith("gpu4 "))
    assert line.split()[1:4] == ["0000:9d:00.0", "1", "0000:98:00.0"]
    whole = json.loads(_run(capsys, "show", "--json")[0])
    assert whole["schema"] == 1 and whole["simulated"] is True
    assert len(whole["devices"]) == 16
    assert whole["devices"][0]["behind"] == ["0000:16:00.0"]
    xml, _ = _run(capsys, "show", "--xml")
    assert '<system version="1">' in xml


def test_a_recorded_topology_is_a_layer_of_a_profile(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    printed, _ = _run(capsys, "record")
    layer = tmp_path / "topology.yaml"
    _run(capsys, "record", "--write", str(layer))
    assert layer.read_text() == printed
    assert "SIMULATED" in printed
    loaded = load_profile(node_dir("h200-roce") / "profile.yaml", overlays=[layer]).profile
    assert loaded.topology.expected.gpus[4].numa_node == 1
    assert loaded.topology.expected.nics[7].paths[7] == "PIX"

    wrong = layer.read_text().replace('pci_bus_id: "0000:9d:00.0", numa_node: 1', "numa_node: 0")
    layer.write_text(wrong)
    file = tmp_path / "topo.xml"
    _, err = _run(capsys, "write", str(file), "--overlay", str(layer))
    assert "not as topology.expected has it: gpu4: on NUMA node 1, recorded 0" in err
    out, _ = _run(capsys, "verify", str(file), "--overlay", str(layer), code=1)
    assert "machine and profile: gpu4: on NUMA node 1, recorded 0" in out


def test_an_expected_slot_beyond_the_nodes_own_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layer = tmp_path / "topology.yaml"
    layer.write_text("topology: {expected: {gpus: {8: {numa_node: 0}}}}\n")
    _, err = _run(capsys, "show", "--overlay", str(layer), code=3)
    assert "GPU slot 8 does not exist" in err


def test_an_old_file_stays_when_the_new_one_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "topo.xml"
    file.write_text("old")

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("agent.topo.new_file.os.fsync", full)
    with pytest.raises(ConfigError, match="No space left on device"):
        write_whole(file, "new")
    assert file.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["topo.xml"]


def test_a_device_is_not_replaced_and_a_link_stays_one(tmp_path: Path) -> None:
    pipe, link, file = tmp_path / "pipe", tmp_path / "link.xml", tmp_path / "topo.xml"
    os.mkfifo(pipe)
    with pytest.raises(ConfigError, match="is no plain file"):
        write_whole(pipe, "new")
    assert pipe.is_fifo()
    link.symlink_to(file)
    write_whole(link, "new")
    assert link.is_symlink() and file.read_text() == "new"
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(ConfigError, match="is no plain file"):
        write_whole(loop, "new")
