"""The engine's command line as its argparse reads it, and the flags of a profile as a command line.

`--flag value`, `--flag=value`, `--flag_name` (pure).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from agent.errors import LaunchError
from agent.launch_parts import FlagValue

#: Every name of the flags that say how a model is spread: those of vLLM, then those of SGLang.
TENSOR = ("--tensor-parallel-size", "-tp", "--tp-size", "--tp")
PIPELINE = ("--pipeline-parallel-size", "-pp", "--pp-size", "--pp")
DATA = ("--data-parallel-size", "-dp", "--dp-size", "--dp")
_ALIASES = {name: names[0] for names in (TENSOR, PIPELINE, DATA) for name in names} | {
    "-n": "--nnodes",
    "-r": "--node-rank",
}
#: No model is spread over more: a size beyond it is a slip, and lists as long as it would take all memory.
MOST_GPUS = 1 << 16
_DIGITS = 9


@dataclass(frozen=True, slots=True)
class Parallel:
    """Over how many GPUs one model is spread; 1 each where nothing is said."""

    tensor: int = 1
    pipeline: int = 1
    data: int = 1

    @property
    def world(self) -> int:
        """GPUs that one copy of the model takes."""
        return self.tensor * self.pipeline


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
            found = _next(arguments, i) if value is None else value
    return found


def _next(arguments: Sequence[str], at: int) -> str:
    """The word after a flag; empty where none follows, or another flag, which is no value."""
    following = arguments[at + 1] if at + 1 < len(arguments) else ""
    return "" if following.startswith("--") else following


def has_flag(arguments: Sequence[str], flag: str) -> bool:
    """Whether the flag is there in any spelling."""
    return any(_spelled(argument)[0] == flag for argument in arguments)


def parallel_sizes(arguments: Sequence[str]) -> Parallel:
    """The sizes that a command line asks for. LaunchError for one that is no positive whole number."""
    return Parallel(*(_size(arguments, names) for names in (TENSOR, PIPELINE, DATA)))


def _size(arguments: Sequence[str], names: Sequence[str]) -> int:
    """One size, by any of its names; the last one given counts."""
    text: str | None = None
    for i, argument in enumerate(arguments):
        name, value = _spelled(argument)
        if name in names:
            text = value if value is not None else _next(arguments, i)
    if text is None:
        return 1
    if not text.isdecimal() or len(text) > _DIGITS or not 1 <= int(text) <= MOST_GPUS:
        raise LaunchError(f"{names[0]} is {text[:40]!r}; write a whole number from 1 to {MOST_GPUS}")
    return int(text)


def flags_argv(flags: Mapping[str, FlagValue]) -> list[str]:
    """The flags of a profile as arguments: true `--flag`, false `--no-flag`, a list one argument each."""
    result: list[str] = []
    for name, value in flags.items():
        if isinstance(value, bool):
            result.append(f"--{name}" if value else f"--no-{name}")
        elif isinstance(value, list):
            result += [f"--{name}", *_listed(name, value)]
        elif isinstance(value, str) and value.startswith("-"):
            result.append(f"--{name}={value}")  # by itself it would be read as the next flag
        else:
            result += [f"--{name}", str(value)]
    return result


def _listed(name: str, items: Sequence[int | float | str]) -> list[str]:
    """The arguments of a flag that takes several."""
    if not items:
        raise LaunchError(f"launch.flags.{name} is an empty list; write null to leave the flag out")
    for item in items:
        if isinstance(item, str) and item.startswith("-"):
            raise LaunchError(
                f"launch.flags.{name} has the item {item!r}, which the engine would read as a flag; remove it"
            )
    return [str(item) for item in items]


def canonical(flag: str) -> str:
    """The name of a flag, the same for `--no-flag`, `--flag_name` and a known short form."""
    name = _spelled(flag)[0]
    name = _ALIASES.get(name, name)
    return f"--{name.removeprefix('--no-')}" if name.startswith("--no-") else name


def flags_of(arguments: Sequence[str]) -> Iterator[str]:
    """The flags among arguments, as they are spelled (without a value after `=`)."""
    for argument in arguments:
        name = argument.partition("=")[0]
        if name in _ALIASES or (argument.startswith("--") and argument != "--"):
            yield name


def refuse_twice(name: str, flags: Mapping[str, FlagValue], args: Sequence[str]) -> None:
    """LaunchError for a flag that launch.flags and launch.args, or two keys of launch.flags, both set."""
    where = f"engine {name}: launch.flags."
    mine: dict[str, str] = {}
    for key in flags:
        flag = canonical(f"--{key}")
        if flag in mine:
            raise LaunchError(f"{where}{key} and launch.flags.{mine[flag]} are the same flag; keep one")
        mine[flag] = key
    for spelled in flags_of(args):
        key = mine.get(canonical(spelled), "")
        if key:
            raise LaunchError(f"{where}{key} and {spelled} in launch.args are the same flag; keep one")


def flag_values(arguments: Sequence[str], flag: str) -> list[str]:
    """Every value of a flag that takes one or more, wherever it is given."""
    return [text for _, text in _values(arguments, flag)]


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
