"""NCCL's settings as it finds them: the process's environment, then the user's file, then /etc/nccl.conf.

As NCCL 2.32 reads the files (src/misc/param.cc): KEY=VALUE lines, `#` is a comment only in the first column,
nothing is trimmed, names and values are cut at 1023 characters, what is set already is kept.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from agent.errors import DeviceAbsent
from agent.sources import Tree
from agent.sources.launch_reading import Problem, Severity

SYSTEM_FILE = "/etc/nccl.conf"
#: Names the user's file instead of ~/.nccl.conf.
CONF_FILE = "NCCL_CONF_FILE"
LONGEST = 1023


@dataclass(frozen=True, slots=True)
class Setting:
    """A value and the file that it comes from; no file is the launch's own environment."""

    value: str
    file: str = ""


class NcclSettings:
    """The settings that count, and what is wrong with the files."""

    def __init__(self, env: Mapping[str, str]) -> None:
        """The environment of the launch."""
        self.values = {name: Setting(value) for name, value in env.items() if name.startswith("NCCL_")}
        self.problems: list[Problem] = []

    def value(self, name: str) -> str:
        """The value that counts; empty where there is none."""
        return self.values[name].value if name in self.values else ""

    def where(self, name: str) -> str:
        """What to call the variable in a report."""
        found = self.values.get(name)
        return f"{found.file}: {name}" if found is not None and found.file else name

    def add_file(self, path: str, text: str) -> None:
        """Take in a file as NCCL does."""
        for number, line in enumerate(text.split("\n"), 1):
            if line.startswith("#") or not line.strip():
                continue
            name, equals, value = line.partition("=")
            where = f"{path}:{number}"
            self.problems += _line_problems(where, line, name, value if equals else None)
            if not equals:
                continue
            value = value[:LONGEST]
            known = self.values.setdefault(name, Setting(value, path))
            if known.value != value:
                other = known.file or "the launch"
                text_ = f"{name} is {value[:40]!r} and {other} sets {known.value[:40]!r}, which counts"
                self.problems.append(Problem(Severity.WARNING, where, text_, "make them equal or remove one"))


def _line_problems(where: str, line: str, name: str, value: str | None) -> Iterator[Problem]:
    if value is None:
        text = f"{line[:40]!r} has no `=`: NCCL leaves the line out"
        yield Problem(Severity.WARNING, where, text, "write NAME=VALUE, or # in the first column")
        return
    if name != name.strip():
        text = f"NCCL takes {name[:40]!r} with its blanks for the name, and no such variable is read"
        yield Problem(Severity.ERROR, where, text, "remove the blanks around the name")
    if value != value.strip():
        text = f"NCCL takes {value[:40]!r} with its blanks for the value"
        yield Problem(Severity.ERROR, where, text, "remove the blanks and carriage returns around the value")
    elif " #" in value:
        text = f"NCCL takes {value[:40]!r} with the comment for the value"
        yield Problem(Severity.ERROR, where, text, "put the comment on a line of its own")
    if len(value) > LONGEST:
        text = f"the value has {len(value)} characters and NCCL cuts it at {LONGEST}"
        yield Problem(Severity.ERROR, where, text, "make it shorter")


def own_home() -> str:
    """The home folder of the user that the agent and its engines run as, as NCCL finds it."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        return ""  # a user without an entry has no file either


def read_settings(env: Mapping[str, str], tree: Tree, home: str) -> NcclSettings:
    """The settings that count on this host. Raises SourceError for a file that is there and unreadable."""
    settings = NcclSettings(env)
    named = env.get(CONF_FILE, "")
    own = named or (f"{home.rstrip('/')}/.nccl.conf" if home else "")
    for path in filter(None, (own, SYSTEM_FILE)):
        try:
            text = tree.data(path.lstrip("/")).decode("utf-8", errors="replace")
        except DeviceAbsent:
            if path == named:
                text_ = f"{path} is not there, and NCCL says nothing of it"
                settings.problems.append(
                    Problem(Severity.ERROR, CONF_FILE, text_, "write the file or remove the variable")
                )
            continue
        settings.add_file(path, text)
    return settings
