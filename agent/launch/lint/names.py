"""Which flag of the installed engine each given flag is, and what to say of one that is none. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import yaml

from agent.launch.lint.given import Given
from agent.launch.lint.installed import EngineSource, Flag
from agent.sources.launch_reading import Problem, Severity


@dataclass(frozen=True, slots=True)
class Used:
    """A given flag with what it is in the engine; `off` for its `--no-` form."""

    flag: Flag
    given: Given
    off: bool = False


@cache
def table(name: str) -> Mapping[str, Any]:
    """A data file of this package."""
    text = resources.files("agent.launch.lint").joinpath(name).read_text(encoding="utf-8")
    loaded: Mapping[str, Any] = yaml.safe_load(text)
    return loaded


class Names:
    """The names of an engine's flags, with those that a patched build declares."""

    def __init__(self, source: EngineSource, patched: Iterable[str] = ()) -> None:
        """Collect them."""
        self._source = source
        self._known: dict[str, tuple[Flag, bool]] = {}
        for flag in source.flags.values():
            for name in (flag.name, *flag.also):
                self._known[name] = (flag, False)
                if flag.kind == "toggle" and name.startswith("--"):
                    self._known.setdefault(f"--no-{name.removeprefix('--')}", (flag, True))
        for item in patched:
            name = "--" + item.lstrip("-").replace("_", "-")
            self._known.setdefault(name, (Flag(name, "any"), False))

    def find(self, given: Given) -> tuple[Used | None, list[Problem]]:
        """What a flag is; None with an error where it is none."""
        exact = self._known.get(given.name)
        if exact is not None:
            return Used(exact[0], given, exact[1]), self._remarks(given, exact[0])
        if given.name.startswith("--"):
            begins = sorted(name for name in self._known if name.startswith(given.name))
            meant = {self._known[name][0].name for name in begins}
            if len(begins) == 1 or (len(meant) == 1 and not any(self._known[n][1] for n in begins)):
                flag, off = self._known[begins[0]]
                return Used(flag, given, off), [self._abbreviated(given, begins[0])]
            if begins and not self._history(given.name):
                listed = ", ".join(begins[:4]) + (" and more" if len(begins) > 4 else "")
                text = f"could be {listed}: the engine refuses it"
                return None, [_problem(Severity.ERROR, given, text, "write the name in full")]
        elif (short := self._joined(given)) is not None:
            return short, []
        return None, [self._unknown(given)]

    def _joined(self, given: Given) -> Used | None:
        """`-n2`: a name of one letter with its value in the same word (`-tp8` is none to argparse)."""
        name, rest = given.name[:2], given.name[2:]
        if name not in self._known:
            return None
        value = rest if given.inline is None else f"{rest}={given.inline}"
        whole = Given(given.spelled, name, given.key, value, given.following, given.file)
        return Used(self._known[name][0], whole)

    @staticmethod
    def _abbreviated(given: Given, name: str) -> Problem:
        text = f"is taken for {name}, and means another flag as soon as one begins with the same letters"
        return _problem(Severity.WARNING, given, text, f"write {name}")

    def _remarks(self, given: Given, flag: Flag) -> list[Problem]:
        if not flag.deprecated:
            return []
        words = " ".join(flag.deprecated.split())[:160].rstrip(".")
        text = f"{self._source.title} calls it deprecated: {words}"
        return [_problem(Severity.WARNING, given, text, _instead(self._history(given.name)))]

    def _history(self, name: str) -> Mapping[str, str]:
        gone: Mapping[str, Mapping[str, str]] = table("flag_history.yaml")[self._source.engine]["gone"]
        return gone.get(name) or gone.get("--" + name.removeprefix("--no-")) or {}

    def _unknown(self, given: Given) -> Problem:
        engine, title = self._source.engine, self._source.title
        told = self._history(given.name)
        if told:
            when = f" since {told['since']}" if "since" in told else ""
            remedy = _instead(told)
            return _problem(Severity.ERROR, given, f"{title} no longer has it, it is gone{when}", remedy)
        if given.name in table("flag_history.yaml")[engine]["never"]:
            text = f"no released {engine} has it"
            remedy = "remove it, or declare it in launch.patched.flags if a patched build has it"
            return _problem(Severity.ERROR, given, text, remedy)
        on = self._known.get("--" + given.name.removeprefix("--no-"))
        if on is not None and given.name.startswith("--no-"):
            text = f"{on[0].name} has no form that turns it off"
            return _problem(Severity.ERROR, given, text, f"leave {on[0].name} out")
        near = difflib.get_close_matches(given.name, self._known, 1, 0.7)
        remedy = f"did you mean {near[0]}?" if near else "remove it, or declare it in launch.patched.flags"
        return _problem(Severity.ERROR, given, f"{title} has no such flag", remedy)


def _instead(told: Mapping[str, str]) -> str:
    if "use" in told:
        return f"use {told['use']}"
    return f"remove it: {told['note']}" if "note" in told else "remove it"


def _problem(severity: Severity, given: Given, text: str, remedy: str) -> Problem:
    return Problem(severity, given.where, text, remedy)
