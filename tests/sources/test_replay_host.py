"""host.json, bmc.json, tree.json and the further parts of net.json: read, changed by scenarios, refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from node_kit import SetClock, bmc_document, host_document, small_documents, write_node, write_scenario

from agent.bmc_profile import RedfishEndpoint
from agent.errors import (
    ConfigError,
    DeviceAbsent,
    NotSupported,
    ParseError,
    SourceError,
    SourceTimeout,
    SourceUnavailable,
)
from agent.sources import ModuleInfo, PauseInfo, RingInfo, Sources
from agent.sources.replay import replay_sources

FM = "nvidia-fabricmanager.service"
PEER = "198.51.100.2:29500"
ENDPOINT = RedfishEndpoint(url="https://bmc.example")
CHASSIS = "/redfish/v1/Chassis"
CONFIG = "sys/bus/pci/devices/0000:18:00.0/config"


def replayed(folder: Path, steps: Any = (), at_s: float = 0.0, **documents: Any) -> Sources:
    given: dict[str, Any] = {"host.json": host_document(), "bmc.json": bmc_document(), **documents}
    made = {**small_documents(), **{name: value for name, value in given.items() if value is not None}}
    clock = SetClock()
    node = write_node(folder / "node", made)
    replay = replay_sources(node, write_scenario(folder, list(steps)), clock=clock)
    replay._stage.started_mono_s = clock.now_s
    clock.now_s += at_s
    return replay.sources


def test_the_host_reads_as_captured(tmp_path: Path) -> None:
    host = replayed(tmp_path).host
    unit = host.unit(FM)
    assert (unit.active_state, unit.restarts) == ("active", 0)
    assert unit.since_mono_s == 5000.0 - 70.0  # captured 70 s after it began
    assert host.unit("nowhere.service").load_state == "not-found"
    assert host.disk("/").free_b == 600
    assert host.mount("/models", "done").marker is True
    assert host.clock_sync().synchronised
    assert host.reach("198.51.100.2", 29500).accepted


def test_what_the_capture_lacks_is_unavailable(tmp_path: Path) -> None:
    sources = replayed(tmp_path / "a", **{"host.json": None, "bmc.json": None})
    partly = replayed(tmp_path / "b", **{"host.json": {"units": {"error": "TIMEOUT"}, "mounts": {}}})
    reads: list[Callable[[], object]] = [
        lambda: sources.host.unit(FM),
        lambda: sources.host.disk("/"),
        lambda: sources.host.mount("/models"),
        sources.host.clock_sync,
        lambda: sources.host.reach("198.51.100.2", 29500),
        lambda: sources.bmc.get("node", ENDPOINT, CHASSIS),
        lambda: partly.host.mount("/models"),
    ]
    for read in reads:
        with pytest.raises(SourceUnavailable):
            read()
    with pytest.raises(SourceTimeout):
        partly.host.unit(FM)


def test_a_marker_that_was_not_captured_is_not_made_up(tmp_path: Path) -> None:
    document = host_document()
    document["mounts"]["/models"]["marker"] = None
    host = replayed(tmp_path, **{"host.json": document}).host
    assert host.mount("/models").answered
    with pytest.raises(SourceUnavailable, match="done"):
        host.mount("/models", "done")


def test_redfish_documents(tmp_path: Path) -> None:
    bmc = replayed(tmp_path).bmc
    assert bmc.get("node", ENDPOINT, "/redfish/v1/Chassis/")["HostName"] == "bmc-rack7"
    refusals: list[tuple[str, str, type[SourceError]]] = [
        ("node", "/redfish/v1/Chassis/1", SourceTimeout),
        ("node", "/redfish/v1/Systems", DeviceAbsent),
        ("cdu-1", "/redfish/v1", SourceUnavailable),
    ]
    for name, path, kind in refusals:
        with pytest.raises(kind):
            bmc.get(name, ENDPOINT, path)


def test_steps_lay_values_over_the_host(tmp_path: Path) -> None:
    steps = [
        {
            "at_s": 1,
            "units": {FM: {"active_state": "failed", "sub_state": "failed"}},
            "disks": {"/": {"free_b": 1}},
            "mounts": {"/models": {"answered": False, "problem": "ESTALE"}},
            "clock": {"synchronised": False},
            "reach": {PEER: {"accepted": False, "problem": "timed out"}},
        },
        {"at_s": 2, "units": {FM: None}, "mounts": {"/models": {"error": "TIMEOUT"}}},
        {"at_s": 3, "reset": [f"units:{FM}", "mounts:/models", "clock:", "disks:/", f"reach:{PEER}"]},
    ]
    host = replayed(tmp_path / "1", steps, 1).host
    assert (host.unit(FM).active_state, host.unit(FM).load_state) == ("failed", "loaded")
    assert (host.disk("/").free_b, host.disk("/").total_b) == (1, 1000)
    assert host.mount("/models").problem == "ESTALE"
    assert not host.clock_sync().synchronised
    assert host.reach("198.51.100.2", 29500).problem == "timed out"
    host = replayed(tmp_path / "2", steps, 2).host
    assert host.unit(FM).load_state == "not-found"
    with pytest.raises(SourceTimeout):
        host.mount("/models")
    host = replayed(tmp_path / "3", steps, 3).host
    assert host.unit(FM).active_state == "active"
    assert host.mount("/models").answered and host.clock_sync().synchronised
    assert host.disk("/").free_b == 600 and host.reach("198.51.100.2", 29500).accepted


def test_steps_change_redfish_documents(tmp_path: Path) -> None:
    steps = [
        {"at_s": 1, "ramp_s": 10, "bmc": {"node": {CHASSIS: {"Temperatures": {0: {"Reading": 50.0}}}}}},
        {"at_s": 20, "bmc": {"node": {"error": "TIMEOUT"}}},
        {"at_s": 30, "reset": ["bmc:node", f"bmc:node:{CHASSIS}"]},
        {"at_s": 40, "bmc": {"node": {CHASSIS: None, "/redfish/v1/Systems": {"PowerState": "On"}}}},
    ]
    at = {at_s: replayed(tmp_path / str(at_s), steps, at_s).bmc for at_s in (6, 20, 30, 40)}
    assert at[6].get("node", ENDPOINT, CHASSIS)["Temperatures"] == [{"Reading": 40.0}]
    assert at[6].get("node", ENDPOINT, CHASSIS)["HostName"] == "bmc-rack7"
    with pytest.raises(SourceTimeout):
        at[20].get("node", ENDPOINT, CHASSIS)
    assert at[30].get("node", ENDPOINT, CHASSIS)["Temperatures"] == [{"Reading": 30.0}]
    with pytest.raises(DeviceAbsent):
        at[40].get("node", ENDPOINT, CHASSIS)
    assert at[40].get("node", ENDPOINT, "/redfish/v1/Systems")["PowerState"] == "On"


def test_a_ramp_goes_on_while_other_keys_change(tmp_path: Path) -> None:
    steps = [
        {"at_s": 0, "ramp_s": 10, "disks": {"/": {"free_b": 100}}},
        {"at_s": 4, "disks": {"/": {"read_only": True}}},
    ]
    disk = replayed(tmp_path, steps, 8).host.disk("/")
    assert (disk.free_b, disk.read_only) == (200, True)


FAULTS: list[tuple[Any, str]] = [
    ({"units": {FM: {"active": "failed"}}}, f"steps.0.units.{FM}: active: this key is unknown"),
    ({"units": {"new.service": {"active_state": "failed"}}}, "load_state is missing"),
    ({"units": {FM: "failed"}}, f"steps.0.units.{FM}: "),
    ({"disks": {"/": {"free_b": -1}}}, "steps.0.disks./: free_b: "),
    ({"clock": {"synchronised": "no"}}, "steps.0.clock: synchronised: "),
    ({"bmc": {"cdu-9": {"/redfish/v1": {}}}}, "there is no such Redfish service"),
    ({"bmc": {"node": {CHASSIS: "hot"}}}, f"steps.0.bmc.node.{CHASSIS}: "),
    ({"bmc": {"node": {CHASSIS: {"Temperatures": {3: {"Reading": 1}}}}}}, "there is no '3'"),
    ({"ramp_s": 2, "mounts": {"/models": {"problem": "x", "latency": 2}}}, "there is no 'latency'"),
    ({"files": {CONFIG: {"hex": "zz"}}}, f"steps.0.files.{CONFIG}: hex: "),
    ({"set": {"net.eth0.driver.firmware": 3}}, "steps.0.set.net.eth0.driver.firmware: "),
]


@pytest.mark.parametrize(("step", "says"), FAULTS)
def test_fault_of_a_step_is_one_line(tmp_path: Path, step: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        replayed(tmp_path, [{"at_s": 1, **step}])
    text = str(caught.value)
    assert text.startswith(str(tmp_path / "scenario.yaml")) and "\n" not in text
    assert says in text


DOCUMENT_FAULTS: list[tuple[str, Any, str]] = [
    ("host.json", [], "host.json: "),
    ("host.json", {"disk": {}}, "host.json: disk: this key is unknown"),
    ("host.json", {"units": {FM: {"load_state": "loaded"}}}, f"host.json: units.{FM}"),
    ("host.json", {"reach": {"nowhere": {"accepted": True, "latency_s": 0}}}, "host.json: "),
    ("bmc.json", {"node": {"/etc/passwd": {}}}, "bmc.json: "),
    ("bmc.json", {"node": {"/redfish/v1": 7}}, "bmc.json: node./redfish/v1: "),
    ("tree.json", {"sys/x": 7}, "tree.json: sys/x: "),
    ("tree.json", {"../x": "7"}, "tree.json: '../x' is not a path under the root"),
    ("tree.json", {"sys/x": {"hex": "0"}}, "tree.json: sys/x.hex: "),
    ("tree.json", {"sys/x": "7", "sys/x/y": "8"}, "tree.json: sys/x/y: lies below the file sys/x"),
    (
        "tree.json",
        {"sys/class/infiniband/mlx5_0/ports/1/counters/link_downed": "3"},
        "tree.json: sys/class/infiniband/mlx5_0/ports/1/counters/link_downed: is also a file",
    ),
]


@pytest.mark.parametrize(("name", "document", "says"), DOCUMENT_FAULTS)
def test_fault_of_a_document_is_one_line(tmp_path: Path, name: str, document: Any, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        replayed(tmp_path, **{name: document})
    text = str(caught.value).removeprefix(f"{tmp_path / 'node'}/")
    assert text.startswith(says) and "\n" not in text


def test_files_of_bytes_and_files_that_cannot_be_read(tmp_path: Path) -> None:
    files = {CONFIG: {"hex": "de10ff00"}, "sys/secret": {"error": "UNAVAILABLE"}, "sys/plain": "42\n"}
    steps = [{"at_s": 1, "files": {CONFIG: {"hex": "00"}, "sys/plain": {"error": "TIMEOUT"}}}]
    tree = replayed(tmp_path / "0", steps, 0, **{"tree.json": files}).tree
    assert tree.data(CONFIG) == bytes.fromhex("de10ff00")
    assert (tree.data("sys/plain"), tree.integer("sys/plain")) == (b"42", 42)
    assert tree.integer("sys/class/infiniband/mlx5_0/ports/1/counters/link_downed") == 3  # from root/
    with pytest.raises(ParseError, match="is not text"):
        tree.text(CONFIG)
    assert tree.exists("sys/secret")
    with pytest.raises(SourceUnavailable):
        tree.text("sys/secret")
    later = replayed(tmp_path / "1", steps, 1, **{"tree.json": files}).tree
    assert later.data(CONFIG) == b"\0"
    with pytest.raises(SourceTimeout):
        later.data("sys/plain")


def test_driver_pause_and_module_of_an_interface(tmp_path: Path) -> None:
    net = small_documents()["net.json"]
    net["eth0"] = net["eth0"] | {
        "driver": {"driver": "mlx5_core", "version": "1", "firmware": "28.1", "bus_info": "0000:18:00.0"},
        "pause": {"autonegotiated": False, "rx": True, "tx": False},
        "ring": {"rx": 1024, "tx": 512, "rx_max": 8192, "tx_max": 8192},
        "module": {
            "kind": "OSFP", "vendor": "V", "part_number": "P", "serial": "S", "rx_power_mw": [1.0, 0.5],
        },
    }  # fmt: skip
    read = replayed(tmp_path / "0", **{"net.json": net}).net
    assert read.driver("eth0").firmware == "28.1"
    assert read.pause("eth0") == PauseInfo(False, True, False)
    assert read.ring("eth0") == RingInfo(1024, 512, 8192, 8192)
    assert read.module("eth0") == ModuleInfo("OSFP", "V", "P", "S", rx_power_mw=(1.0, 0.5))
    for missing in (read.driver, read.pause, read.ring, read.module):
        with pytest.raises(SourceUnavailable, match="MISSING"):
            missing("eth0.7")
    steps = [{"at_s": 1, "set": {"net.eth0.module": {"error": "NOT_SUPPORTED"}}}]
    with pytest.raises(NotSupported):
        replayed(tmp_path / "1", steps, 1, **{"net.json": net}).net.module("eth0")
