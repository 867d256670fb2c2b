"""One meaning for every spelling, a mark for every value, and refusals with a line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from profile_cases import write

from agent.errors import ConfigError
from agent.profile_tree import Items, Scalar, Table
from agent.profile_yaml import MAX_BYTES, parse_layer, read_layer, resolve


def parse(text: str) -> Table:
    return parse_layer(text, "f.yaml", "f")


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(text)
    return str(caught.value)


def test_every_key_and_value_has_a_line_and_column() -> None:
    tree = parse("a: 1\nb:\n  c: [x,\n    y]\n")
    b = tree.entries["b"]
    assert isinstance(b, Table)
    assert (tree.marks["b"].line, tree.marks["b"].column) == (2, 1)
    assert (b.marks["c"].line, b.marks["c"].column) == (3, 3)
    c = b.entries["c"]
    assert isinstance(c, Items)
    assert [(item.mark.line, item.mark.column) for item in c.items] == [(3, 7), (4, 5)]
    assert tree.marks["a"].where == "f.yaml:1"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None), ("~", None), ("null", None), ("NULL", None), ("true", True), ("False", False),
        ("0", 0), ("-7", -7), ("+7", 7), ("1.5", 1.5), (".5", 0.5), ("1e-12", 1e-12), ("1e3", 1000.0),
        ("on", "on"), ("No", "No"), ("y", "y"), ("010", "010"), ("0x1f", "0x1f"), ("0o7", "0o7"),
        ("1_000", "1_000"), ("1:30", "1:30"), ("0000:05:00.0", "0000:05:00.0"), (".inf", ".inf"),
        (".nan", ".nan"), ("1e999", "1e999"), ("2024-01-01", "2024-01-01"), ("9" * 40, "9" * 40), (".", "."),
        ("-", "-"), ("e5", "e5"), ("\u0663", "\u0663"), ("<<", "<<"), ("=", "="),
    ],
)  # fmt: skip
def test_plain_scalars_have_one_meaning(text: str, value: object) -> None:
    assert resolve(text) == value
    assert type(resolve(text)) is type(value)


def test_quoted_scalars_are_text() -> None:
    tree = parse("a: '1'\nb: \"true\"\nc: ''\nd: |\n  1\n")
    values = [node.value for node in tree.entries.values() if isinstance(node, Scalar)]
    assert values == ["1", "true", "", "1\n"]


def test_an_empty_file_is_an_empty_map() -> None:
    for text in ("", "# only a comment\n", "---\n", "null\n", "\ufeff"):
        assert parse(text).entries == {}


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, "key `a` is given twice, first on line 1"),
        ("a: {x: 1, x: 2}\n", 1, "`x` is given twice"),
        ("a: 1\n- b\n", 2, "not valid YAML"),
        ("a:\n\tb: 1\n", 2, "a tab where YAML wants spaces"),
        ("a: 1\n\tb: 1\n", 2, "a tab where YAML wants spaces"),
        ("a: [1, 2\n", 2, "not valid YAML"),
        ("a: 'x\n", 2, "not valid YAML"),
        ("a: *b\n", 1, "alias *b"),
        ("a: &a [*a]\n", 1, "alias *a"),
        ("b: &x {c: 1}\na: {<<: *x}\n", 2, "merge keys"),
        ("a: !!python/object/apply:os.system [ls]\n", 1, "tag"),
        ("a: !!str 1\n", 1, "tag"),
        ("!!str a: 1\n", 1, "tag"),
        ("? [a]\n: 1\n", 1, "a key must be a single word"),
        ("? {a: 1}\n: 1\n", 1, "a key must be a single word"),
        ("'': 1\n", 1, "an empty key"),
        ("a: 1\n---\nb: 2\n", 2, "a second document"),
        ("- a\n", 1, "a profile is a map of keys, this is a list"),
        ("hello\n", 1, "a profile is a map of keys, this is a single value"),
        ('a: 1\nb: "\\0"\n', 2, "control character U+0000"),
        ('a: "\\uD800"\n', 1, "control character U+D800"),
        ("a: 1\nb: \x07\n", 2, "U+0007"),
        ("a: " + "x" * 20_000 + "\n", 1, "longer than"),
        ("k" * 300 + ": 1\n", 1, "a key longer than"),
        ("%YAML 9.9\n---\na: 1\n", 1, "not valid YAML"),
        ("a: @x\n", 1, "not valid YAML"),
        ('b: 1\na: "\\q"\n', 2, "not valid YAML"),
    ],
)
def test_bad_yaml_is_refused_with_its_line(text: str, line: int, words: str) -> None:
    said = refusal(text)
    assert said.startswith(f"f.yaml:{line}: "), said
    assert words in said
    assert "; " in said, "a remedy"
    assert "\n" not in said


def test_alias_bombs_deep_nesting_and_endless_lists_are_refused() -> None:
    bomb = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 10)}]\n" for i in range(9)
    )
    assert "more than 20000 values" in refusal(bomb)
    assert "nested deeper" in refusal("a: " + "[" * 100_000)
    assert "nested deeper" in refusal("a: " + "{a: " * 5_000)
    assert "more than 20000 values" in refusal("a: [" + "1," * 30_000 + "]")


def test_escapes_that_yaml_itself_trips_over_are_refused() -> None:
    for text in ('a: "\\U99999999"\n', f"%YAML {'9' * 5000}.1\n---\na: 1\n", 'a: "\\UFFFFFFFF"\n'):
        said = refusal(text)
        assert said.startswith("f.yaml"), said
        assert len(said.splitlines()) == 1


def test_aliases_are_written_out() -> None:
    tree = parse("a: &x {k: 1}\nb: *x\n")
    assert tree.entries["a"] == tree.entries["b"]


def test_unreadable_files_are_one_line(tmp_path: Path) -> None:
    cases = {
        "missing": tmp_path / "none.yaml",
        "folder": tmp_path,
        "too large": write(tmp_path, b"a: 1\n" * (MAX_BYTES // 5 + 1), "large.yaml"),
        "binary": write(tmp_path, b"\x7fELF\x00\x01", "binary.yaml"),
        "latin": write(tmp_path, b"a: 1\nnode: caf\xe9\n", "latin.yaml"),
        "utf16": write(tmp_path, "a: 1".encode("utf-16"), "utf16.yaml"),
    }
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    said = {}
    for name, path in {**cases, "fifo": fifo, "nul": Path("a\0b")}.items():
        with pytest.raises(ConfigError) as caught:
            read_layer(path, "x")
        said[name] = str(caught.value)
        assert "\n" not in said[name]
    assert "No such file" in said["missing"]
    assert "not a regular file" in said["folder"]
    assert "not a regular file" in said["fifo"]
    assert "larger than 256 KiB" in said["too large"]
    assert "binary.yaml:1: a NUL byte" in said["binary"]
    assert "latin.yaml:2: byte 0xe9 is not UTF-8" in said["latin"]
    assert "utf16.yaml:1: the file is UTF-16" in said["utf16"]


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, "a: 1\n")

    def refuse(*args: object, **kwargs: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(ConfigError, match="cannot read the profile: Permission denied; check"):
        read_layer(path, "x")
