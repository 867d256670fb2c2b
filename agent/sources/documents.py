"""JSON and YAML files that others wrote: read within limits, every fault becomes one ConfigError."""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from agent.errors import ConfigError
from agent.sources.json_depth import too_deep

#: A capture of a large node is some 100 KiB; anything far above is no document of ours.
DOCUMENT_LIMIT_B = 16 << 20
#: Longest whole number in YAML; one of thousands of digits could not even be shown.
_NUMBER_CHARS = 40


def read_bounded(path: Path, limit_b: int = DOCUMENT_LIMIT_B) -> str:
    """The text of a regular file. Raises ConfigError."""
    where = str(path)
    try:
        if not path.is_file():
            raise ConfigError("there is no such file" if not path.exists() else "is not a file", where=where)
        with path.open("rb") as file:
            data = file.read(limit_b + 1)
    except (OSError, ValueError) as cause:
        reason = getattr(cause, "strerror", None) or cause
        raise ConfigError(f"cannot read it: {reason}", where=where) from cause
    if len(data) > limit_b:
        raise ConfigError(f"is longer than {limit_b} bytes", where=where)
    try:
        return data.decode()
    except UnicodeDecodeError as cause:
        raise ConfigError(f"is not UTF-8 text (byte {cause.start})", where=where) from cause


def read_json(path: Path) -> Any:
    """A JSON document; NaN, infinities and repeated keys are refused. Raises ConfigError."""
    text = read_bounded(path)
    try:
        found = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except json.JSONDecodeError as cause:
        raise ConfigError(f"is not JSON: {cause.msg}", where=f"{path}:{cause.lineno}") from cause
    except RecursionError as cause:
        raise ConfigError("is nested too deeply", where=str(path)) from cause
    except ValueError as cause:
        raise ConfigError(f"is not JSON: {cause}", where=str(path)) from cause
    return _not_too_deep(found, path)


def read_yaml(path: Path) -> Any:
    """A YAML document of plain values; aliases and repeated keys are refused. Raises ConfigError."""
    text = read_bounded(path)
    try:
        found = yaml.load(text, Loader=_PlainLoader)  # noqa: S506 (a SafeLoader)
    except yaml.MarkedYAMLError as cause:
        line = f":{cause.problem_mark.line + 1}" if cause.problem_mark else ""
        problem = cause.problem or cause.context or "cannot be read"
        raise ConfigError(f"is not YAML: {problem}", where=f"{path}{line}") from cause
    except RecursionError as cause:
        raise ConfigError("is nested too deeply", where=str(path)) from cause
    except (yaml.YAMLError, ValueError) as cause:
        raise ConfigError(f"is not YAML: {' '.join(str(cause).split())}", where=str(path)) from cause
    return _not_too_deep(found, path)


def _not_too_deep(found: Any, path: Path) -> Any:
    if too_deep(found):
        raise ConfigError("is nested too deeply", where=str(path))
    return found


def one_problem(error: ValidationError, data: object, where: str) -> ConfigError:
    """The first of pydantic's errors as one line: file, key, what is wrong, how many more."""
    errors = error.errors(include_url=False, include_context=False)
    # Of a union that failed, the error deepest in the file is the one that a person means.
    first = max(errors, key=lambda item: len(real_keys(item["loc"], data)))
    keys = real_keys(first["loc"], data)
    problem = first["msg"].removeprefix("Value error, ")
    problem = problem[0].lower() + problem[1:]
    if first["type"] == "extra_forbidden":
        problem = "this key is unknown"
    elif first["type"] in ("model_type", "dict_type"):
        problem = f"should be keys with values, not {str(first['input'])[:40]!r}"
    elif first["type"] == "missing":
        problem = f"{'.'.join([*keys, str(first['loc'][-1])])} is missing"
        keys = []
    elif not isinstance(first["input"], dict | list):
        problem += f", not {str(first['input'])[:40]!r}"
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    key = ".".join(keys)
    return ConfigError(f"{key}: {problem}{more}" if key else f"{problem}{more}", where=where)


def real_keys(location: Sequence[int | str], data: object) -> list[str]:
    """The parts of pydantic's location that are keys of the document; others are branches of unions."""
    keys: list[str] = []
    for part in location:
        in_list = isinstance(data, list) and isinstance(part, int) and 0 <= part < len(data)
        if in_list or (isinstance(data, dict) and part in data):
            data = data[part]  # type: ignore[index]
            keys.append(str(part))
    return keys


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"key {key[:40]!r} is there twice")
        found[key] = value
    return found


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number here")


class _PlainLoader(yaml.SafeLoader):
    """SafeLoader without aliases (they can make a small file huge) and without repeated keys."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.constructor.ConstructorError(None, None, "aliases are not allowed", mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        found = super().construct_mapping(node, deep=deep)
        if len(found) != len(node.value):
            raise yaml.constructor.ConstructorError(None, None, "a key is there twice", node.start_mark)
        return found

    def construct_whole_number(self, node: yaml.ScalarNode) -> int:
        """A number as a person writes one; Python's limit of digits is not for hexadecimal and base 60."""
        if len(node.value) > _NUMBER_CHARS:
            raise yaml.constructor.ConstructorError(None, None, "a number is too long", node.start_mark)
        return int(self.construct_yaml_int(node))


_PlainLoader.add_constructor("tag:yaml.org,2002:int", _PlainLoader.construct_whole_number)
