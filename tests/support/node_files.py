"""A host whose files lie in a folder of the test, and whose commands are the test's own functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from nodegate_apply.host import Host, HostError, Output


class FolderHost(Host):
    """Every absolute path is below `root`; `answer` gives what a command says, and all are kept in `ran`."""

    def __init__(self, root: Path, answer: Callable[[list[str]], Output] | None = None) -> None:
        """Commands without an answer are not installed."""
        super().__init__()
        self.root = root
        self.answer = answer
        self.ran: list[list[str]] = []

    def path(self, path: str) -> Path:
        """Below the root, unless it is there already."""
        return Path(path) if path.startswith(str(self.root)) else self.root / path.lstrip("/")

    def run(self, argv: Sequence[str], timeout_s: float = 30.0, stdin: str = "") -> Output:
        """Ask the test."""
        self.ran.append(list(argv))
        if self.answer is None:
            raise HostError(f"{argv[0]}: is not installed on this node; install it and run again")
        return self.answer(list(argv))
