"""YAML of a profile layer to a tree with marks: the safe subset only, with one meaning for every spelling.

PyYAML's parser delivers events; the tree is built here, so duplicate keys, tags, deep nesting and alias bombs
are refused before they cost anything. Spellings that YAML versions read differently (`on`, `010`, `0x1f`,
`1_000`) stay text; where a boolean or a number is wanted the loader says so.
https://yaml.org/spec/1.2.2/#103-core-schema
"""

from __future__ import annotations

import math
import re
import stat
from collections.abc import Iterator
from pathlib import Path

import yaml

from agent.errors import ConfigError
from agent.profile_tree import Items, Mark, Node, Plain, Scalar, Table

#: Limits of one file: a profile of a real node is 5-20 kB, 4 levels and some hundred values.
MAX_BYTES = 256 * 1024
MAX_DEPTH = 24
MAX_NODES = 20_000
MAX_TEXT = 16_384
MAX_KEY = 200

_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_TRUE = frozenset({"true", "True", "TRUE"})
_FALSE = frozenset({"false", "False", "FALSE"})
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})")
_FLOAT = re.compile(
    r"[-+]?(?:(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{0,25})?|\.[0-9]{1,25})(?:[eE][-+]?[0-9]{1,3})?"
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]")


def read_layer(path: Path, layer: str) -> Table:
    """Read one layer file. Raises ConfigError with file and line."""
    shown = shown_path(path)
    return parse_layer(decode(read_bytes(path), shown), shown, layer)


def read_bytes(path: Path) -> bytes:
    """The bytes of a regular file that is not too large; a pipe or device could block or never end."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise ConfigError(
                "is not a regular file", where=shown_path(path), remedy="give the path of a profile file"
            )
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as cause:  # ValueError: a NUL in the path
        reason = cause.strerror if isinstance(cause, OSError) and cause.strerror else str(cause)
        raise ConfigError(
            f"cannot read the profile: {reason}",
            where=shown_path(path),
            remedy="check the path and its permissions",
        ) from cause
    if len(data) > MAX_BYTES:
        raise ConfigError(
            f"is larger than {MAX_BYTES // 1024} KiB",
            where=shown_path(path),
            remedy="this is not a node profile",
        )
    return data


def decode(data: bytes, file: str) -> str:
    """UTF-8 text (a byte order mark is allowed). Raises ConfigError with the line of the first bad byte."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ConfigError("the file is UTF-16", where=f"{file}:1", remedy="save it as UTF-8")
    if b"\x00" in data:
        line = data.count(b"\n", 0, data.index(b"\x00")) + 1
        raise ConfigError(
            "a NUL byte: not a text file", where=f"{file}:{line}", remedy="give a YAML file in UTF-8"
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as cause:
        line = data.count(b"\n", 0, cause.start) + 1
        bad = f"byte 0x{data[cause.start]:02x} is not UTF-8"
        raise ConfigError(bad, where=f"{file}:{line}", remedy="save the file as UTF-8") from cause


def parse_layer(text: str, file: str, layer: str) -> Table:
    """The tree of one layer; an empty file is an empty map. Raises ConfigError with file and line."""
    try:
        node = _Builder(file, layer).document(text)
    except yaml.MarkedYAMLError as cause:
        raise syntax_error(cause, text, file) from cause
    except yaml.reader.ReaderError as cause:
        line = text.count("\n", 0, cause.position) + 1
        raise ConfigError(
            f"character U+{ord(text[cause.position]):04X} is not allowed in YAML",
            where=f"{file}:{line}",
            remedy="remove it, or write it as an escape in double quotes",
        ) from cause
    except (ValueError, OverflowError, IndexError, TypeError, AttributeError) as cause:
        # PyYAML lets these out on absurd escapes and directives ("\UFFFFFFFF", %YAML 9999...).
        raise ConfigError(
            f"cannot be read as YAML ({clean(str(cause))})",
            where=file,
            remedy="check escapes and % directives",
        ) from cause
    if isinstance(node, Table):
        return node
    if isinstance(node, Scalar) and node.value is None:
        return Table(node.mark)
    kind = "a list" if isinstance(node, Items) else "a single value"
    raise ConfigError(
        f"a profile is a map of keys, this is {kind}",
        where=node.mark.where,
        remedy="start with e.g. `platform: h200`",
    )


def resolve(text: str) -> Plain:
    """The value of a plain scalar: null, true/false, decimal numbers; everything else is text."""
    if text in _NULL:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text) and math.isfinite(float(text)):
        return float(text)
    return text


def clean(text: str, most: int = 60) -> str:
    """Text from a file for an error line: one line, printable, not endless."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
    return shown if len(shown) <= most else shown[: most - 3] + "..."


def shown_path(path: Path) -> str:
    """A path for an error line: whole, but on one line and printable."""
    return clean(str(path), 4096)


def syntax_error(cause: yaml.MarkedYAMLError, text: str, file: str) -> ConfigError:
    """PyYAML's report as one line; a tab gets its own words because it is what people meet most."""
    mark = cause.problem_mark or cause.context_mark
    where = f"{file}:{mark.line + 1}" if mark else file
    line = text.splitlines()[mark.line] if mark and mark.line < len(text.splitlines()) else ""
    before = line[: len(line) - len(line.lstrip())]
    if "\t" in before or "'\\t'" in str(cause.problem):
        return ConfigError("a tab where YAML wants spaces", where=where, remedy="indent with spaces")
    problem = clean(str(cause.problem or cause.context or "bad syntax"), 120)
    return ConfigError(
        f"not valid YAML: {problem}",
        where=where,
        remedy="check indentation, quotes and colons on this line and above",
    )


class _Builder:
    """Builds one document from parser events, with bounded depth, size and alias expansion."""

    def __init__(self, file: str, layer: str) -> None:
        self.file = file
        self.layer = layer
        self.nodes = 0
        self.anchors: dict[str, tuple[Node, int]] = {}

    def document(self, text: str) -> Node:
        """The root node of the only document; a Scalar with value None when there is none."""
        root: Node = Scalar(Mark(self.file, 1, 1, self.layer), "", None)
        documents = 0
        events = yaml.parse(text, Loader=yaml.SafeLoader)
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise self.fault(event, "a second document (`---`)", "keep one document in a file")
            elif isinstance(event, yaml.NodeEvent):
                root = self.node(event, events, 0)
        return root

    def node(self, event: yaml.Event, events: Iterator[yaml.Event], depth: int) -> Node:
        """The node that starts with this event."""
        if depth > MAX_DEPTH:
            raise self.fault(event, f"nested deeper than {MAX_DEPTH} levels", "a profile needs about six")
        if isinstance(event, yaml.AliasEvent):
            return self.alias(event)
        if not isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent):
            raise self.fault(event, "nothing where a value is expected", "write a value")
        if event.tag not in (None, "!"):
            raise self.fault(
                event, f"tag {clean(str(event.tag))} is not allowed", "write plain values; quote text"
            )
        before = self.nodes
        self.count(event, 1)
        node = self.content(event, events, depth)
        if event.anchor:
            self.anchors[event.anchor] = (node, self.nodes - before)
        return node

    def content(self, event: yaml.Event, events: Iterator[yaml.Event], depth: int) -> Node:
        """A scalar, list or map."""
        mark = self.mark(event)
        if isinstance(event, yaml.ScalarEvent):
            text = self.text(event)
            plain = event.style is None
            return Scalar(mark, text, resolve(text) if plain else text, plain)
        if isinstance(event, yaml.SequenceStartEvent):
            items = []
            while not isinstance(child := next(events), yaml.SequenceEndEvent):
                items.append(self.node(child, events, depth + 1))
            return Items(mark, tuple(items))
        entries: dict[str, Node] = {}
        marks: dict[str, Mark] = {}
        while not isinstance(child := next(events), yaml.MappingEndEvent):
            key = self.key(child, marks)
            marks[key] = self.mark(child)
            entries[key] = self.node(next(events), events, depth + 1)
        return Table(mark, entries, marks)

    def key(self, event: yaml.Event, seen: dict[str, Mark]) -> str:
        """A key: a scalar as it is spelled, once in its map."""
        if not isinstance(event, yaml.ScalarEvent):
            raise self.fault(event, "a key must be a single word", "write `key: value`")
        if event.tag not in (None, "!"):
            raise self.fault(event, f"tag {clean(str(event.tag))} is not allowed on a key", "remove the tag")
        self.count(event, 1)
        key = self.text(event)
        if key == "<<" and event.style is None:
            raise self.fault(
                event, "merge keys (`<<`) are not supported", "put shared values in an overlay file"
            )
        if len(key) > MAX_KEY:
            raise self.fault(event, f"a key longer than {MAX_KEY} characters", "shorten it")
        if not key:
            raise self.fault(event, "an empty key", "write the key before the colon")
        if key in seen:
            first = f"first on line {seen[key].line}"
            raise self.fault(event, f"key `{clean(key)}` is given twice, {first}", "keep one of the two")
        return key

    def text(self, event: yaml.ScalarEvent) -> str:
        """The text of a scalar; control characters and lone surrogates cannot be shown or passed on."""
        text = str(event.value)
        if len(text) > MAX_TEXT:
            raise self.fault(event, f"a value longer than {MAX_TEXT} characters", "shorten it")
        bad = _CONTROL.search(text)
        if bad:
            raise self.fault(event, f"control character U+{ord(bad.group()):04X} in a value", "remove it")
        return text

    def alias(self, event: yaml.AliasEvent) -> Node:
        """What an alias stands for, counted as if it were written out."""
        if event.anchor not in self.anchors:
            problem = f"alias *{clean(str(event.anchor))} has no anchor of that name complete above it"
            raise self.fault(event, problem, "write the value")
        node, size = self.anchors[event.anchor]
        self.count(event, size)
        return node

    def count(self, event: yaml.Event, more: int) -> None:
        """Count values, aliases written out; too many are a mistake or an attack."""
        self.nodes += more
        if self.nodes > MAX_NODES:
            raise self.fault(
                event, f"more than {MAX_NODES} values (aliases written out)", "this is not a profile"
            )

    def mark(self, event: yaml.Event) -> Mark:
        """Where an event starts."""
        start = event.start_mark
        line, column = (start.line + 1, start.column + 1) if start else (1, 1)
        return Mark(self.file, line, column, self.layer)

    def fault(self, event: yaml.Event, problem: str, remedy: str) -> ConfigError:
        """A ConfigError at an event."""
        return ConfigError(problem, where=self.mark(event).where, remedy=remedy)
