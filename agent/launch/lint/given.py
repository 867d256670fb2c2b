"""A command line taken apart as argparse does it: which flags are given, with which words after them. Pure.

vLLM's own rules are in here too: underscores in names, `--config FILE` in between, `--flag.key value` for one
key of a JSON flag, `-O3`, `-O 3`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from agent.errors import ConfigError

_NUMBER = re.compile(r"-\d+$|-\d*\.\d+$")
_LEVEL = re.compile(r"-O=?(\w+)$")
_LEVELS = (("0",), ("1",), ("2",), ("3",))
#: No configuration file of an engine is longer.
LONGEST_FILE = 1 << 20


@dataclass(frozen=True, slots=True)
class Given:
    """A flag as it was given. `key` is what stands behind the first dot, `inline` what stands behind `=`."""

    spelled: str
    name: str
    key: str
    inline: str | None
    following: tuple[str, ...]
    #: The configuration file that it stands in; empty for the command line.
    file: str = ""

    @property
    def words(self) -> tuple[str, ...]:
        """All its values, as far as it takes that many."""
        return self.following if self.inline is None else (self.inline, *self.following)

    @property
    def where(self) -> str:
        """What to call it in a report."""
        return f"{self.file}: {self.spelled}" if self.file else self.spelled


def is_flag(word: str) -> bool:
    """Whether argparse takes a word for a flag."""
    return len(word) > 1 and word[0] == "-" and word != "--" and " " not in word and not _NUMBER.match(word)


def normal_name(spelled: str) -> tuple[str, str]:
    """Name with dashes, and the key behind the first dot."""
    name, _, key = spelled.partition(".")
    return (name.replace("_", "-") if name.startswith("--") else name), key.removesuffix("+")


def take_apart(arguments: Sequence[str], file: str = "") -> tuple[list[str], list[Given]]:
    """The words before the first flag, and the flags."""
    leading: list[str] = []
    found: list[Given] = []
    for at, word in enumerate(arguments):
        if word == "-O" and tuple(arguments[at + 1 : at + 2]) in _LEVELS:
            found.append(Given(word, "--optimization-level", "", None, (), file))
            continue
        if not is_flag(word):
            if found:
                last = found[-1]
                found[-1] = _with_word(last, word)
            else:
                leading.append(word)
            continue
        if level := _LEVEL.match(word):
            found.append(Given(word, "--optimization-level", "", level.group(1), (), file))
            continue
        spelled, equals, value = word.partition("=")
        name, key = normal_name(spelled)
        found.append(Given(spelled, name, key, value if equals else None, (), file))
    return leading, found


def _with_word(given: Given, word: str) -> Given:
    return Given(given.spelled, given.name, given.key, given.inline, (*given.following, word), given.file)


def file_flags(text: str, path: str) -> list[Given]:
    """The flags of a configuration file: long names as keys. Raises ConfigError."""
    if not path.endswith((".yaml", ".yml")):
        raise ConfigError("the engine reads only .yaml and .yml", where=path, remedy="rename the file")
    if len(text) > LONGEST_FILE:
        raise ConfigError("is too long for a configuration file", where=path, remedy="name the right file")
    try:
        values: Any = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as cause:
        words = " ".join(str(cause).split())[:120]
        raise ConfigError(f"is no YAML: {words}", where=path, remedy="correct it") from cause
    if not isinstance(values, dict):
        raise ConfigError("has no keys", where=path, remedy="write one flag a line, `max-num-seqs: 4`")
    found: list[Given] = []
    for key, value in values.items():
        name, _ = normal_name(f"--{key}")
        inline, following = _file_value(value)
        if value is False:
            name = f"--no-{name.removeprefix('--')}"
        if value != []:  # the engine leaves an empty list out
            found.append(Given(f"--{key}", name, "", inline, following, path))
    return found


def _file_value(value: Any) -> tuple[str | None, tuple[str, ...]]:
    if isinstance(value, bool):
        return None, ()
    if isinstance(value, list):
        return None, tuple(map(str, value))
    return (json.dumps(value, default=str) if isinstance(value, dict) else str(value)), ()
