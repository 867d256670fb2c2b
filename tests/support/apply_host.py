"""A node for the roles' code: files under a folder, commands as functions, systemd as a table. SIMULATED."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Sequence

from nodegate_apply.host import Host, HostError, Output

Program = Callable[[list[str]], Output]


def said(out: str = "", status: int = 0, err: str = "") -> Output:
    """What a command gives."""
    return Output(status, out, err)


class ApplyHost(Host):
    """Everything below `root`; a command that is not in `programs` is not installed."""

    def __init__(self, root: pathlib.Path) -> None:
        """An empty node with systemd."""
        super().__init__("/sys")
        self.root = root
        self.systemd = Systemd()
        self.programs: dict[str, Program] = {"systemctl": self.systemd.call}
        self.calls: list[list[str]] = []

    def path(self, path: str) -> pathlib.Path:
        """Every path lies below the root."""
        return self.root / path.lstrip("/")

    def put(self, path: str, text: str) -> None:
        """Have a file there."""
        target = self.path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def link(self, path: str, target: str) -> None:
        """Have a symbolic link there."""
        self.path(path).parent.mkdir(parents=True, exist_ok=True)
        self.path(path).symlink_to(target)

    def text(self, path: str) -> str:
        """What a file holds."""
        return self.path(path).read_text()

    def has(self, program: str) -> bool:
        """Whether a program is there."""
        return program in self.programs

    def run(self, argv: Sequence[str], timeout_s: float = 30.0, stdin: str = "") -> Output:
        """Call the program's function."""
        self.calls.append(list(argv))
        if argv[0] not in self.programs:
            raise HostError(f"{argv[0]}: is not installed on this node; install it and run again")
        return self.programs[argv[0]](list(argv[1:]))

    def asked(self, *words: str) -> int:
        """How often a command that begins with these words was run."""
        return sum(call[: len(words)] == list(words) for call in self.calls)


class Systemd:
    """Units by name: [load, active, file]."""

    def __init__(self) -> None:
        """None."""
        self.units: dict[str, list[str]] = {}
        self.swaps: dict[str, tuple[str, str]] = {}  # name -> (state, source path)
        self.exec_start: dict[str, str] = {}
        self.refused: dict[str, str] = {}  # unit -> what a start says

    def add(self, name: str, active: str = "inactive", file: str = "disabled") -> None:
        """Install a unit."""
        self.units[name] = ["loaded", active, file]

    def call(self, argv: list[str]) -> Output:
        """What systemctl does."""
        words = [word for word in argv if not word.startswith("-")]
        verb, names = words[0], words[1:]
        if verb == "show":
            return said(self._show(argv, names))
        if verb == "list-unit-files":
            rows = "".join(f"{name} {state} -\n" for name, (state, _) in self.swaps.items())
            return said(rows, 0 if rows else 1)
        if verb in ("is-enabled", "is-active"):
            unit = self.units.get(names[0])
            if unit is None:
                return said("not-found\n", 4)
            return said(f"{unit[2] if verb == 'is-enabled' else unit[1]}\n")
        for name in names:
            done = self._change(verb, name)
            if done is not None:
                return done
        return said()

    def _show(self, argv: list[str], names: list[str]) -> str:
        if any("SourcePath" in word for word in argv):
            return self.swaps[names[0]][1] + "\n"
        if any("ExecStart" in word for word in argv):
            return self.exec_start.get(names[0], "") + "\n"
        blocks = []
        for name in names:
            load, active, file = self.units.get(name, ["not-found", "inactive", ""])
            blocks.append(f"LoadState={load}\nActiveState={active}\nUnitFileState={file}\n")
        return "\n".join(blocks)

    def _change(self, verb: str, name: str) -> Output | None:
        if verb == "mask" and name in self.swaps:
            self.swaps[name] = ("masked", self.swaps[name][1])
            return None
        if name in self.refused and verb in ("start", "restart"):
            return said(err=self.refused[name], status=1)
        template = name.split("@")[0] + "@." + name.rpartition(".")[2] if "@" in name else name
        unit = self.units.setdefault(name, ["loaded", "inactive", "disabled"]) if template else None
        assert unit is not None
        if verb in ("enable", "disable", "unmask"):
            unit[2] = {"enable": "enabled", "disable": "disabled", "unmask": "disabled"}[verb]
        if verb in ("start", "restart", "stop"):
            unit[1] = "inactive" if verb == "stop" else "active"
        return None
