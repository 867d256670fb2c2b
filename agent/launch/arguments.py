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


def masked(arguments: Sequence[str], flag: str, shown: str = "***") -> list[str]:
    """The arguments with the flag's value hidden."""
    result = list(arguments)
    for i, argument in enumerate(arguments):
        name, value = _spelled(argument)
        if name == flag and value is not None:
            result[i] = f"{argument.partition('=')[0]}={shown}"
        elif name == flag and i + 1 < len(arguments):
            result[i + 1] = shown
    return result
