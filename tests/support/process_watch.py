"""Looks at words and environment of every process, again and again, for secrets that must not be there.

Hosts of the rig are in this machine's process tree, so that one look sees theirs too.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Self

PERIOD_S = 0.2
#: What an engine runs as: its own secrets are meant to be in its environment.
ENGINE = b"agent.launch.embedded_"


class ProcessWatch:
    """A thread that notes (secret, where, the process's words) of each leak."""

    def __init__(self, values: Mapping[str, str]) -> None:
        """Watch for these, by name."""
        self._values = {name: value.encode() for name, value in values.items()}
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.leaks: set[tuple[str, str, str]] = set()
        self.looks = 0
        self.saw_ansible = False

    def __enter__(self) -> Self:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End."""
        self.close()

    def close(self) -> None:
        """End; what was found stays."""
        self._end.set()
        self._thread.join(10)

    def now(self) -> list[bytes]:
        """Words of all processes."""
        found = []
        for folder in processes():
            with contextlib.suppress(OSError):
                found.append((folder / "cmdline").read_bytes())
        return found

    def _watch(self) -> None:
        while not self._end.wait(PERIOD_S):
            self.looks += 1
            for folder in processes():
                with contextlib.suppress(OSError):
                    self._look(folder)

    def _look(self, folder: Path) -> None:
        line = (folder / "cmdline").read_bytes()
        self.saw_ansible = self.saw_ansible or b"ansible-playbook" in line
        places = {"words": line, "environment": (folder / "environ").read_bytes()}
        for place, data in places.items():
            for name, value in self._values.items():
                meant = ENGINE in line and (name, place) == ("engine secret", "environment")
                if value in data and not meant:
                    self.leaks.add((name, place, line.replace(b"\0", b" ").decode(errors="replace")))


def processes() -> Iterator[Path]:
    """The folder of each process."""
    return (folder for folder in Path("/proc").iterdir() if folder.name.isdigit())
