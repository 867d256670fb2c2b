"""Live parts of a node folder: read from this machine each time, refused where others could write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from node_kit import small_documents, write_node

from agent.errors import ConfigError, DeviceAbsent, SourceUnavailable
from agent.sources.gpu_reading import NvmlGroup
from agent.sources.host import LiveHost
from agent.sources.node_folder import load_node_folder
from agent.sources.redfish import RedfishClient
from agent.sources.replay import ReplaySources, replay_sources


def _node(folder: Path, live: dict[str, Any], mode: int = 0o755) -> Path:
    documents = small_documents()
    documents["node.yaml"]["live"] = live
    write_node(folder, documents)
    (folder / "root/proc").mkdir(parents=True, exist_ok=True)
    (folder / "root/proc/version").write_text("captured\n")
    (folder / "root/sys/kernel").mkdir(parents=True)
    (folder / "root/sys/kernel/old").write_text("captured\n")
    (folder / "node.yaml").chmod(0o644)
    folder.chmod(mode)
    return folder


@pytest.fixture
def real(tmp_path: Path) -> Path:
    place = tmp_path / "real"
    (place / "sys/class/net/eth0").mkdir(parents=True)
    (place / "sys/class/net/eth0/mtu").write_text("1500\n")
    (place / "sys/class/net/eth0/device").symlink_to("../../../0000:18:00.0")
    (place / "cmdline").write_text("quiet iommu=pt\n")
    return place


def _open(folder: Path) -> ReplaySources:
    return replay_sources(folder, None)


def test_a_live_tree_is_read_anew_and_the_rest_is_the_captured_one(tmp_path: Path, real: Path) -> None:
    live = {"tree": {"sys": str(real / "sys"), "proc/cmdline": str(real / "cmdline")}}
    opened = _open(_node(tmp_path / "node", live))
    tree = opened.sources.tree
    assert opened.sources.simulated
    mtu = "sys/class/net/eth0/mtu"
    assert tree.integer(mtu) == 1500
    (real / mtu).write_text("9000\n")
    assert tree.integer(mtu) == 9000
    replacement = real / "sys/class/net/eth0/.mtu"
    replacement.write_text("4200\n")
    replacement.replace(real / mtu)
    assert tree.data(mtu) == b"4200\n"
    assert tree.text("proc/cmdline") == "quiet iommu=pt"
    assert tree.text("proc/version") == "captured"
    assert tree.names("proc") == ["cmdline", "version"]
    assert tree.names("sys") == ["class"]
    assert tree.link_target("sys/class/net/eth0/device") == "../../../0000:18:00.0"
    assert not tree.exists("sys/kernel/old")
    assert tree.exists("sys") and tree.exists("proc/cmdline") and not tree.exists("proc/cmdline/x")
    with pytest.raises(DeviceAbsent, match=r"^/sys/kernel/old is not there$"):
        tree.text("sys/kernel/old")
    with pytest.raises(DeviceAbsent, match=r"cannot be a path"):
        tree.text("sys/../cmdline")
    opened.close()


def test_a_longer_prefix_wins(tmp_path: Path, real: Path) -> None:
    (real / "other").mkdir()
    (real / "other/mtu").write_text("7\n")
    live = {"tree": {"sys": str(real / "sys"), "sys/class/net/eth0": str(real / "other")}}
    tree = _open(_node(tmp_path / "node", live)).sources.tree
    assert tree.text("sys/class/net/eth0/mtu") == "7"
    assert tree.names("sys/class/net") == ["eth0"]


def test_live_documents_are_read_again_when_they_are_replaced(tmp_path: Path) -> None:
    folder = _node(tmp_path / "node", {"documents": ["nvml", "net"]})
    opened = _open(folder)
    net, nvml = opened.sources.net, opened.sources.nvml
    uuid = nvml.inventory()[0].uuid
    assert uuid is not None
    assert net.link("eth0").mtu_bytes == 9000
    documents = small_documents()
    documents["net.json"]["eth0"]["link"]["mtu_bytes"] = 1500
    documents["nvml.json"]["gpus"][0]["thermal"]["margin_c"] = 7
    _replace(folder / "net.json", documents["net.json"])
    _replace(folder / "nvml.json", documents["nvml.json"])
    assert net.link("eth0").mtu_bytes == 1500
    assert nvml.read(uuid, NvmlGroup.THERMAL).values["margin_c"] == 7
    assert opened.sources.tree.text("proc/version") == "captured"


def test_a_live_document_that_is_garbled_or_gone_is_no_older_one(tmp_path: Path) -> None:
    folder = _node(tmp_path / "node", {"documents": ["net"]})
    net = _open(folder).sources.net
    assert net.link("eth0").mtu_bytes == 9000
    _replace(folder / "net.json", {"eth0": {"link": {"mtu_bytes": "no"}}})
    with pytest.raises(SourceUnavailable, match=r"net\.json"):
        net.link("eth0")
    (folder / "net.json").unlink()
    with pytest.raises(SourceUnavailable, match="a live document"):
        net.link("eth0")
    _replace(folder / "net.json", small_documents()["net.json"])
    assert net.link("eth0").mtu_bytes == 9000


def test_documents_that_are_not_live_stay_as_they_were(tmp_path: Path) -> None:
    folder = _node(tmp_path / "node", {"documents": ["nvml"]})
    net = _open(folder).sources.net
    _replace(folder / "net.json", {})
    assert net.link("eth0").mtu_bytes == 9000


def test_host_parts_and_redfish_are_this_machines_where_they_are_named(tmp_path: Path) -> None:
    opened = _open(_node(tmp_path / "node", {"host": ["disks"], "bmc": True}))
    assert opened.sources.host.disk("/").total_b > 0
    with pytest.raises(SourceUnavailable, match="capture"):
        opened.sources.host.unit("ssh.service")
    assert isinstance(opened.sources.bmc, RedfishClient)
    opened.close()
    assert not isinstance(_open(_node(tmp_path / "plain", {})).sources.host, LiveHost)


@pytest.mark.parametrize(
    ("live", "says"),
    [
        ({"host": ["unit"]}, r"live\.host\.0"),
        ({"documents": ["host"]}, r"live\.documents\.0"),
        ({"bmc": 1}, r"live\.bmc"),
        ({"tree": {"sys": "relative"}}, r"live\.tree\.sys"),
        ({"tree": {"/sys": "/tmp"}}, r"live\.tree: '/sys' is not a path under the root"),
        ({"tree": {"sys": "/nowhere/at all"}}, r"live\.tree\.sys: '/nowhere/at all' is not there"),
        ({"tree": {"sys": "/"}}, r"live\.tree\.sys"),
        ({"tree": {"sys": "/a\0b"}}, r"live\.tree\.sys"),
        ({"other": True}, r"live\.other: this key is unknown"),
        ([], r"live"),
    ],
)
def test_bad_live_parts_are_refused_by_key(tmp_path: Path, live: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        load_node_folder(_node(tmp_path / "node", live))
    assert "node.yaml" in str(caught.value) and "\n" not in str(caught.value)


def test_a_folder_that_others_can_write_has_no_live_parts(tmp_path: Path) -> None:
    folder = _node(tmp_path / "node", {"host": ["disks"]}, mode=0o777)
    with pytest.raises(ConfigError, match="nobody else can write"):
        load_node_folder(folder)
    folder.chmod(0o755)
    (folder / "node.yaml").chmod(0o664)
    with pytest.raises(ConfigError, match="nobody else can write"):
        load_node_folder(folder)
    (folder / "node.yaml").chmod(0o644)
    assert load_node_folder(folder).live.host == ["disks"]


def _replace(path: Path, data: Any) -> None:
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps(data))
    beside.replace(path)
