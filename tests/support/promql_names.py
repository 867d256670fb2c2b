"""Which metrics and labels a PromQL expression names: a small reader of text, no parser.

It sees every selector (`name{label="value"}`, `name[5m]`), its matchers, and the labels of `by`, `without`,
`on`, `ignoring` and `group_left`. It does not see whether an expression is valid, whether two sides of an
operator have a label in common, or what labels are left after an aggregation: promtool, which is Prometheus'
own parser and engine, judges that in tests/root.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_WORD = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_MATCHER = re.compile(r'\s*([a-zA-Z_]\w*)\s*(=~|!~|!=|=)\s*("(?:[^"\\]|\\.)*")\s*,?')
_LISTS = frozenset({"by", "without", "on", "ignoring", "group_left", "group_right"})
_WORDS = frozenset({"and", "or", "unless", "bool", "offset", "inf", "nan"})


@dataclass(frozen=True)
class Selector:
    """A metric's name and its matchers (label, operator, value)."""

    name: str
    matchers: tuple[tuple[str, str, str], ...]


def selectors(expression: str) -> Iterator[Selector]:
    """Every selector of the expression."""
    for kind, word, rest in _words(expression):
        if kind == "name":
            inside = rest[1 : _end(rest)] if rest.startswith("{") else ""
            matchers = tuple((m[1], m[2], m[3][1:-1]) for m in _MATCHER.finditer(inside))
            yield Selector(word, matchers)


def grouping_labels(expression: str) -> set[str]:
    """The labels that `by`, `on` and their like name."""
    found: set[str] = set()
    for kind, _, rest in _words(expression):
        if kind == "list":
            found |= set(_WORD.findall(rest[1 : rest.index(")")]))
    return found


def _words(expression: str) -> Iterator[tuple[str, str, str]]:
    """Kind (name, list), word and what follows it; functions, strings, matchers, durations are left out."""
    at = 0
    while at < len(expression):
        if expression[at] == '"':
            found = _STRING.match(expression, at)
            assert found is not None, f"a string has no end: {expression[at:]}"
            at = found.end()
        elif expression[at] == "{":
            at += _end(expression[at:]) + 1
        elif expression[at] == "[":
            at = expression.index("]", at) + 1
        elif expression[at].isdigit():
            at = re.compile(r"[0-9.]+[a-z]*").match(expression, at).end()  # type: ignore[union-attr]
        elif (found := _WORD.match(expression, at)) is not None:
            word, rest = found[0], expression[found.end() :].lstrip()
            at = found.end()
            if word in _LISTS:
                yield "list", word, rest
                at = expression.index(")", at) + 1
            elif not rest.startswith("(") and word not in _WORDS and not _aggregates(rest):
                yield "name", word, rest
        else:
            at += 1


def _aggregates(rest: str) -> bool:
    """Whether what follows makes the word an aggregation: `sum by (x) (...)`."""
    return re.match(r"(by|without)\s*\(", rest) is not None


def _end(text: str) -> int:
    """Index of the brace that closes the first one."""
    bare = _STRING.sub(lambda found: " " * len(found[0]), text)
    return bare.index("}")
