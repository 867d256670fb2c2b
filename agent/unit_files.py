"""The files that make nodegate a service of systemd, and where each belongs. They are data of the package.

Units name the program as /opt/nodegate/bin/nodegate; installed, they name the one of the environment that
installs them.
"""

from __future__ import annotations

import importlib.resources
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from agent.errors import ConfigError

PREFIX = "/opt/nodegate"
FOR_PROCESSES = "process-supervision.conf"
#: Suffix of a file -> its folder. The names of the others are given by theirs.
FOLDERS = {
    ".service": "/etc/systemd/system",
    ".timer": "/etc/systemd/system",
    ".slice": "/etc/systemd/system",
    ".rules": "/etc/polkit-1/rules.d",
}
PLACES = {
    "nodegate.sysusers": "/etc/sysusers.d/nodegate.conf",
    "nodegate.tmpfiles": "/etc/tmpfiles.d/nodegate.conf",
    FOR_PROCESSES: f"/etc/systemd/system/nodegate.service.d/{FOR_PROCESSES}",
}


@dataclass(frozen=True, slots=True)
class UnitFile:
    """One file: its name in the package, where it belongs, what is in it."""

    name: str
    path: Path
    text: str


def unit_files(prefix: str = PREFIX, *, processes: bool = False) -> list[UnitFile]:
    """Every file; with `processes` also the one for engines that are children of the agent."""
    files = []
    for entry in sorted(importlib.resources.files("agent").joinpath("units").iterdir(), key=lambda e: e.name):
        # Drop-ins are for those who ask for them; what one is for stands at its head.
        if entry.name.endswith(".conf") and not (processes and entry.name == FOR_PROCESSES):
            continue
        path = PLACES.get(entry.name) or f"{FOLDERS[Path(entry.name).suffix]}/{entry.name}"
        text = entry.read_text().replace(f"{PREFIX}/", f"{prefix}/")
        files.append(UnitFile(entry.name, Path(path), text))
    return files


def changed(file: UnitFile, root: Path) -> bool:
    """Whether the file below `root` is another than this, or not there."""
    try:
        return _below(root, file).read_bytes() != file.text.encode()
    except FileNotFoundError:
        return True
    except OSError as cause:
        raise _cannot(_below(root, file), cause) from cause


def install(file: UnitFile, root: Path) -> None:
    """Write it below `root`, whole or not at all. Raises ConfigError."""
    path = _below(root, file)
    try:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        descriptor, beside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(descriptor, "wb") as out:
            out.write(file.text.encode())
            os.fchmod(descriptor, 0o644)
        Path(beside).replace(path)
    except OSError as cause:
        raise _cannot(path, cause) from cause


def _below(root: Path, file: UnitFile) -> Path:
    return root / file.path.relative_to("/")


def _cannot(path: Path, cause: OSError) -> ConfigError:
    return ConfigError(
        f"cannot be installed: {cause.strerror or cause}",
        where=str(path),
        remedy="run it as root, or write elsewhere with --root DIR",
    )
