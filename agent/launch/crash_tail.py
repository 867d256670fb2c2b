"""The end of a crashed engine's output, cut to what a journal should hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agent.launch.engine_log import EngineLog

LINES = 40
LINE_CHARS = 400

#: Hears of every crash: the engine, the reason, the last lines of its output.
OnCrash = Callable[[str, str, Sequence[str]], None]


def crash_tail(log: EngineLog) -> tuple[str, ...]:
    """Its own last lines without secrets, long ones cut: at most 16 kB of characters."""
    lines = log.own(LINES)
    return tuple(line if len(line) <= LINE_CHARS else line[: LINE_CHARS - 3] + "..." for line in lines)


def ignore_crash(_engine: str, _reason: str, _lines: Sequence[str]) -> None:
    """Nobody keeps it."""
