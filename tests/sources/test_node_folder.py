"""Node folders: valid ones load, every fault is one line with file and key."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from node_kit import small_documents, write_node
from nodes import node_dir

from agent.errors import ConfigError, SourceUnavailable
from agent.sources import node_folder as module
from agent.sources.node_folder import load_node_folder
from agent.sources.replay import replay_sources


def refused(folder: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        load_node_folder(folder)
    text = str(caught.value)
    assert "\n" not in text and str(folder) in text
    return text.removeprefix(f"{folder}/")


@pytest.mark.parametrize("name", ["h200-roce", "h200-x1-capture", "h200-x2-capture"])
def test_committed_nodes_load(name: str) -> None:
    folder = load_node_folder(node_dir(name))
    assert folder.meta.driver == "580.159.04"
    assert folder.profile is not None


def test_small_node(tmp_path: Path) -> None:
    folder = load_node_folder(write_node(tmp_path / "n"))
    assert folder.meta.boot_id == "b-1"
    assert folder.files == {"sys/class/infiniband/mlx5_0/ports/1/counters/link_downed": "3"}
    assert folder.kmsg is not None and folder.kmsg[0].text == "NVRM: x"
    assert folder.scenarios == {} and folder.profile is None


def test_parts_that_were_not_captured_are_none(tmp_path: Path) -> None:
    documents = small_documents()
    del documents["net.json"], documents["links.json"]
    folder = load_node_folder(write_node(tmp_path / "n", documents, kmsg=None))
    assert (folder.net, folder.kmsg, folder.links) == (None, None, {})


def change(documents: dict[str, Any], path: str, value: Any) -> None:
    """Set a value; `-` deletes."""
    file, _, keys = path.partition(":")
    at: Any = documents
    parts = [file, *keys.split("/")] if keys else [file]
    for part in parts[:-1]:
        at = at[int(part) if isinstance(at, list) else part]
    last: Any = int(parts[-1]) if isinstance(at, list) else parts[-1]
    if value == "-":
        del at[last]
    else:
        at[last] = value


FAULTS: list[tuple[str, Any, str]] = [
    ("node.yaml", "-", "node.yaml: there is no such file"),
    ("node.yaml", "[1, 2]", "node.yaml: should be keys"),
    ("node.yaml:schema", 2, "node.yaml: schema: input should be 1"),
    ("node.yaml:boot_id", "-", "node.yaml: boot_id is missing"),
    ("node.yaml:captured_s", "yesterday", "node.yaml: captured_s: "),
    ("node.yaml:simulated", "yes please", "node.yaml: simulated: "),
    ("node.yaml:color", "red", "node.yaml: color: this key is unknown"),
    ("nvml.json", "-", "nvml.json: there is no such file"),
    ("nvml.json", "{]", "nvml.json:1: is not JSON"),
    ("nvml.json:gpus", {}, "nvml.json: gpus: "),
    ("nvml.json:system/device_count", "8", "nvml.json: system.device_count: "),
    ("nvml.json:gpus/0/thermal/margin_c", "cold", "nvml.json: gpus.0.thermal.margin_c: input should"),
    ("nvml.json:gpus/0/thermal/margin_c", True, "nvml.json: gpus.0.thermal.margin_c: "),
    ("nvml.json:gpus/0/thermal/margin_c", 10**30, "nvml.json: gpus.0.thermal.margin_c: "),
    ("nvml.json:gpus/0/thermal/marginc", 4, "nvml.json: gpus.0.thermal.marginc: this key is unknown"),
    ("nvml.json:gpus/0/thermal/slowdown_c/error", "no way", "nvml.json: gpus.0.thermal.slowdown_c.error: "),
    ("nvml.json:gpus/0/nvlink/states/1", "up", "nvml.json: gpus.0.nvlink.states.1: "),
    ("nvml.json:gpus/0/identity/pci_bus_id", "slot 3", "nvml.json: gpus.0.identity.pci_bus_id: "),
    ("nvml.json:gpus/0/identity/uuid", "-", "nvml.json: gpus.0.identity.uuid is missing"),
    ("nvml.json:gpus/0/cooling", {}, "nvml.json: gpus.0.cooling: this key is unknown"),
    ("net.json:eth0/link/mtu_bytes", -1, "net.json: eth0.link.mtu_bytes: "),
    ("net.json:eth0/dcb/pfc_on", [True], "net.json: eth0.dcb.pfc_on: "),
    ("net.json:eth0/dcb/dscp_to_priority", {"99": 3}, "net.json: eth0.dcb.dscp_to_priority.99: "),
    ("net.json:eth0/ethtool/rx_prio3_pause", 1.5, "net.json: eth0.ethtool.rx_prio3_pause: "),
    ("net.json:a/b", {"error": "ABSENT"}, "net.json: "),
    ("links.json", [1], "links.json: "),
    ("links.json:../x", "y", "links.json: '../x' is not a path under the root"),
    ("links.json:sys/x", "", "links.json: sys/x: "),
]  # fmt: skip


@pytest.mark.parametrize(("path", "value", "says"), FAULTS)
def test_fault_is_one_line_with_file_and_key(tmp_path: Path, path: str, value: Any, says: str) -> None:
    documents = small_documents()
    if path == "net.json:a/b":
        documents["net.json"]["a/b"] = value
    elif path.startswith("links.json:"):
        documents["links.json"][path.partition(":")[2]] = value
    else:
        change(documents, path, value)
    assert refused(write_node(tmp_path / "n", documents)).startswith(says)


def test_same_uuid_twice(tmp_path: Path) -> None:
    documents = small_documents()
    documents["nvml.json"]["gpus"] *= 2
    assert refused(write_node(tmp_path / "n", documents)).startswith(
        "nvml.json: gpus.1.identity.uuid: is also"
    )


def test_kernel_log_line(tmp_path: Path) -> None:
    folder = write_node(tmp_path / "n", kmsg="6,1,1,-;ok\n SUBSYSTEM=pci\nnonsense\n")
    assert refused(folder).startswith("kmsg.txt:3: 'nonsense' is not a kernel log record")


def test_no_folder(tmp_path: Path) -> None:
    for path in (tmp_path / "none", Path("a\0b")):
        with pytest.raises(ConfigError, match="is not a folder"):
            load_node_folder(path)


def test_symbolic_links_are_refused(tmp_path: Path) -> None:
    folder = write_node(tmp_path / "n")
    (folder / "root/secret").symlink_to("/etc/shadow")
    assert refused(folder).startswith("root/secret: symbolic links are not allowed")


def test_a_link_where_a_file_is(tmp_path: Path) -> None:
    documents = small_documents()
    documents["links.json"] = {"sys/class/infiniband/mlx5_0/ports/1/counters/link_downed": "x"}
    assert "is also a file" in refused(write_node(tmp_path / "n", documents))


def test_binary_file_under_root(tmp_path: Path) -> None:
    folder = write_node(tmp_path / "n")
    (folder / "root/vpd").write_bytes(b"\xff\x00")
    assert refused(folder).startswith("root/vpd: is not UTF-8")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["error", "gpus", "identity", "thermal", "margin_c", "link", "x"]), inner
        )
    ),
    max_leaves=6,
)


@settings(max_examples=100)
@given(
    st.sampled_from(["nvml.json", "net.json", "links.json", "node.yaml", "nvml.json:gpus/0",
                     "nvml.json:system", "nvml.json:gpus/0/thermal", "net.json:eth0", "net.json:eth0/dcb"]),
    JSON,
)  # fmt: skip
def test_any_document_loads_or_is_refused(tmp_path: Path, path: str, value: Any) -> None:
    documents = small_documents()
    change(documents, path, None if value == "-" else value)
    if isinstance(documents.get(path), str):
        documents[path] = json.dumps(documents[path])
    try:
        load_node_folder(write_node(tmp_path / "n", documents))
    except ConfigError as cause:
        assert "\n" not in str(cause)


def test_figures_of_measured_tests(tmp_path: Path) -> None:
    documents = small_documents()
    documents["measured.json"] = {"nccl.all_reduce": {"bus_gb_s": 328.0}}
    node = write_node(tmp_path / "n", documents)
    assert replay_sources(node, None).sources.workloads.recorded("nccl.all_reduce") == {"bus_gb_s": 328.0}
    with pytest.raises(SourceUnavailable, match=r"records nothing of load.gpu \(measured.json\)"):
        replay_sources(node, None).sources.workloads.recorded("load.gpu")
    (node / "measured.json").write_text('{"nccl.all_reduce": {"bus_gb_s": "fast"}}')
    assert refused(node).startswith("measured.json: nccl.all_reduce.bus_gb_s: ")
    (node / "measured.json").write_text('{"nccl.all_reduce": {"bus_gb_s": -1}}')
    assert refused(node).startswith("measured.json: nccl.all_reduce.bus_gb_s: ")


@pytest.mark.parametrize("part", ["root", "node.yaml", "nvml.json", "net.json", "kmsg.txt", "links.json"])
def test_parts_that_lie_elsewhere_are_refused(tmp_path: Path, part: str) -> None:
    folder = write_node(tmp_path / "n")
    (folder / part).rename(tmp_path / "elsewhere")
    (folder / part).symlink_to(tmp_path / "elsewhere")
    assert refused(folder) == f"{part}: is a symbolic link; a capture must hold its own files"


def test_a_root_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_node(tmp_path / "n")
    (folder / "root" / "/".join("d" * 100)).mkdir(parents=True)
    assert refused(folder) == "root: holds folders more than 64 deep"
    folder = write_node(tmp_path / "m")
    monkeypatch.setattr(module, "_TOTAL_LIMIT_B", 100)
    (folder / "root/long").write_text("x" * 200)
    assert refused(folder) == "root: holds more than 100 bytes"


def test_a_folder_that_cannot_be_entered_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_node(tmp_path / "n")

    def denied(_path: Path) -> bool:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "is_symlink", denied)
    with pytest.raises(ConfigError, match="n: cannot read it: Permission denied"):
        load_node_folder(folder)
