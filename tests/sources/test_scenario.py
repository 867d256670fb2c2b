"""Scenarios over a capture: values at any time, and every fault one line with file and key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from node_kit import demo_node, write_node, write_scenario

from agent.errors import ConfigError
from agent.sources.node_folder import NodeFolder, load_node_folder
from agent.sources.scenario import load_scenario
from agent.sources.timeline import Timeline

GPU = ("nvml", "gpus", "0")
ETH0 = ("net", "eth0")
COUNTER = "sys/class/infiniband/mlx5_0/ports/1/counters/link_downed"


def timeline(folder: Path, steps: Any) -> Timeline:
    node = load_node_folder(write_node(folder / "node"))
    return Timeline(node, load_scenario(write_scenario(folder, steps)))


def margin(line: Timeline, at_s: float) -> Any:
    return line.value(GPU, at_s)["thermal"]["margin_c"]


def test_set_and_reset(tmp_path: Path) -> None:
    path = "nvml.gpus.0.thermal.margin_c"
    line = timeline(tmp_path, [{"at_s": 2, "set": {path: -4}}, {"at_s": 5, "reset": [path]}])
    assert [margin(line, at_s) for at_s in (0, 1.999, 2, 4.9, 5, 100)] == [40, 40, -4, -4, 40, 40]


def test_unset_is_reset_and_steps_are_ordered_by_time(tmp_path: Path) -> None:
    path = "nvml.gpus.0.thermal.margin_c"
    line = timeline(tmp_path, [{"at_s": 5, "unset": [path]}, {"at_s": 2, "set": {path: 1}}])
    assert [margin(line, at_s) for at_s in (0, 3, 6)] == [40, 1, 40]


def test_ramp_moves_whole_numbers_linearly(tmp_path: Path) -> None:
    line = timeline(tmp_path, [{"at_s": 10, "ramp_s": 4, "set": {"nvml.gpus.0.thermal.margin_c": 0}}])
    assert [margin(line, at_s) for at_s in (9, 10, 11, 12, 14, 99)] == [40, 40, 30, 20, 0, 0]


def test_a_ramp_starts_where_another_was_cut_off(tmp_path: Path) -> None:
    path = "nvml.gpus.0.thermal.margin_c"
    steps = [{"at_s": 0, "ramp_s": 10, "set": {path: 0}}, {"at_s": 5, "ramp_s": 2, "set": {path: 40}}]
    line = timeline(tmp_path, steps)
    assert [margin(line, at_s) for at_s in (4, 5, 6, 7)] == [24, 20, 30, 40]


def test_rates_grow_counters_and_files(tmp_path: Path) -> None:
    steps = [
        {"at_s": 1, "rate": {"net.eth0.ethtool.rx_prio3_pause": 100, COUNTER: 0.5}},
        {"at_s": 5, "rate": {"net.eth0.ethtool.rx_prio3_pause": 0}, "reset": [COUNTER]},
    ]
    line = timeline(tmp_path, steps)
    pauses = [line.value(ETH0, at_s)["ethtool"]["rx_prio3_pause"] for at_s in (0, 1, 2, 5, 50)]
    assert pauses == [5, 5, 105, 405, 405]
    assert [line.value(("files", COUNTER), at_s) for at_s in (0, 3, 4.9, 5)] == ["3", "4", "4", "3"]


def test_whole_groups_lists_and_devices(tmp_path: Path) -> None:
    steps = [
        {"at_s": 1, "set": {"nvml.gpus.0.nvlink.states.1": False}},
        {"at_s": 2, "set": {"nvml.gpus.0.thermal": {"error": "TIMEOUT"}}},
        {"at_s": 3, "set": {"nvml.gpus.0": {"error": "GPU_IS_LOST"}}},
        {"at_s": 4, "set": {"nvml.gpus.0": None, "net.eth0": None}},
        {"at_s": 5, "reset": ["nvml.gpus.0"]},
        {"at_s": 6, "set": {"nvml.system": {"error": "DRIVER_NOT_LOADED"}}},
    ]
    line = timeline(tmp_path, steps)
    assert line.value(GPU, 1)["nvlink"]["states"] == [True, False]
    assert line.value(GPU, 2)["thermal"] == {"error": "TIMEOUT"}
    assert line.value(GPU, 3) == {"error": "GPU_IS_LOST"}
    assert (line.value(GPU, 4), line.value(ETH0, 4)) == (None, None)
    assert line.value(GPU, 5) == line.value(GPU, 0)
    assert line.value(("nvml", "system"), 6) == {"error": "DRIVER_NOT_LOADED"}


def test_an_interface_with_a_dot_in_its_name(tmp_path: Path) -> None:
    line = timeline(tmp_path, [{"at_s": 1, "set": {"net.eth0.7.link.operstate": "down"}}])
    assert line.value(("net", "eth0.7"), 1)["link"]["operstate"] == "down"
    assert line.value(ETH0, 1)["link"]["operstate"] == "up"


def test_values_are_private_copies(tmp_path: Path) -> None:
    line = timeline(tmp_path, [])
    line.value(GPU, 0)["thermal"]["margin_c"] = 7
    assert margin(line, 0) == 40


def step(**what: Any) -> list[dict[str, Any]]:
    return [{"at_s": 1, **what}]


FAULTS: list[tuple[Any, str]] = [
    ("name: x\nsteps: [", "is not YAML"),
    ("steps: []", "name is missing"),
    ("name: x\nsteps: 3", "steps: "),
    ([{"set": {}}], "steps.0.at_s is missing"),
    ([{"at_s": -1}], "steps.0.at_s: "),
    ([{"at_s": "soon"}], "steps.0.at_s: "),
    (step(sett={}), "steps.0.sett: this key is unknown"),
    (step(kmsg=["no level"]), "steps.0.kmsg.0: "),
    (step(engine={"main": "explode"}), "steps.0.engine.main: "),
    (
        step(set={"nvml.gpus.0.thermal.margin": 1}),
        "steps.0.set.nvml.gpus.0.thermal.margin: thermal.margin",
    ),
    (step(set={"nvml.gpus.0.thermal.margin_c": "hot"}), "steps.0.set.nvml.gpus.0.thermal.margin_c: "),
    (step(set={"nvml.gpus.0.thermal.margin_c": 1.5}), "steps.0.set.nvml.gpus.0.thermal.margin_c: "),
    (step(set={"nvml.gpus.0.thermal.margin_c": None}), "steps.0.set.nvml.gpus.0.thermal.margin_c: "),
    (
        step(set={"nvml.gpus.0.nvlink.states.2": False}),
        "steps.0.set.nvml.gpus.0.nvlink.states.2: there is no '2'",
    ),
    (
        step(set={"nvml.gpus.0.thermal.margin_c.x": 1}),
        "steps.0.set.nvml.gpus.0.thermal.margin_c.x: there is no",
    ),
    (step(set={"nvml.gpus.8.thermal.margin_c": 1}), "there is no such path"),
    (step(set={"nvml": {}}), "there is no such path"),
    (step(set={"cpu.temperature": 1}), "there is no such path"),
    (step(set={"net.eth9.link.operstate": "down"}), "no such interface"),
    (step(set={"net.eth0.link.operstate": 7}), "steps.0.set.net.eth0.link.operstate: link.operstate"),
    (step(set={"net.eth0.ethtool.rx_prio3_pauze": 7}), "there is no 'rx_prio3_pauze'"),
    (step(set={"net.eth0.dcb.pfc_on.3": 1}), "steps.0.set.net.eth0.dcb.pfc_on.3: dcb.pfc_on.3"),
    (step(set={"nvml.system": None}), "steps.0.set.nvml.system: "),
    (step(set={COUNTER: 4}), "a file is set under `files`"),
    (step(files={COUNTER: 4}), f"steps.0.files.{COUNTER}: "),
    (step(files={"/sys/x": "1"}), "without a leading slash"),
    (step(files={"sys/../x": "1"}), "not a path under the root"),
    (step(files={"sys/class": "1"}), "is a folder or a link"),
    (step(reset=["nvml.gpus.0.power"]), "steps.0.reset.nvml.gpus.0.power: there is no 'power'"),
    (step(rate={"nvml.gpus.0.nvlink.states.0": 1}), "only a number can move"),
    (step(rate={"sys/class/net/new": 1}), "only a number can move"),
    (step(ramp_s=2, set={"nvml.gpus.0.thermal.margin_c": {"error": "TIMEOUT"}}), "ramp_s needs a number"),
    (
        [
            {"at_s": 1, "set": {"nvml.gpus.0.thermal": {"error": "TIMEOUT"}}},
            {"at_s": 2, "set": {"nvml.gpus.0.thermal.margin_c": 3}},
        ],
        "steps.1.set.nvml.gpus.0.thermal.margin_c: thermal is refused (TIMEOUT) at that time",
    ),
]


@pytest.mark.parametrize(("steps", "says"), FAULTS)
def test_fault_is_one_line_with_file_and_key(tmp_path: Path, steps: Any, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        timeline(tmp_path, steps)
    text = str(caught.value)
    assert text.startswith(str(tmp_path / "scenario.yaml")) and "\n" not in text
    assert says in text


@pytest.fixture(scope="module")
def small_node(tmp_path_factory: pytest.TempPathFactory) -> NodeFolder:
    return load_node_folder(write_node(tmp_path_factory.mktemp("small") / "node"))


PATHS = st.sampled_from(
    [
        "nvml.gpus.0",
        "nvml.gpus.0.thermal",
        "nvml.gpus.0.thermal.margin_c",
        "nvml.gpus.0.nvlink.states.0",
        "nvml.system",
        "nvml.system.device_count",
        "net.eth0",
        "net.eth0.link.operstate",
        "net.eth0.ethtool.rx_prio3_pause",
        "net.eth0.dcb.dscp_to_priority.26",
        "net.eth0.dcb",
        COUNTER,
        "sys/class",
        "sys/new/file",
        "nvml.gpus.0.identity.error",
    ]
)
VALUES = st.sampled_from(
    [
        None,
        True,
        0,
        -4,
        3.5,
        "down",
        "7",
        [],
        {},
        {"error": "TIMEOUT"},
        {"error": "x y"},
        [True, False],
        2**70,
        float("inf"),
    ]
)
STEPS = st.lists(
    st.fixed_dictionaries(
        {"at_s": st.integers(0, 9)},
        optional={
            "set": st.dictionaries(PATHS, VALUES, max_size=2),
            "ramp_s": st.sampled_from([0, 0.5, 3]),
            "rate": st.dictionaries(PATHS, st.sampled_from([0, 1, -2.5, 1e14]), max_size=2),
            "reset": st.lists(PATHS, max_size=2),
            "files": st.dictionaries(PATHS, st.sampled_from([None, "0", "x"]), max_size=2),
        },
    ),
    max_size=5,
)


@settings(max_examples=300)
@given(STEPS, st.lists(st.floats(0, 30), min_size=1, max_size=4))
def test_any_scenario_is_refused_or_has_values_at_all_times(
    small_node: NodeFolder, tmp_path: Path, steps: list[dict[str, Any]], times: list[float]
) -> None:
    try:
        line = Timeline(small_node, load_scenario(write_scenario(tmp_path, steps)))
    except ConfigError as cause:
        assert "\n" not in str(cause)
        return
    for at_s in times:
        for unit in (GPU, ETH0, ("nvml", "system"), ("files", COUNTER), ("files", "sys/new/file")):
            line.value(unit, at_s)


@pytest.mark.parametrize("path", sorted(demo_node().glob("scenarios/*.yaml")), ids=lambda path: path.stem)
def test_committed_scenarios_fit_the_demo_node(path: Path) -> None:
    scenario = load_scenario(path)
    Timeline(load_node_folder(demo_node()), scenario)
    assert scenario.name == path.stem
    assert f"`{path.stem}`" in (demo_node() / "README.md").read_text()
