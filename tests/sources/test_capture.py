"""Captures: what is recorded replays with the same readings; nothing of value is overwritten."""

from __future__ import annotations

import dataclasses
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from node_kit import UUID, SetClock, demo_node, small_documents, write_node, write_scenario
from nodes import node_dir

from agent.cli import run_command_line
from agent.errors import (
    ConfigError,
    DeviceAbsent,
    DeviceLost,
    NotSupported,
    ParseError,
    SourceError,
    SourceTimeout,
    SourceUnavailable,
)
from agent.profile_loader import load_profile
from agent.sources import Sources
from agent.sources import capture as recorder
from agent.sources.fs import SysTree
from agent.sources.gpu_reading import GpuReading, NvmlGroup
from agent.sources.node_folder import load_node_folder
from agent.sources.refusals import refusal, source_error
from agent.sources.replay import replay_sources


def readings(sources: Sources) -> dict[str, Any]:
    """Everything that a check can see of GPUs, interfaces and files, errors by their kind."""

    def seen(read: Any, *arguments: Any) -> Any:
        try:
            value = read(*arguments)
        except SourceError as cause:
            return type(cause).__name__
        return value.values if isinstance(value, GpuReading) else value

    found: dict[str, Any] = {"system": seen(sources.nvml.system), "inventory": seen(sources.nvml.inventory)}
    for gpu in sources.nvml.inventory() if not isinstance(found["inventory"], str) else ():
        for group in NvmlGroup:
            found[f"{gpu.uuid} {group}"] = seen(sources.nvml.read, gpu.uuid, group)
    for name in (f"eth{i}" for i in range(9)):
        net = sources.net
        for read in (net.link, net.ethtool_stats, net.dcb, net.driver, net.pause, net.ring, net.module):
            found[f"{name} {read.__name__}"] = seen(read, name)
    return found


def again(node: Path, target: Path, scenario: Path | None = None) -> tuple[Sources, Sources]:
    """Sources of a node, and of a capture of it."""
    original = replay_sources(node, scenario).sources
    file = node / "profile.yaml"
    profile = load_profile(file).profile if file.is_file() else None
    recorder.write(recorder.record(original, profile=profile), target)
    return original, replay_sources(target, None).sources


@pytest.mark.parametrize(
    "name", ["h200-roce", "h200-x1-capture", "h200-x2-capture", "b300-roce", "h20-roce", "gb10", "h200-ib"]
)
def test_a_capture_of_a_replayed_node_reads_the_same(tmp_path: Path, name: str) -> None:
    original, copy = again(node_dir(name), tmp_path / "copy")
    assert readings(copy) == readings(original)
    before, after = load_node_folder(node_dir(name)), load_node_folder(tmp_path / "copy")
    assert after.files == before.files
    assert after.links == before.links
    assert (after.kmsg is None) == (before.kmsg is None)
    if before.kmsg is not None and after.kmsg is not None:
        ago_s = [before.meta.captured_mono_s - record.mono_s for record in before.kmsg]
        assert [after.meta.captured_mono_s - record.mono_s for record in after.kmsg] == pytest.approx(
            ago_s, abs=60
        )
        assert [record.text for record in after.kmsg] == [record.text for record in before.kmsg]
    assert after.meta.boot_id == before.meta.boot_id
    assert after.bmc == before.bmc
    if before.host is not None:
        assert without_times(after.host) == without_times(before.host)


def without_times(host: Any) -> Any:
    """host.json less the moments at which units began: another clock tells them otherwise."""
    units = {name: {**unit, "since_mono_s": None} for name, unit in host["units"].items()}
    return {**host, "units": units}


def test_faults_are_captured_as_the_same_faults(tmp_path: Path) -> None:
    changes: dict[str, Any] = {
        "nvml.gpus.1": {"error": "GPU_IS_LOST"},
        "nvml.gpus.2.thermal": {"error": "TIMEOUT"},
        "nvml.gpus.3.power.event_reasons": {"error": "NOT_SUPPORTED"},
        "nvml.gpus.4": None,
        "net.eth1.dcb": {"error": "NOT_SUPPORTED"},
        "net.eth2": {"error": "ABSENT"},
    }
    files = {"sys/class/infiniband/mlx5_3": None}
    scenario = write_scenario(tmp_path, [{"at_s": 0, "set": changes, "files": files}])
    original, copy = again(demo_node(), tmp_path / "copy", scenario)
    assert readings(copy) == readings(original)
    assert "mlx5_3" not in copy.tree.names("sys/class/infiniband")


def test_no_nvml_and_no_kernel_log_are_said(tmp_path: Path) -> None:
    documents = small_documents()
    documents["nvml.json"] = {"system": {"error": "LIBRARY_NOT_FOUND"}, "gpus": []}
    node = write_node(tmp_path / "node", documents, kmsg=None)
    _, copy = again(node, tmp_path / "copy")
    with pytest.raises(SourceError):
        copy.nvml.system()
    said = load_node_folder(tmp_path / "copy").meta.not_captured
    assert [line.split(":")[0] for line in said] == ["nvml.json", "kmsg.txt"]


def test_log_from_before_this_boot_keeps_its_distances(tmp_path: Path) -> None:
    clock = SetClock(mono_s=5.0)  # booted 5 s ago, and the record was 10 s before the capture
    original = replay_sources(write_node(tmp_path / "node"), None, clock=clock).sources
    assert original.kmsg.records()[0].mono_s == -5.0
    recorder.write(recorder.record(original), tmp_path / "copy")
    copy = load_node_folder(tmp_path / "copy")
    assert copy.kmsg is not None
    assert copy.meta.captured_mono_s - copy.kmsg[0].mono_s == pytest.approx(10.0)


class LiveLoopback:
    """Files under a made root, with the real loopback's answers."""

    def sources(self, root: Path) -> Sources:
        sources = replay_sources(demo_node(), None).sources
        return dataclasses.replace(sources, tree=SysTree(root), simulated=False)


def test_live_files_with_their_refusals(tmp_path: Path) -> None:
    root = tmp_path / "root"
    for path, text in {
        "proc/sys/kernel/hostname": "real\n",
        "proc/cpuinfo": "processor\t: 0\nmodel\t: 1\n\nprocessor\t: 1\nmodel\t: 1\n",
        "sys/devices/pci0000:15/0000:18:00.0/class": "0x020000\n",
        "sys/devices/pci0000:15/0000:18:00.0/numa_node": "0\n",
        "sys/devices/pci0000:15/0000:00:1f.0/class": "0x060100\n",
        "sys/devices/virtual/net/veth0/mtu": "1500\n",
        "sys/devices/pci0000:15/0000:18:00.0/net/eth0/mtu": "9000\n",
        "dev/nvidia0": "must not be read",
        "dev/nvidia-uvm": "",
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    (root / "sys/devices/pci0000:15/0000:18:00.0/net/eth0/device").symlink_to("../../../0000:18:00.0")
    for folder, name, target in (
        ("sys/bus/pci/devices", "0000:18:00.0", "../../../devices/pci0000:15/0000:18:00.0"),
        ("sys/bus/pci/devices", "0000:00:1f.0", "../../../devices/pci0000:15/0000:00:1f.0"),
        ("sys/class/net", "eth0", "../../devices/pci0000:15/0000:18:00.0/net/eth0"),
        ("sys/class/net", "veth0", "../../devices/virtual/net/veth0"),
    ):
        (root / folder).mkdir(parents=True, exist_ok=True)
        (root / folder / name).symlink_to(target)
    recording = recorder.record(LiveLoopback().sources(root))
    recorder.write(recording, tmp_path / "copy")
    copy = load_node_folder(tmp_path / "copy")
    assert copy.files == {
        "proc/sys/kernel/hostname": "real",
        "proc/cpuinfo": "processor\t: 0\nmodel\t: 1",
        "sys/bus/pci/devices/0000:18:00.0/class": "0x020000",
        "sys/bus/pci/devices/0000:18:00.0/numa_node": "0",
        "sys/class/net/eth0/mtu": "9000",
        "sys/class/net/eth0/device/numa_node": "0",
        "dev/nvidia0": "",
    }
    assert copy.links["sys/class/net/eth0/device"] == "../../../0000:18:00.0"
    assert copy.links["sys/bus/pci/devices/0000:18:00.0"].startswith("../../../devices/")
    assert copy.meta.name == "real"
    assert list(copy.net or {}) == ["eth0"]
    times = copy.nvml["gpus"][0]["call_us"]
    assert set(times) == {group.value for group in NvmlGroup} and all(
        time_us >= 0 for time_us in times.values()
    )
    tree = replay_sources(tmp_path / "copy", None).sources.tree
    assert tree.integer("sys/class/net/eth0/device/numa_node") == 0


def small_recording(tmp_path: Path) -> recorder.Recording:
    return recorder.record(replay_sources(write_node(tmp_path / "node"), None).sources)


@pytest.mark.parametrize("stranger", ["thesis.txt", "node.yaml/and/thesis.txt"])
def test_other_folders_are_never_touched(tmp_path: Path, stranger: str) -> None:
    target = tmp_path / "target"
    target.mkdir()
    for name in stranger.split("/and/"):
        (target / name).write_text("precious")
    with pytest.raises(ConfigError, match="not an earlier capture"):
        recorder.write(small_recording(tmp_path), target)
    assert sorted(path.name for path in target.iterdir()) == sorted(stranger.split("/and/"))


def test_files_links_and_impossible_names_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "dangling").symlink_to(tmp_path / "none")
    for name in ("file", "link", "dangling", "a\0b", "n" * 300, "file/below"):
        with pytest.raises(ConfigError) as caught:
            recorder.write(small_recording(tmp_path), tmp_path / name)
        assert "\n" not in str(caught.value)
    assert (tmp_path / "file").read_text() == "precious"


def test_an_earlier_capture_is_replaced_but_what_people_added_stays(tmp_path: Path) -> None:
    target = tmp_path / "capture"
    target.mkdir()
    recording = small_recording(tmp_path)
    recorder.write(recording, target, "node: first\n")
    (target / "scenarios").mkdir()
    (target / "scenarios/mine.yaml").write_text("name: mine\nsteps: []\n")
    (target / "root").mkdir()
    (target / "root/old").write_text("x")
    recording.kmsg = ["6,7,1,-;NVRM: second"]
    recorder.write(recording, target)
    folder = load_node_folder(target)
    assert folder.kmsg is not None and folder.kmsg[0].text == "NVRM: second"
    assert "old" not in (folder.files or {})
    assert (target / "profile.yaml").read_text() == "node: first\n"
    assert list(folder.scenarios) == ["mine"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["capture", "node"]


def test_a_capture_that_cannot_be_replayed_is_not_written(tmp_path: Path) -> None:
    recording = small_recording(tmp_path)
    recorder.write(recording, tmp_path / "capture")
    recording.nvml["gpus"][0]["thermal"]["margin_c"] = "garbage"
    with pytest.raises(ConfigError, match="margin_c"):
        recorder.write(recording, tmp_path / "capture")
    assert load_node_folder(tmp_path / "capture").nvml["gpus"][0]["thermal"]["margin_c"] == 40
    assert sorted(path.name for path in tmp_path.iterdir()) == ["capture", "node"]


def test_a_failed_swap_puts_the_old_capture_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recording = small_recording(tmp_path)
    recorder.write(recording, tmp_path / "capture")
    rename = Path.rename

    def failing(self: Path, target: Path) -> Path:
        if self.name == "new":
            raise OSError(28, "No space left on device")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(ConfigError, match="No space left"):
        recorder.write(recording, tmp_path / "capture")
    monkeypatch.undo()
    assert load_node_folder(tmp_path / "capture").meta.name == "node"


def command(*words: str) -> int:
    return run_command_line(["capture", *words])


def test_command_captures_a_node(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(str(tmp_path / "a"), "--node", str(demo_node())) == 0
    out = capsys.readouterr().out
    assert "SIMULATED" in out
    assert "8 GPUs, 8 network interfaces" in out
    folder = load_node_folder(tmp_path / "a")
    assert (
        folder.profile is not None
        and folder.profile.read_text() == (demo_node() / "profile.yaml").read_text()
    )
    assert (folder.meta.simulated, folder.meta.platform, folder.meta.name) == (True, "h200", "h200-roce")
    assert command(str(tmp_path / "a"), "--node", str(tmp_path / "a")) == 0


def test_command_captures_the_scenario_at_its_start(tmp_path: Path) -> None:
    scenario = write_scenario(tmp_path, [{"at_s": 0, "set": {"nvml.gpus.0.thermal.margin_c": 2}}])
    assert command(str(tmp_path / "a"), "--node", str(demo_node()), "--scenario", str(scenario)) == 0
    assert json.loads((tmp_path / "a/nvml.json").read_text())["gpus"][0]["thermal"]["margin_c"] == 2


def test_command_captures_this_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(str(tmp_path / "a"), "--redact") == 0
    assert "SIMULATED" not in capsys.readouterr().out
    folder = load_node_folder(tmp_path / "a")
    assert folder.meta.redacted and not folder.meta.simulated
    real = SysTree().text("proc/sys/kernel/random/boot_id")
    assert folder.meta.boot_id != real
    assert all(real not in text for text in (folder.files or {}).values())
    assert threading.active_count() < 50


def test_command_takes_this_machines_profile_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    profile = tmp_path / "etc/profile.yaml"
    monkeypatch.setattr("agent.commands.DEFAULT_PROFILE", profile)
    assert command(str(tmp_path / "a")) == 0
    assert "not captured: profile.yaml: no profile; name one with --profile FILE" in capsys.readouterr().out
    assert load_node_folder(tmp_path / "a").profile is None
    profile.parent.mkdir()
    profile.write_text(f"node: rack7\ngpus: {{pins: {{0: {{uuid: {UUID}}}}}}}\n")
    assert command(str(tmp_path / "a")) == 0
    assert "profile.yaml" not in capsys.readouterr().out
    assert (tmp_path / "a/profile.yaml").read_text() == profile.read_text()
    assert command(str(tmp_path / "b"), "--redact") == 0
    redacted = (tmp_path / "b/profile.yaml").read_text()
    assert UUID not in redacted and "rack7" not in redacted
    assert command(str(tmp_path / "c"), "--node", str(demo_node())) == 0
    assert (tmp_path / "c/profile.yaml").read_text() == (demo_node() / "profile.yaml").read_text()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "DIR"),
        (["out", "--scenario", "x.yaml"], "--node"),
        (["out", "--node", "none"], "is not a folder"),
        (["out", "--node", str(demo_node()), "--scenario", "none.yaml"], "no such file"),
        (["out", "--node", str(demo_node()), "--profile", "none.yaml"], "cannot read the profile"),
        (["out", "--frobnicate"], "--frobnicate"),
    ],
)
def test_command_refuses_bad_input(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    says: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command(*words) == 3
    error = capsys.readouterr().err
    assert says in error and len(error.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_help_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert command("--help") == 0
    assert "--redact" in capsys.readouterr().out


def test_refusal_names_cover_every_kind() -> None:
    assert refusal(NotSupported("x")) == {"error": "NOT_SUPPORTED"}
    assert refusal(SourceError("x")) == {"error": "UNAVAILABLE"}
    for kind in (NotSupported, DeviceLost, DeviceAbsent, SourceTimeout, ParseError, SourceUnavailable):
        assert type(source_error(refusal(kind("x"))["error"], "it")) is kind
