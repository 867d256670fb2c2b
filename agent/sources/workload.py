"""Workloads of measured tests: the protocol, and what a node without any answers.

A workload is a program that loads the GPUs, in the engine's own Python; it prints JSON lines and is ended
whole. On a replayed node none is started: what such a test found there is in the folder (measured.json), and
is told as SIMULATED.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from agent.errors import SourceUnavailable


@dataclass(frozen=True, slots=True)
class WorkloadEnd:
    """How a workload's first process ended (negative: by that signal), and its last complaints."""

    status: int
    errors: str


class Workload(Protocol):
    """A program that runs."""

    def lines(self) -> list[str]:
        """The whole lines that it has printed since the last call. Raises SourceUnavailable: too many."""

    def ended(self) -> WorkloadEnd | None:
        """How it ended, None while it runs."""

    def note(self) -> None:
        """Look which shared memory it maps now, to be removed when it is gone. May hang as /proc may."""

    def stop(self, deadline_s: float) -> tuple[str, ...]:
        """End all of it and wait until it is gone: what is still there after the deadline, in words."""


class Workloads(Protocol):
    """Where workloads are started."""

    def start(self, argv: Sequence[str], env: Mapping[str, str], working_dir: str | None) -> Workload:
        """Start one; `env` is all its environment. Raises SourceUnavailable."""

    def recorded(self, test: str) -> Mapping[str, float]:
        """What a measured test found on a replayed node. Raises SourceUnavailable: nothing is known."""


class NoWorkloads:
    """A node on which nothing can be started and nothing is known."""

    def start(self, argv: Sequence[str], env: Mapping[str, str], working_dir: str | None) -> Workload:
        """Raise SourceUnavailable."""
        del env, working_dir
        raise SourceUnavailable(f"{argv[0]} cannot be started here")

    def recorded(self, test: str) -> Mapping[str, float]:
        """Raise SourceUnavailable."""
        raise SourceUnavailable(f"nothing is recorded of {test} on this node")


class ReplayWorkloads(NoWorkloads):
    """A replayed node: figures of its folder, and nothing is started."""

    def __init__(self, measured: Mapping[str, Mapping[str, float]] | None) -> None:
        """Answer from the folder's measured.json."""
        self._measured = measured or {}

    def recorded(self, test: str) -> Mapping[str, float]:
        """The figures of one test."""
        if test not in self._measured:
            raise SourceUnavailable(f"the node's folder records nothing of {test} (measured.json)")
        return self._measured[test]
