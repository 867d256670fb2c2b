"""The engine's command line as vLLM's argparse reads it.

`--flag value`, `--flag=value`, `--flag_name` (pure).
"""

from __future__ import annotations

from collections.abc import Sequence


def _spelled(argument: str) -> tuple[str, str | None]:
    """The flag with dashes, and its value when it is in the same argument."""
    flag, equals, value = argument.partition("=")
    return flag.replace("_", "-"), value if equals else None


def flag_value(arguments: Sequence[str], flag: str) -> str | None:
    """The value of a flag, the last one given, as argparse takes it; None when the flag is not there."""
    found: str | None = None
    for i, argument in enumerate(arguments):
        name, value = _spelled(argument)
        if name == flag:
            following = arguments[i + 1] if i + 1 < len(arguments) else ""
            found = following if value is None else value
    return found


def has_flag(arguments: Sequence[str], flag: str) -> bool:
    """Whether the flag is there in any spelling."""
    return any(_spelled(argument)[0] == flag for argument in arguments)


def flag_values(arguments: Sequence[str], flag: str) -> list[str]:
    """Every value of a flag that takes one or more, wherever it is given."""
    return [text for _, text in _values(arguments, flag)]


def masked(arguments: Sequence[str], flag: str, shown: str = "***") -> list[str]:
    """The arguments with all of the flag's values hidden."""
    result = list(arguments)
    for at, value in _values(arguments, flag):
        result[at] = f"{result[at].removesuffix(value)}{shown}"
    return result


def _values(arguments: Sequence[str], flag: str) -> list[tuple[int, str]]:
    """Index and text of each value: what follows `=`, or all that follows up to the next flag."""
    found: list[tuple[int, str]] = []
    follows = False
    for i, argument in enumerate(arguments):
        name, value = _spelled(argument)
        if name == flag:
            follows = value is None
            found += [(i, value)] if value is not None else []
        elif argument.startswith("--"):
            follows = False
        elif follows:
            found.append((i, argument))
    return found
