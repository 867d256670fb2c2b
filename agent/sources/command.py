"""Run a command with a deadline: no shell, its own process group, bounded output, a minimal environment.

A process that survives SIGKILL is stuck in the kernel (a dead NFS server, a wedged driver). It cannot be
ended, so no other one is started beside it: until it has gone, the same question raises SourceTimeout.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agent.errors import SourceTimeout, SourceUnavailable

ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", "LANG": "C"}
LIMIT_B = 1 << 18
#: How long a killed process may take to go before it counts as stuck.
REAP_S = 0.5
_CHUNK_B = 1 << 16

Process = subprocess.Popen[bytes]


@dataclass(frozen=True, slots=True)
class Output:
    """How a command ended (negative: by that signal), what it wrote, and how long it took in seconds."""

    status: int
    text: str
    errors: str
    took_s: float


class Commands:
    """Starts commands; safe to use from many threads. `key` names what is asked; one at a time of each."""

    def __init__(self) -> None:
        """Nothing runs yet."""
        self._lock = threading.Lock()
        self._turns: dict[str, threading.Lock] = {}
        self._stuck: dict[str, tuple[Process, float]] = {}

    def run(
        self,
        argv: Sequence[str],
        *,
        deadline_s: float,
        key: str,
        limit_b: int = LIMIT_B,
        env: Mapping[str, str] = ENVIRONMENT,
    ) -> Output:
        """Run `argv` to its end, whatever its exit status; `env` is all the environment that it gets.

        Raises SourceTimeout (it or an earlier one of this key has not ended in time) and SourceUnavailable
        (it cannot be started, or writes more than `limit_b` bytes).
        """
        with self._lock:
            turn = self._turns.setdefault(key, threading.Lock())
        if not turn.acquire(timeout=deadline_s):
            raise SourceTimeout(f"{key}: no answer within {deadline_s:g} s")
        try:
            self._refuse_if_stuck(key)
            return self._run(argv, deadline_s, key, limit_b, env)
        finally:
            turn.release()

    @property
    def stuck(self) -> tuple[str, ...]:
        """What was asked of commands that survived SIGKILL and still do."""
        with self._lock:
            return tuple(key for key, (process, _) in self._stuck.items() if process.poll() is None)

    def _refuse_if_stuck(self, key: str) -> None:
        with self._lock:
            if key not in self._stuck:
                return
            process, since_s = self._stuck[key]
            if process.poll() is None:
                waited_s = time.monotonic() - since_s
                raise SourceTimeout(
                    f"{key}: process {process.pid} has hung in the kernel for {waited_s:.0f} s"
                )
            del self._stuck[key]

    def _run(
        self, argv: Sequence[str], deadline_s: float, key: str, limit_b: int, env: Mapping[str, str]
    ) -> Output:
        started_s = time.monotonic()
        try:
            process = subprocess.Popen(
                list(argv),
                env=dict(env),
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                process_group=0,
            )
        except (OSError, ValueError) as cause:  # ValueError: a NUL in an argument
            reason = cause.strerror if isinstance(cause, OSError) else str(cause)
            raise SourceUnavailable(f"cannot start {argv[0]}: {reason}") from cause
        try:
            written = _collect(process, started_s + deadline_s, limit_b)
            return Output(process.returncode, *written, time.monotonic() - started_s)
        except _Late as cause:
            raise SourceTimeout(f"{key}: no answer within {deadline_s:g} s") from cause
        except _TooMuch as cause:
            raise SourceUnavailable(f"{argv[0]} writes more than {limit_b} bytes") from cause
        finally:
            self._end(process, key, started_s)

    def _end(self, process: Process, key: str, started_s: float) -> None:
        """Leave nothing of it behind: no descriptors and, as far as the kernel lets us, no processes."""
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            try:
                process.wait(timeout=REAP_S)
            except subprocess.TimeoutExpired:
                with self._lock:
                    self._stuck[key] = (process, started_s)


class _Late(Exception):
    """The deadline has passed."""


class _TooMuch(Exception):
    """More output than allowed."""


def _collect(process: Process, end_s: float, limit_b: int) -> tuple[str, str]:
    """Read both pipes to their ends, then wait for the process: what it wrote. Raises _Late, _TooMuch."""
    assert process.stdout is not None
    assert process.stderr is not None
    written: dict[int, list[bytes]] = {process.stdout.fileno(): [], process.stderr.fileno(): []}
    names = tuple(written)
    poller = select.poll()
    for descriptor in names:
        poller.register(descriptor, select.POLLIN)
    open_ends, size_b = len(names), 0
    while open_ends:
        ready = poller.poll(max(0.0, end_s - time.monotonic()) * 1000)
        if not ready:
            raise _Late
        for descriptor, _ in ready:
            data = os.read(descriptor, _CHUNK_B)
            written[descriptor].append(data)
            size_b += len(data)
            if not data:
                poller.unregister(descriptor)
                open_ends -= 1
        if size_b > limit_b:
            raise _TooMuch
    try:
        process.wait(timeout=max(0.0, end_s - time.monotonic()))
    except subprocess.TimeoutExpired as cause:
        raise _Late from cause
    text, errors = (b"".join(written[name]).decode(errors="replace") for name in names)
    return text, errors
