"""What the flags of a launch come to, for rules that look at several: command line over file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agent.launch.lint.names import Used

_COUNT = re.compile(r"(\d+(?:\.\d+)?)([kKmMgGtT]?)$")
#: As the engine reads them: small letters are powers of 1000, capital ones of 1024.
_FACTORS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@dataclass(frozen=True, slots=True)
class Gpus:
    """The GPUs of the engine on this node."""

    uuids: Sequence[str]

    @property
    def count(self) -> int:
        """How many."""
        return len(self.uuids)


class Settings:
    """Values by the flag's first long name."""

    def __init__(self, used: Iterable[Used]) -> None:
        """The last one given counts, the command line's before any of a file."""
        self._used: dict[str, Used] = {}
        for one in sorted(used, key=lambda each: not each.given.file):
            self._used[one.flag.name] = one

    def given(self, name: str) -> Used | None:
        """The flag as it counts."""
        return self._used.get(name)

    def on(self, name: str) -> bool:
        """Whether it is given and says yes: a switch that is on, or a value other than 0."""
        used = self._used.get(name)
        if used is None or used.off:
            return False
        if used.flag.kind in ("toggle", "switch", "list"):
            return True
        return self.text(name) not in ("0", "0.0", "None")

    def off(self, name: str) -> bool:
        """Whether it is given as `--no-...`."""
        used = self._used.get(name)
        return used is not None and used.off

    def text(self, name: str) -> str | None:
        """Its first value."""
        used = self._used.get(name)
        return used.given.words[0] if used is not None and used.given.words else None

    def texts(self, name: str) -> tuple[str, ...]:
        """All its values."""
        used = self._used.get(name)
        return used.given.words if used is not None else ()

    def count(self, name: str) -> int | None:
        """Its value as a whole number, `8k` and `8K` too; None where it is none."""
        match = _COUNT.match(self.text(name) or "")
        if match is None:
            return None
        number, suffix = match.groups()
        if suffix in _BINARY:
            return int(number) * _BINARY[suffix] if number.isdecimal() else None
        return int(float(number) * _FACTORS[suffix])

    def number(self, name: str) -> float | None:
        """Its value as a number; None where it is none."""
        try:
            return float(self.text(name) or "")
        except ValueError:
            return None
