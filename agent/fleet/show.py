"""A fleet run for people: a table that moves on a terminal, a line for each step when piped, a summary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from agent.console import Out
from agent.fleet.progress import HostProgress, HostState, Progress

STYLES = {
    HostState.WAITING: "dim",
    HostState.RUNNING: "cyan",
    HostState.OK: "green",
    HostState.FAILED: "bold red",
    HostState.UNREACHABLE: "bold red",
    HostState.NOT_REACHED: "yellow",
}
#: Lines of a terminal that the table leaves for its head and its foot.
_AROUND = 6
_SUMMARY = ("host", "result", "last phase", "changed", "seconds", "why, and what to do")


class View(Protocol):
    """Shows progress while a run goes on."""

    def update(self, lines: Sequence[str], now_s: float) -> None:
        """Something has happened."""

    def close(self) -> None:
        """The run is over."""


class Lines:
    """For a pipe or a log: one line a step."""

    def __init__(self, out: Out) -> None:
        """Write there."""
        self._out = out

    def update(self, lines: Sequence[str], now_s: float) -> None:  # noqa: ARG002 (a line needs no time)
        """Write what has happened."""
        for text in lines:
            self._out.line(text)

    def close(self) -> None:
        """Nothing is open."""


class Moving:
    """For a terminal: a table of the hosts that is drawn anew; failures stay above it."""

    def __init__(self, progress: Progress, console: Console | None = None) -> None:
        """Draw `progress`."""
        self._progress = progress
        self._console = console or Console(highlight=False)
        self._now_s = 0.0
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._open = False

    def update(self, lines: Sequence[str], now_s: float) -> None:
        """Draw it as it is now."""
        if not self._open:
            self._live.start()
            self._open = True
        self._now_s = now_s
        for text in lines:
            if ": FAILED: " in text:
                self._console.print(Text(text, style="bold red"))
        self._live.update(self.table(self._console.height - _AROUND), refresh=True)

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self._open:
            self._live.stop()

    def table(self, most: int) -> Table:
        """At most so many hosts: what runs and what failed first."""
        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in ("host", "state", "phase", "task", "changed", "seconds"):
            table.add_column(column, no_wrap=True)
        rows = sorted(self._progress.hosts.values(), key=_interest)
        for host in rows[: max(1, most)]:
            table.add_row(
                host.name,
                Text(host.state, style=STYLES[host.state]),
                host.phase,
                Text(host.task[:48], style="dim"),
                str(host.changed),
                f"{host.seconds(self._now_s):.0f}",
            )
        done = sum(host.state is HostState.OK for host in rows)
        table.caption = f"{done} of {len(rows)} done"
        return table


def _interest(host: HostProgress) -> int:
    order = (HostState.RUNNING, HostState.FAILED, HostState.UNREACHABLE, HostState.NOT_REACHED)
    return order.index(host.state) if host.state in order else len(order)


def view_of(out: Out, progress: Progress) -> View:
    """The view that suits the output."""
    return Moving(progress) if out.is_terminal else Lines(out)


def summary_rows(progress: Progress, now_s: float) -> list[tuple[str, ...]]:
    """A row for each host, as it stands in the inventory."""
    return [
        (
            host.name,
            str(host.state),
            host.phase,
            str(host.changed),
            f"{host.seconds(now_s):.1f}",
            host.why,
        )
        for host in progress.hosts.values()
    ]


def summary_json(progress: Progress, now_s: float) -> list[dict[str, object]]:
    """The same for a program."""
    return [
        {
            "host": host.name,
            "result": str(host.state),
            "phase": host.phase,
            "changed": host.changed,
            "seconds": round(host.seconds(now_s), 1),
            "why": host.why,
        }
        for host in progress.hosts.values()
    ]


def show_summary(out: Out, progress: Progress, now_s: float) -> None:
    """The table at the end."""
    out.table(_SUMMARY, summary_rows(progress, now_s))
