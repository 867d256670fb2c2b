"""Output for people: tables and colour on a terminal, plain aligned lines when piped."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import IO

from rich.console import Console
from rich.table import Table
from rich.text import Text

#: Colour of each verdict and gate state; words without an entry stay plain.
STYLES = {
    "PASS": "green",
    "WARN": "yellow",
    "FAIL": "bold red",
    "UNKNOWN": "magenta",
    "SKIP": "dim",
    "serving": "bold green",
    "degraded": "bold yellow",
    "member": "bold green",
    "booting": "cyan",
    "preflight": "cyan",
    "launching": "cyan",
    "warming": "cyan",
    "draining": "yellow",
    "stopped": "dim",
    "failed": "bold red",
    "quarantined": "bold red",
    "maintenance": "bold magenta",
}
SIMULATED_TEXT = "SIMULATED: these readings come from {}, not from this machine"


class Out:
    """Writes to one stream, as a terminal or as a pipe needs it."""

    def __init__(self, stream: IO[str] | None = None) -> None:
        """Write to `stream`, by default to stdout as it is now."""
        self._stream = stream or sys.stdout
        self._console = Console(file=self._stream, highlight=False, soft_wrap=True)

    @property
    def is_terminal(self) -> bool:
        """Whether a person watches."""
        return self._console.is_terminal

    def line(self, text: str = "", style: str = "") -> None:
        """One line; `style` is used on a terminal only. Flushed, because a pipe's reader may be waiting."""
        if self.is_terminal:
            self._console.print(Text(text, style=style))
        else:
            self._stream.write(f"{text}\n")
            self._stream.flush()

    def banner(self, simulated: bool, folder: str = "") -> None:
        """Say that readings are not real, when they are not, and which node folder they come from."""
        if simulated:
            origin = f"the node folder {folder}" if folder else "a node folder"
            self.line(SIMULATED_TEXT.format(origin), style="black on yellow")

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]], title: str = "") -> None:
        """A table; a cell that is a verdict or a gate state gets its colour, an empty one is `-`.

        The last one of a row may stay empty: what it would be padded with wraps on a terminal.
        """
        cells = [[*(_cell(value) or "-" for value in row[:-1]), _cell(row[-1])] for row in rows]
        if self.is_terminal:
            self._rich_table(columns, cells, title)
        else:
            for text in plain_table(columns, cells):
                self.line(text)

    def _rich_table(self, columns: Sequence[str], cells: list[list[str]], title: str) -> None:
        table = Table(
            title=title or None, title_justify="left", box=None, pad_edge=False, header_style="bold"
        )
        for column in columns:
            table.add_column(column, overflow="fold")
        for row in cells:
            table.add_row(*(Text(cell, style=STYLES.get(cell.partition(" (")[0], "")) for cell in row))
        self._console.print(table, soft_wrap=False)


def _cell(value: object) -> str:
    """Text of one cell; a line break would break the table."""
    return "" if value is None else " ".join(str(value).split())


def plain_table(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table without colour or frames: columns aligned, the last one as long as it is."""
    grid = [list(columns), *[list(row) for row in cells]]
    widths = [max(len(row[i]) for row in grid) for i in range(len(columns))]
    return [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in grid
    ]
