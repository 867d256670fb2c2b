"""Event-driven news of process deaths.

A pidfd becomes readable the moment its process ends (pidfd_open(2)).
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

from agent.sources.processes import ProcessStat, process

Key = tuple[int, int]


class DeathWatch:
    """Watches any number of processes on one event loop, children or not."""

    def __init__(self, on_death: Callable[[ProcessStat], None]) -> None:
        """Prepare; `on_death` is called on the event loop, once for each watched process."""
        self._on_death = on_death
        self._loop = asyncio.get_running_loop()
        self._descriptors: dict[Key, int] = {}
        #: A look that began before a death may still bring it: nobody is told of it twice.
        self._told: set[Key] = set()

    def watch(self, stat: ProcessStat) -> None:
        """Watch one process; one that has ended meanwhile is reported in the loop's next turn."""
        if stat.key in self._descriptors or stat.key in self._told:
            return
        descriptor = open_pidfd(stat)
        if descriptor is None:
            self._told.add(stat.key)
            self._loop.call_soon(self._on_death, stat)
            return
        self._descriptors[stat.key] = descriptor
        self._loop.add_reader(descriptor, self._ended, stat)

    def _ended(self, stat: ProcessStat) -> None:
        self._drop(stat.key)
        self._told.add(stat.key)
        self._on_death(stat)

    def _drop(self, key: Key) -> None:
        descriptor = self._descriptors.pop(key)
        self._loop.remove_reader(descriptor)
        os.close(descriptor)

    def close(self) -> None:
        """Watch nothing any more."""
        for key in list(self._descriptors):
            self._drop(key)


def open_pidfd(stat: ProcessStat) -> int | None:
    """A pidfd of exactly this process; None when it has ended, even if its number is another's now."""
    try:
        descriptor = os.pidfd_open(stat.pid)
    except ProcessLookupError:
        return None
    now = process(stat.pid)
    if now is None or now.key != stat.key:
        os.close(descriptor)
        return None
    return descriptor


def send(stat: ProcessStat, number: signal.Signals) -> None:
    """Signal exactly this process; does nothing when it has ended."""
    try:
        descriptor = open_pidfd(stat)
    except OSError:  # no descriptor is left: a number that is looked at just before is nearly as exact
        _send_by_number(stat, number)
        return
    if descriptor is None:
        return
    try:
        signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return
    finally:
        os.close(descriptor)


def _send_by_number(stat: ProcessStat, number: signal.Signals) -> None:
    now = process(stat.pid)
    if now is not None and now.key == stat.key:
        os.kill(stat.pid, number)
