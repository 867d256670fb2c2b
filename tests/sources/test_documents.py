"""Documents that others wrote: every fault is one line with file, and line or key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.errors import ConfigError
from agent.sources import documents
from agent.sources.documents import read_bounded, read_json, read_yaml


def refused(read: Any, path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        read(path)
    text = str(caught.value)
    assert str(path) in text
    assert "\n" not in text
    return text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", ":1: is not JSON"),
        ('{"a": 1,\n "b": }', ":2: is not JSON"),
        ('{"a": NaN}', "NaN is not a number"),
        ('{"a": 1, "a": 2}', "'a' is there twice"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a":' * 900 + "1" + "}" * 900, "nested too deeply"),
        ("[" * 66 + "]" * 66, "nested too deeply"),
        ('{"a": ' + "9" * 5000 + "}", "is not JSON"),
    ],
)
def test_json(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "nvml.json"
    path.write_text(text)
    assert says in refused(read_json, path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: [1", "is not YAML"),
        ("a: 1\nb: {c: *x}", ":2: is not YAML: aliases"),
        ("a: &x [1]\nb: *x\n", ":2: is not YAML: aliases"),
        ("a: 1\na: 2\n", "twice"),
        ("a: !!python/object:os.system {}", "is not YAML"),
        ("a: 2026-99-99\n", "is not YAML"),
        ("a: \x01", "is not YAML"),
        ("[" * 20_000, "nested too deeply"),
        ("a: " + "{a: " * 70 + "1" + "}" * 70, "nested too deeply"),
        ("? [1]\n: 2\n", "is not YAML"),
        ("a: " + "9" * 5000, "a number is too long"),
        ("a: 0x" + "f" * 9000, ":1: is not YAML: a number is too long"),
        ("a: 1" + ":59" * 3000, "a number is too long"),
    ],
)
def test_yaml(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "node.yaml"
    path.write_text(text)
    assert says in refused(read_yaml, path)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    assert "no such file" in refused(read_bounded, tmp_path / "none")
    assert "not a file" in refused(read_bounded, tmp_path)
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff")
    assert "UTF-8" in refused(read_bounded, binary)
    with pytest.raises(ConfigError, match="longer than 3 bytes"):
        binary.write_text("1234")
        read_bounded(binary, 3)
    with pytest.raises(ConfigError):
        read_bounded(Path("a\0b"))


@settings(max_examples=200)
@given(data=st.binary(max_size=200) | st.text("{}[]:,&*!?-\n\t '\"a1.#|>%@`", max_size=60).map(str.encode))
def test_any_bytes_are_a_document_or_one_line(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzzed"
    path.write_bytes(data)
    for read in (documents.read_json, documents.read_yaml):
        try:
            read(path)
        except ConfigError as cause:
            assert "\n" not in str(cause)
