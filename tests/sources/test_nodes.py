"""The committed nodes are what their tools make of the raw dumps, so their provenance can be checked."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from nodes import node_dir, profile_path

from agent.checks.registry import load_all
from agent.model import Verdict
from agent.node_profile import NodeProfile
from agent.one_shot import run_pass
from agent.profile_loader import load_profile
from agent.sources.node_folder import load_node_folder
from agent.sources.replay import replay_sources

FILLED_IN = ["b300-roce", "b300-x16", "gb10", "h20-roce", "h200-ib"]
#: By node: the checks that neither pass nor skip there, with their verdict; its README explains each.
EXPECTED: dict[str, dict[str, str]] = {"h200-roce": {}, **{name: {} for name in FILLED_IN}}
TOOLS = Path(__file__).parents[1] / "nodes/tools"


def tool(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(TOOLS))
    try:
        return __import__(name)
    finally:
        sys.modules.pop(name, None)


def tree(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()
    }


def made_by_hand(path: str) -> bool:
    return path.startswith(("raw/", "scenarios/")) or path == "README.md"


def test_captures_are_what_the_converter_makes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool("convert_captures", monkeypatch).main(tmp_path)
    for name in ("h200-x1-capture", "h200-x2-capture"):
        committed = {
            p: t for p, t in tree(node_dir(name)).items() if not made_by_hand(p) and p != "profile.yaml"
        }
        assert tree(tmp_path / name) == committed


def test_demo_node_is_what_its_builder_makes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool("build_demo_node", monkeypatch).main(tmp_path)
    made = tree(tmp_path / "agent/demo_nodes/h200-roce")
    committed = {p: t for p, t in tree(node_dir("h200-roce")).items() if not p.startswith("scenarios/")}
    assert made == committed
    two = (tmp_path / "tests/nodes/h200-roce-two-engines/profile.yaml").read_text()
    assert two == profile_path("h200-roce-two-engines").read_text()


def test_filled_in_nodes_are_what_their_builder_makes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool("build_nodes", monkeypatch).main(tmp_path)
    for name in FILLED_IN:
        committed = {path: text for path, text in tree(node_dir(name)).items() if not made_by_hand(path)}
        assert tree(tmp_path / name) == committed


def profile_of(name: str) -> NodeProfile:
    return load_profile(profile_path(name)).profile


@pytest.mark.parametrize("name", ["h200-roce", "h200-x1-capture", "h200-x2-capture", *FILLED_IN])
def test_node_fits_its_profile(name: str) -> None:
    profile = profile_of(name)
    sources = replay_sources(node_dir(name), None).sources
    inventory = sources.nvml.inventory()
    assert profile.gpus.count == len(inventory)
    assert [pin.uuid for pin in profile.gpus.pins.values()] in ([], [gpu.uuid for gpu in inventory])
    for port in profile.fabric.ports:
        assert sources.tree.link_target(f"sys/class/infiniband/{port.device}/device").endswith(
            str(port.pci_bus_id)
        )
        assert sources.net.link(str(port.netdev)).mtu_bytes == port.mtu_bytes


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_every_check_passes_or_skips_on_a_healthy_node(name: str) -> None:
    profile = load_profile(profile_path(name))
    sources = replay_sources(node_dir(name), None).sources
    report = run_pass(sources, profile, load_all(), phase=None, only=None, node=name, sample_s=0.05)
    others: dict[str, str] = {}
    for result in report.results:
        if result.verdict not in (Verdict.PASS, Verdict.SKIP):
            others.setdefault(result.check, f"{result.verdict}: {result.finding.summary}")
    assert {check: text.partition(":")[0] for check, text in others.items()} == EXPECTED[name], others
    readme = (node_dir(name) / "README.md").read_text()
    assert [check for check in EXPECTED[name] if f"`{check}`" not in readme] == []


@pytest.mark.parametrize("name", FILLED_IN)
def test_filled_in_nodes_say_so(name: str) -> None:
    folder = load_node_folder(node_dir(name))
    assert folder.meta.simulated and folder.meta.filled_in
    readme = (node_dir(name) / "README.md").read_text()
    assert "SIMULATED" in readme and "known, from where" in readme


def test_two_engines_split_the_node() -> None:
    engines = profile_of("h200-roce-two-engines").engines
    assert {name: engine.gpus for name, engine in engines.items()} == {
        "glm": [0, 1, 2, 3],
        "kimi": [4, 5, 6, 7],
    }


def test_demo_readme_and_node_yaml_say_what_is_filled_in() -> None:
    node = node_dir("h200-roce")
    assert "filled in" in (node / "README.md").read_text()
    meta = yaml.safe_load((node / "node.yaml").read_text())
    assert meta["simulated"] is True and meta["filled_in"]
