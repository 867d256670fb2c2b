"""What of nodegate is to be installed on nodes: its wheel and the wheels or pins that belong to it.

`release` looks at the files on the controller; `choose` finds the wheels that a node's Python can use.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging import tags
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from agent.errors import ConfigError

_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
#: Oldest C library for which wheels are made, by the names that came before manylinux_2_N.
_OLD_NAMES = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
_MAKE = "make it with `pip wheel --no-deps -w dist .` and name it in the inventory; docs/provisioning.md"


@dataclass(frozen=True)
class Pin:
    """One line of a requirements file: an exact version and the hashes that it may have."""

    requirement: Requirement
    hashes: frozenset[str]


@dataclass(frozen=True)
class Release:
    """nodegate's wheel, and in `wheels` everything else; without them pip finds that on the node."""

    version: str
    wheel: Path
    wheels: tuple[Path, ...]
    requirements: Path | None
    digest: str

    @property
    def name(self) -> str:
        """Version and the beginning of the digest: other contents, other name."""
        return f"{self.version}-{self.digest[:12]}"

    @property
    def offline(self) -> bool:
        """Whether everything is at hand."""
        return bool(self.wheels)


@dataclass(frozen=True)
class Target:
    """The Python of a node, as the module on the node tells it."""

    python: str
    machine: str
    glibc: str | None
    magic: str

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Target:
        """From what the module returned."""
        glibc = facts.get("glibc")
        return cls(
            str(facts["python"]), str(facts["machine"]), str(glibc) if glibc else None, str(facts["magic"])
        )

    def tags(self) -> list[tags.Tag]:
        """Tags of wheels that it can use, the best first."""
        platforms = list(self._platforms())
        version = tuple(int(part) for part in self.python.split("."))
        return [
            *tags.cpython_tags(version, platforms=platforms),
            *tags.compatible_tags(version, f"cp{version[0]}{version[1]}", platforms),
        ]

    def _platforms(self) -> Iterator[str]:
        if self.glibc is not None:
            for minor in range(int(self.glibc.split(".")[1]), 4, -1):
                yield f"manylinux_2_{minor}_{self.machine}"
                if minor in _OLD_NAMES:
                    yield f"{_OLD_NAMES[minor]}_{self.machine}"
        yield f"linux_{self.machine}"


def release(wheel: Path | None, wheelhouse: Path | None, requirements: Path | None) -> Release:
    """Look at the files. Raises ConfigError with the variable to correct."""
    if wheel is None:
        raise ConfigError("nodegate_wheel is not set", remedy=_MAKE)
    _project, version, _tags = wheel_name(wheel, "nodegate_wheel")
    if not wheel.is_file():
        raise ConfigError("nodegate_wheel is not there", where=str(wheel), remedy=_MAKE)
    if wheelhouse is None and requirements is None:
        raise ConfigError(
            "nodegate_wheel alone is not enough",
            remedy="set nodegate_wheelhouse (offline), or nodegate_requirements (pip on the node)",
        )
    wheels: tuple[Path, ...] = ()
    if wheelhouse is not None:
        wheels = tuple(sorted(path for path in wheelhouse.glob("*.whl") if path.name != wheel.name))
        if not wheels:
            raise ConfigError(
                "nodegate_wheelhouse holds no wheel",
                where=str(wheelhouse),
                remedy="fill it with `pip download`",
            )
    if requirements is not None:
        pins(requirements)
    files = [wheel, *wheels, *([requirements] if requirements else [])]
    lines = [f"{file.name} {file_sha256(file)}" for file in files]
    return Release(
        version, wheel, wheels, requirements, hashlib.sha256("\n".join(lines).encode()).hexdigest()
    )


def choose(what: Release, target: Target) -> list[Path]:
    """The wheels of an offline release for a node's Python, one of each project. Raises ConfigError."""
    known = pins(what.requirements) if what.requirements else None
    found, seen = dict[str, tuple[int, Path, str]](), set[str]()
    order = {tag: place for place, tag in reversed(list(enumerate(target.tags())))}
    for path in what.wheels:
        project, version, fits = wheel_name(path, "nodegate_wheelhouse")
        if known is not None and project not in known:
            continue
        seen.add(project)
        if not (usable := fits & order.keys()):
            continue
        if known is not None:
            _refuse_unpinned(path, version, known[project])
        if project in found and found[project][2] != version:
            raise ConfigError(
                f"nodegate_wheelhouse has {project} {found[project][2]} and {version}",
                remedy="leave one version of each in it",
            )
        best = min(order[tag] for tag in usable)
        if project not in found or best < found[project][0]:
            found[project] = (best, path, version)
    wanted = seen if known is None else {name for name, pin in known.items() if _concerns(pin, target)}
    if missing := sorted(wanted - found.keys()):
        raise ConfigError(
            f"nodegate_wheelhouse has no wheel of {', '.join(missing)} for Python {target.python} on"
            f" {target.machine}",
            remedy=f"add it with `pip download --python-version {target.python} --only-binary=:all:`",
        )
    return [path for _place, path, _version in found.values()]


def wheel_name(path: Path, variable: str) -> tuple[str, str, frozenset[tags.Tag]]:
    """Project, version and tags in a wheel's name. Raises ConfigError."""
    try:
        project, version, _build, found = parse_wheel_filename(path.name)
    except InvalidWheelFilename as cause:
        raise ConfigError(
            f"{variable}: is no wheel by its name", where=str(path), remedy="name a file *.whl as pip made it"
        ) from cause
    return str(project), str(version), found


def pins(path: Path) -> dict[str, Pin]:
    """The pins of a requirements file by project. Raises ConfigError for a line without version and hash."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as cause:
        raise ConfigError(
            f"nodegate_requirements cannot be read: {cause.strerror}",
            where=str(path),
            remedy="name a file made by `pip-compile --generate-hashes`",
        ) from cause
    found: dict[str, Pin] = {}
    for number, line in _lines(text):
        hashes = frozenset(_HASH.findall(line))
        try:
            requirement = Requirement(re.split(r"\s--", line)[0].strip())
        except InvalidRequirement as cause:
            raise _bad_line(path, number, "is no requirement") from cause
        if not hashes or not str(requirement.specifier).startswith("=="):
            raise _bad_line(path, number, f"{requirement.name} is not pinned by version and hash")
        found[canonicalize_name(requirement.name)] = Pin(requirement, hashes)
    return found


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's contents."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _lines(text: str) -> Iterable[tuple[int, str]]:
    """Logical lines with the number of their first; comments and options are left out."""
    whole, first = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        bare = re.sub(r"(^|\s)#.*$", "", line).rstrip()
        first = first if whole else number
        whole += bare.removesuffix("\\") + " "
        if not bare.endswith("\\"):
            if whole.strip() and not whole.lstrip().startswith("-"):
                yield first, whole.strip()
            whole = ""


def _bad_line(path: Path, number: int, problem: str) -> ConfigError:
    return ConfigError(
        f"nodegate_requirements: {problem}",
        where=f"{path}:{number}",
        remedy="make the file with `pip-compile --generate-hashes`",
    )


def _refuse_unpinned(path: Path, version: str, pin: Pin) -> None:
    if not pin.requirement.specifier.contains(version, prereleases=True):
        problem = f"is not the version that nodegate_requirements pins ({pin.requirement.specifier})"
    elif file_sha256(path) not in pin.hashes:
        problem = "has a hash that nodegate_requirements does not list"
    else:
        return
    raise ConfigError(problem, where=str(path), remedy="fetch it again with `pip download --require-hashes`")


def _concerns(pin: Pin, target: Target) -> bool:
    """Whether a requirement's marker is true on the node."""
    environment = {
        "python_version": target.python,
        "python_full_version": f"{target.python}.0",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "os_name": "posix",
        "platform_machine": target.machine,
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "extra": "",
    }
    return pin.requirement.marker is None or pin.requirement.marker.evaluate(environment)
