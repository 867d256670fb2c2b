"""The environment of a launch while it is put together (pure)."""

from __future__ import annotations

import re
from collections.abc import Mapping

from agent.errors import LaunchError

#: Marks every process of an engine; its value names engine, state directory and launch.
MARKER = "NODEGATE_ENGINE"
#: Where variables that are passed on from the agent come from.
AGENT = "the agent's environment"
_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")


class LaunchEnvironment:
    """Later values win, and an override is noted."""

    def __init__(self, engine: str) -> None:
        self.engine = engine
        self.values: dict[str, str] = {}
        self.origins: dict[str, str] = {}
        self.notes: list[str] = []

    @property
    def inherited(self) -> frozenset[str]:
        """The variables that come from the agent."""
        return frozenset(name for name, origin in self.origins.items() if origin == AGENT)

    def add(self, values: Mapping[str, str], origin: str, *, note: bool = False) -> None:
        """Set variables; with `note` say what they replace."""
        for name, value in values.items():
            where = f"engine {self.engine}: {origin}"
            if not _NAME.fullmatch(name) or "\0" in value:
                raise LaunchError(f"{where}: {name!r} is not a usable environment variable")
            if name == MARKER:
                raise LaunchError(f"{where}: {MARKER} is set by nodegate itself; remove it")
            if note and self.values.get(name, value) != value:
                self.notes.append(f"{name} from {origin} replaces the one from {self.origins[name]}")
            self.values[name] = value
            self.origins[name] = origin


def refuse_reserved(name: str, secrets: Mapping[str, str]) -> None:
    """Secrets must not move the engine to other GPUs or hide its marker, for nothing would show it."""
    for key in secrets:
        if key in (MARKER, "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
            raise LaunchError(
                f"engine {name}: launch.env_file sets {key}, which is not a secret; remove it there"
            )
