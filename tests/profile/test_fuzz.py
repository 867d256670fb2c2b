"""Whatever the input, only ConfigError escapes, on one line."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profile_cases import relaxed, site_profiles, write

from agent.errors import ConfigError
from agent.profile_loader import profile_from_dict
from agent.profile_tree import Table
from agent.profile_yaml import parse_layer, read_layer


@relaxed
@given(
    st.one_of(
        st.binary(max_size=300), st.text(max_size=300).map(lambda t: t.encode("utf-8", "surrogatepass"))
    )
)
def test_no_bytes_escape_as_anything_but_a_config_error(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = write(tmp_path_factory.getbasetemp(), data, "fuzz.yaml")
    try:
        tree = read_layer(path, "fuzz")
    except ConfigError as error:
        assert "\n" not in str(error)
        assert str(path) in str(error)
    else:
        assert isinstance(tree, Table)


_BITS = [
    *(
        "a",
        ": ",
        ":",
        "\n",
        "  ",
        "- ",
        "[",
        "]",
        "{",
        "}",
        ",",
        "&x ",
        "*x",
        "!",
        "!!int ",
        "|",
        ">",
        "'",
        '"',
    ),
    *(
        "#",
        "%YAML 1.2",
        "%TAG ! x",
        "---",
        "...",
        "?",
        "\\U99999999",
        "\\x",
        "\t",
        "0x1",
        "~",
        "<<",
        "@",
        "`",
    ),
    *("é", "\u2028"),
]
_YAML_BITS = st.lists(st.sampled_from(_BITS), max_size=25).map("".join)


@relaxed
@given(_YAML_BITS)
def test_no_yaml_escapes_as_anything_but_a_config_error(text: str) -> None:
    try:
        parse_layer(text, "f.yaml", "f")
    except ConfigError as error:
        assert "\n" not in str(error)
        assert str(error).startswith("f.yaml")


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
_KEYS = [
    "platform",
    "gpus",
    "nvlink",
    "fabric",
    "engines",
    "api",
    "limits",
    "mode",
    "count",
    "pins",
    "ports",
    "gpu",
    "port",
    "launch",
    "env",
    "args",
    "domains",
    "checks",
    "power_limit_w",
    "numa_node",
    "0",
    "x",
]
_profile_like = st.recursive(
    _json, lambda inner: st.dictionaries(st.sampled_from(_KEYS), inner, max_size=5), max_leaves=12
)


@relaxed
@given(st.dictionaries(st.sampled_from(_KEYS), _profile_like, max_size=6))
def test_no_data_escapes_as_anything_but_a_config_error(data: dict[str, Any]) -> None:
    try:
        profile_from_dict(data)
    except ConfigError as error:
        assert "\n" not in str(error)


@relaxed
@given(site_profiles(), st.data())
def test_damage_to_a_good_profile_is_always_told(good: dict[str, Any], data: st.DataObject) -> None:
    part = data.draw(st.sampled_from(["gpus", "fabric", "api"]))
    bad = {**good, part: {**good[part], "no_such_key": 1}}
    with pytest.raises(ConfigError, match="no_such_key: unknown key"):
        profile_from_dict(bad)
