"""Layers: what wins, what null does, and the facts of the platform layers."""

from __future__ import annotations

from pathlib import Path

import pytest
from profile_cases import GOOD, faults, write

from agent.errors import ConfigError
from agent.node_profile import NodeProfile
from agent.profile_loader import (
    LAYER_FOLDER,
    examine,
    load_profile,
    platforms,
    profile_from_dict,
    profile_hash,
)
from agent.profile_tree import leaves, to_plain
from agent.profile_yaml import read_layer

NVLINK = {
    "b300": (18, 53125, True),
    "gb10": (0, None, False),
    "generic-8gpu": (18, None, True),
    "h20": (18, 26562, True),
    "h200": (18, 26562, True),
}


def test_a_good_file_loads(tmp_path: Path) -> None:
    loaded = load_profile(write(tmp_path, GOOD))
    profile = loaded.profile
    assert (profile.platform, profile.mode, profile.gpus.count) == ("h200", "manage", 8)
    assert profile.driver_version == "580.10", "an unquoted number where text is wanted keeps its spelling"
    assert profile.fabric.ports[0].pci_bus_id == "0000:05:00.0", "no sexagesimal number"
    assert profile.engines["kimi"].gpus == [4, 5, 6, 7]
    assert loaded.layers == ("base", "h200", str(tmp_path / "site.yaml"))
    assert loaded.files == (LAYER_FOLDER / "base.yaml", LAYER_FOLDER / "h200.yaml", tmp_path / "site.yaml")
    assert len(loaded.hash) == 64


def test_higher_layers_win_maps_merge_lists_replace(tmp_path: Path) -> None:
    rack = write(
        tmp_path,
        "platform: b300\nnode: rack\ngpus: {power_limit_w: 900}\nnvlink: {domains: [[0]]}\n",
        "rack.yaml",
    )
    row = write(tmp_path, "node: row\ngpus: {power_limit_w: 950}\n", "row.yaml")
    file = write(tmp_path, "gpus: {model: X}\n")
    profile = load_profile(file, overlays=[rack, row]).profile
    assert (profile.platform, profile.node) == ("b300", "row")
    assert (profile.gpus.power_limit_w, profile.gpus.model, profile.gpus.count) == (950.0, "X", 8)
    assert profile.nvlink.domains == [[0]]
    assert load_profile(file, overlays=[row, rack]).profile.node == "rack", "overlays apply in order"
    own = write(tmp_path, "platform: h200\n", "own.yaml")
    assert load_profile(own, overlays=[rack]).profile.nvlink.speed_mb_s == 26562, "the file's platform wins"


def test_null_takes_back_what_lower_layers_set(tmp_path: Path) -> None:
    low = write(
        tmp_path,
        "gpus: {model: X, power_limit_w: 5}\napi: {port: 1}\n"
        "engines: {a: {gpus: [], port: 2}, b: {gpus: [], port: 3}}\n",
        "low.yaml",
    )
    file = write(tmp_path, "gpus: {model: null}\napi:\nengines: {a: ~}\n")
    profile = load_profile(file, overlays=[low]).profile
    assert (profile.gpus.model, profile.gpus.power_limit_w) == (None, 5.0)
    assert profile.api.port == 9470
    assert list(profile.engines) == ["b"]
    high = write(tmp_path, "gpus: {model: Y}\n", "high.yaml")
    assert load_profile(high, overlays=[low, file]).profile.gpus.model == "Y", (
        "a later layer may set it again"
    )


def test_null_where_there_is_no_default_is_refused_where_it_is_written(tmp_path: Path) -> None:
    (fault,) = faults(write(tmp_path, "gpus:\n  count: null\n"))
    assert "site.yaml:2: gpus.count: is unset (null), but it has no default; write it" in str(fault)


def test_a_map_after_null_starts_afresh(tmp_path: Path) -> None:
    low = write(tmp_path, "api: {host: 127.0.0.1, port: 5}\n", "low.yaml")
    null = write(tmp_path, "api: null\n", "null.yaml")
    file = write(tmp_path, "api: {port: 6}\n")
    api = load_profile(file, overlays=[low, null]).profile.api
    assert (api.host, api.port) == ("0.0.0.0", 6)


def test_a_node_without_gpus_is_a_short_profile() -> None:
    loaded = profile_from_dict({
        "gpus": {"count": 0}, "nvlink": {"links_per_gpu": 0, "fabric": False},
        "engines": {"cpu": {"gpus": [], "port": 8000}},
    })  # fmt: skip
    assert loaded.profile.gpus.count == 0
    assert loaded.profile.fabric.kind == "none"
    assert loaded.profile.engines["cpu"].gpus == []


def test_the_default_is_to_observe_a_generic_node_with_no_engine(tmp_path: Path) -> None:
    profile = load_profile(write(tmp_path, "")).profile
    assert (profile.platform, profile.mode, profile.engines) == ("generic-8gpu", "observe", {})


def test_platforms_and_their_facts() -> None:
    assert platforms() == sorted(NVLINK)
    for name, (links, speed_mb_s, fabric) in NVLINK.items():
        profile = profile_from_dict({"platform": name}).profile
        assert profile.platform == name
        assert profile.gpus.count == (1 if name == "gb10" else 8)
        nvlink = profile.nvlink
        assert (nvlink.links_per_gpu, nvlink.speed_mb_s, nvlink.fabric) == (links, speed_mb_s, fabric)
    assert profile_from_dict({"platform": "h200"}).profile.gpus.model == "NVIDIA H200"
    gb10 = profile_from_dict({"platform": "gb10"}).profile
    assert (gb10.gpus.ecc, gb10.gpus.persistence, gb10.fabric.kind) == (False, False, "none")


@pytest.mark.parametrize("name", ["base", *NVLINK])
def test_shipped_layers_fill_no_free_map_and_explain_their_numbers(name: str) -> None:
    """Rendering cannot take an entry of a free map back, and a number without a source is a guess."""
    path = LAYER_FOLDER / f"{name}.yaml"
    plain = to_plain(read_layer(path, name))
    free = ("engines", "limits", "checks", "pins", "numa_node")
    assert not [leaf for leaf, value in leaves(plain) if set(leaf) & set(free) and value != {}]
    for number in (26562, 53125):
        lines = [line for line in path.read_text().splitlines() if f"speed_mb_s: {number}" in line]
        assert all("#" in line or name == "h20" for line in lines)
    assert path.read_text().count("#") >= 4


def test_the_hash_is_of_the_resolved_profile(tmp_path: Path) -> None:
    first = load_profile(write(tmp_path, GOOD))
    commented = load_profile(write(tmp_path, GOOD.replace("mode:", "# why\nmode:"), "commented.yaml"))
    spelled_out = load_profile(write(tmp_path, GOOD + "api: {port: 9470}\n", "spelled.yaml"))
    other = load_profile(write(tmp_path, GOOD.replace("700", "701"), "other.yaml"))
    assert first.hash == commented.hash == spelled_out.hash == profile_hash(first.profile)
    assert first.hash != other.hash


def test_profile_from_dict_names_all_faults_in_one_line() -> None:
    with pytest.raises(ConfigError) as caught:
        profile_from_dict({"gpus": {"count": "8", "powr": 1}})
    said = str(caught.value)
    assert "gpus.count" in said
    assert "gpus.powr" in said
    assert "\n" not in said


def test_profile_from_dict_takes_a_dumped_profile_back() -> None:
    profile = profile_from_dict({"platform": "h200", "gpus": {"numa_node": {0: 1}}}).profile
    assert profile_from_dict(profile.model_dump()).profile == profile


def test_direct_construction_refuses_contradictions_too() -> None:
    data = profile_from_dict({"engines": {"a": {"gpus": [0], "port": 1}}}).profile.model_dump()
    data["engines"]["b"] = {"gpus": [0], "port": 1}
    with pytest.raises(ValueError, match=r"slot 0 already belongs to engine a.*port 1 is already used"):
        NodeProfile.model_validate(data)


def test_notes_name_what_is_allowed_but_often_not_meant(tmp_path: Path) -> None:
    file = write(tmp_path, "platform: h200\nengines: {a: {gpus: [0, 1], port: 1}}\n")
    notes = examine(file).notes
    assert any("no data ports are listed" in note for note in notes)
    assert any("GPU slots 2, 3, 4, 5, 6, 7 belong to no engine" in note for note in notes)
    (note,) = examine(write(tmp_path, "mode: manage\nfabric: {kind: none}\n")).notes
    assert "there are no engines" in note
    assert examine(write(tmp_path, "")).notes == ()


@pytest.mark.parametrize("mode", ["gate", "manage"])
def test_a_gate_with_an_unproven_network_is_refused(tmp_path: Path, mode: str) -> None:
    (fault,) = faults(write(tmp_path, f"platform: h200\nmode: {mode}\n"))
    assert "data ports are not listed" in str(fault)
    assert "kind: none" in str(fault)
