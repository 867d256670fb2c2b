"""A rendered profile loads back to the same profile, and says where each value came from."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from profile_cases import GOOD, relaxed, site_profiles, texts, write

from agent.checks import registry
from agent.model import ServingClass
from agent.profile_loader import LoadedProfile, examine, load_profile, platforms, profile_from_dict
from agent.profile_render import differences, flow, render
from agent.profile_tree import Scalar
from agent.profile_yaml import parse_layer

#: Examples where each writes and reads a whole profile; a local run may look further.
_WHOLE = int(os.environ.get("NODEGATE_FUZZ_EXAMPLES", "30"))


def back(loaded: LoadedProfile, folder: Path) -> LoadedProfile:
    return load_profile(write(folder, render(loaded), "rendered.yaml"))


@pytest.mark.parametrize("name", platforms())
def test_every_platform_renders_back_to_itself(tmp_path: Path, name: str) -> None:
    loaded = profile_from_dict({"platform": name})
    assert back(loaded, tmp_path).hash == loaded.hash


@settings(relaxed, max_examples=_WHOLE)
@given(site_profiles())
def test_render_and_load_are_identity(tmp_path_factory: pytest.TempPathFactory, data: dict[str, Any]) -> None:
    loaded = profile_from_dict(data)
    again = back(loaded, tmp_path_factory.getbasetemp())
    assert again.profile == loaded.profile
    assert again.hash == loaded.hash


class AnyLimits(registry.Limits):
    a: Any = 0
    b: Any = 0
    c: Any = 0
    d: Any = 0
    e: Any = 0


_values = st.recursive(
    st.booleans() | st.integers(-(10**17), 10**17) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, min_size=1, max_size=3),
    max_leaves=6,
)


@settings(relaxed, max_examples=_WHOLE)
@given(values=st.lists(_values, min_size=5, max_size=5))
def test_render_and_load_are_identity_for_any_limits(
    tmp_path_factory: pytest.TempPathFactory, values: list[Any]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "REGISTRY", {})
        registry.check("x.any", title="", source="", serving_class=ServingClass.INFO, limits=AnyLimits)(
            lambda sources, profile, limits: []
        )
        patch.setattr(registry, "load_all", lambda: dict(registry.REGISTRY))
        loaded = profile_from_dict({"limits": {"x.any": dict(zip("abcde", values, strict=True))}})
        assert back(loaded, tmp_path_factory.getbasetemp()).hash == loaded.hash


@relaxed
@given(texts)
def test_text_reads_back_by_our_loader_and_by_other_yaml_readers(text: str) -> None:
    line = f"k: {flow(text)}\n"
    node = parse_layer(line, "f", "f").entries["k"]
    assert isinstance(node, Scalar)
    assert node.value == text
    assert yaml.safe_load(line) == {"k": text}, "YAML 1.1 readers such as Ansible see the same"


@relaxed
@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**17), 10**17) | st.booleans())
def test_numbers_read_back_by_our_loader_and_by_other_yaml_readers(value: float) -> None:
    line = f"k: {flow(value)}\n"
    node = parse_layer(line, "f", "f").entries["k"]
    assert isinstance(node, Scalar)
    assert (type(node.value), node.value) == (type(value), value)
    assert yaml.safe_load(line) == {"k": value}


def test_each_leaf_names_its_layer_and_line(tmp_path: Path) -> None:
    overlay = write(tmp_path, "node: n1\napi: {host: null}\n", "rack.yaml")
    file = write(tmp_path, GOOD)
    examined = examine(file, overlays=[overlay])
    assert examined.loaded is not None
    lines = [" ".join(line.split()) for line in render(examined.loaded, examined.tree).splitlines()]
    assert lines[0] == f"# layers: base <- h200 <- {overlay} <- {file}"
    assert lines[1] == f"# hash: {examined.loaded.hash}"
    for expected in (
        f"node: n1 # {overlay}:1",
        f"platform: h200 # {file}:1",
        f'driver_version: "580.10" # {file}:3',
        f"power_limit_w: 700.0 # {file}:5",
        f'host: "0.0.0.0" # default, unset by {overlay}:2',
        f"ports: # {file}:7",
        "restart_after: 6 # default",
    ):
        assert expected in lines
    assert any(line.startswith("speed_mb_s: 26562 # h200:") for line in lines)
    assert any(line.startswith("max_age_s: 5.0 # base:") for line in lines)
    plain = render(examined.loaded)
    assert " # " not in plain
    assert yaml.safe_load(plain) == yaml.safe_load(render(examined.loaded, examined.tree))


def test_differences_are_the_leaves_that_differ() -> None:
    port = {"device": "a", "rate_gbps": 400}
    old = profile_from_dict({"gpus": {"power_limit_w": 700}, "fabric": {"ports": [port]}}).profile
    new = profile_from_dict({
        "gpus": {"count": 4, "power_limit_w": 700.0}, "fabric": {"ports": [{**port, "rate_gbps": 200}]},
        "engines": {"a": {"gpus": [0, 1], "port": 1}},
    }).profile  # fmt: skip
    assert differences(old, old) == []
    changes = differences(old, new)
    shown = [str(change) for change in changes]
    assert "gpus.count: 8 -> 4" in shown
    assert "fabric.ports.0.rate_gbps: 400.0 -> 200.0" in shown
    assert "engines: {} -> (absent)" in shown
    assert "engines.a.gpus: (absent) -> [0, 1]" in shown
    assert not any("power_limit" in line for line in shown)
    by_path = {change.path: change.to_json() for change in changes}
    assert by_path["gpus.count"] == {"path": "gpus.count", "old": 8, "new": 4}
    assert by_path["engines.a.gpus"] == {"path": "engines.a.gpus", "new": [0, 1]}
