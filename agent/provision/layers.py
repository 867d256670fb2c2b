"""The files of a site that a host's profile is made of, in `inventories/SITE/profiles`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent.errors import ConfigError


def layer_files(folder: Path, host: str, groups: Sequence[str]) -> list[tuple[Path, Any]]:
    """The layers of a host that there are, lowest first, with their status. Raises ConfigError."""
    if "/" in host or host.startswith(".") or host.endswith(".pins"):
        remedy = "give it another name in the inventory, and its address as ansible_host"
        raise ConfigError(f"{host} cannot be the name of a host's layer", where=str(folder), remedy=remedy)
    names = ["all", *groups, f"{host}.pins", host]
    found = []
    for name in names:
        file = folder / f"{name}.yaml"
        try:
            found.append((file, file.stat()))
        except FileNotFoundError:
            continue
        except OSError as cause:
            raise ConfigError(f"cannot be read: {cause.strerror}", where=str(file)) from cause
    if not found:
        remedy = f"write {folder}/{host}.yaml, or all.yaml for all hosts of the site"
        raise ConfigError(f"{host} has no profile", where=str(folder), remedy=remedy)
    return found


def pins_file(folder: Path, host: str) -> Path:
    """Where the pins of a host are recorded."""
    return folder / f"{host}.pins.yaml"
