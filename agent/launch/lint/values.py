"""How many values each flag is given, whether it takes them, and which are given twice. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from agent.launch.lint.names import Used
from agent.launch.secret_words import is_secret_flag
from agent.sources.launch_reading import Problem, Severity

_WORDS_SHOWN = 40
_NUMBERS = {
    "int": (re.compile(r"[+-]?[\d_]+|\d+(\.\d+)?[kmgt]|\d+[KMGT]"), "whole number"),
    "float": (
        re.compile(r"[+-]?([\d_]+\.?[\d_]*|\.[\d_]+)(e[+-]?\d+)?|[+-]?(inf|nan)", re.IGNORECASE),
        "number",
    ),
}


def shown(used: Used, words: Sequence[str]) -> str:
    """Words as they may be shown."""
    return "'***'" if is_secret_flag(used.flag.name) else repr(" ".join(words)[:_WORDS_SHOWN])


def value_problems(used: Used) -> tuple[list[Problem], tuple[str, ...]]:
    """What is wrong with the values of one flag, and the words after it that are not its own."""
    kind, given = used.flag.kind, used.given
    if kind == "any":
        return [], ()
    if kind in ("toggle", "switch") or used.off:
        if given.inline is not None:
            off = f"write {_off(used)} to turn it off" if kind == "toggle" else "leave it out to turn it off"
            remedy = f"write {given.spelled} alone; {off}"
            return [_error(used, f"takes no value and is given {shown(used, [given.inline])}", remedy)], ()
        return [], given.following
    own, stray = _own(used)
    if not own and kind != "optional":
        return [_error(used, "needs a value and has none", "write the value after it")], stray
    return [*_choice_problems(used, own), *_number_problems(used, own)], stray


def _own(used: Used) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The words that the flag takes, and those that it leaves."""
    given = used.given
    if given.inline is not None:
        return (given.inline,), given.following
    if used.flag.kind == "list" and not given.key:
        return given.following, ()
    return given.following[:1], given.following[1:]


def _choice_problems(used: Used, own: Sequence[str]) -> list[Problem]:
    choices = used.flag.choices
    if choices is None or used.given.key:
        return []
    wrong = [word for word in own if word not in choices and word != "None"]
    if not wrong:
        return []
    listed = ", ".join(choices[:12]) + (" and more" if len(choices) > 12 else "")
    text = f"{shown(used, wrong[:1])} is not one of its values"
    return [_error(used, text, f"write one of {listed}")]


def _number_problems(used: Used, own: Sequence[str]) -> list[Problem]:
    """What cannot be the number that the flag takes; suffixes are let pass, for some flags have them."""
    wanted = _NUMBERS.get(used.flag.number)
    if wanted is None or used.given.key:
        return []
    form, words = wanted
    wrong = [word for word in own if not form.fullmatch(word.strip()) and word not in ("None", "auto")]
    return [_error(used, f"{shown(used, wrong[:1])} is no {words}", f"write a {words}")] if wrong else []


def stray_problem(used: Used, stray: Sequence[str]) -> Problem:
    """Words that belong to no flag: argparse refuses them."""
    words = shown(used, stray)
    if used.flag.kind in ("toggle", "switch"):
        text = f"takes no value and {words} follows it"
        off = f"; write {_off(used)} to turn it off" if used.flag.kind == "toggle" else ""
        return _error(used, text, f"remove {words}{off}")
    return _error(used, f"takes one value and {words} follows that", f"remove {words}")


def repeated(all_used: Iterable[Used]) -> list[Problem]:
    """Flags given more than once that do not say the same; a configuration file gives way without a word."""
    problems: list[Problem] = []
    seen: dict[tuple[str, str], Used] = {}
    for used in all_used:
        key = (used.flag.name, used.given.key)
        before = seen.get(key)
        seen[key] = used
        if before is None or before.given.file != used.given.file or used.flag.kind in ("append", "any"):
            continue
        if used.off != before.off:
            text = f"contradicts {before.given.spelled}, and the last one would count"
            problems.append(_error(used, text, "keep the one that is meant"))
        elif used.given.words != before.given.words:
            both = " and ".join(shown(each, each.given.words) for each in (before, used))
            text = f"is given twice, with {both}, and the last one would count"
            problems.append(_error(used, text, "keep the one that is meant"))
    return problems


def _off(used: Used) -> str:
    return f"--no-{used.flag.name.removeprefix('--')}"


def _error(used: Used, text: str, remedy: str) -> Problem:
    return Problem(Severity.ERROR, used.given.where, text, remedy)
