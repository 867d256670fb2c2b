"""One NVML child process and the pipes to it: send, receive with a deadline, kill. One caller at a time."""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

MAX_REPLY_B = 1 << 20
#: How much of the child's standard error is kept to explain its end.
MAX_STDERR_B = 4096

#: json.dumps would build an encoder for every line.
_encoded = json.JSONEncoder(separators=(",", ":")).encode

Process = subprocess.Popen[bytes]
#: Waits up to some seconds for a killed process; False if it is still there (stuck in the kernel).
Reaper = Callable[[Process, float], bool]


class ChildLate(Exception):
    """No reply within the deadline."""


class ChildGone(Exception):
    """The child ended instead of replying; the text says how."""


class ChildGarbled(Exception):
    """The child wrote something that is not the reply; the text says what."""


def reap(process: Process, wait_s: float) -> bool:
    """Wait for a killed process up to `wait_s` seconds and collect it."""
    try:
        process.wait(timeout=wait_s)
    except subprocess.TimeoutExpired:
        return False
    return True


class NvmlChild:
    """A running child."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str]) -> None:
        """Start it; OSError when that is not possible."""
        self.process: Process = subprocess.Popen(
            list(argv),
            env=dict(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            process_group=0,
        )
        self._stdin, self._stdout, self._stderr = (
            _fd(pipe) for pipe in (self.process.stdin, self.process.stdout, self.process.stderr)
        )
        self._buffer = b""
        self._said = b""
        self._sent = self._received = 0
        self._poll = select.poll()
        for pipe in (self._stdout, self._stderr):
            os.set_blocking(pipe, False)
            self._poll.register(pipe, select.POLLIN)

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self.process.poll() is None

    def send(self, requests: Sequence[tuple[str, Mapping[str, object]]]) -> None:
        """Send (operation, arguments) in one go; they are answered in turn. Raises ChildGone.

        Together they must fit into a pipe, or this would wait for a process that may hang.
        """
        lines = []
        for op, args in requests:
            self._sent += 1
            lines.append(_encoded({"id": self._sent, "op": op, "args": args}))
        data = ("\n".join(lines) + "\n").encode()
        try:
            while data:
                data = data[os.write(self._stdin, data) :]
        except BrokenPipeError:
            raise ChildGone(self._how_it_ended()) from None

    def receive(self, deadline_s: float) -> dict[str, Any]:
        """The reply to the oldest request that has none yet. Raises ChildLate, ChildGone, ChildGarbled."""
        self._received += 1
        reply = self.line(deadline_s)
        if reply.get("id") != self._received:
            raise ChildGarbled(f"a reply to request {reply.get('id')!r} instead of {self._received}")
        return reply

    def line(self, deadline_s: float) -> dict[str, Any]:
        """The next object that it says. Raises ChildLate, ChildGone, ChildGarbled."""
        return _parsed(self._line(time.monotonic() + deadline_s))

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()

    def close_pipes(self) -> None:
        """Close the parent's ends; the child leaves by itself when it can."""
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()

    def _line(self, end_s: float) -> bytes:
        """One line of the child's output, read until `end_s`."""
        while (end := self._buffer.find(b"\n")) < 0:
            if len(self._buffer) > MAX_REPLY_B:
                raise ChildGarbled("a reply without end")
            left_s = end_s - time.monotonic()
            if left_s <= 0:
                raise ChildLate
            self._read_more(left_s)
        line, self._buffer = self._buffer[:end], self._buffer[end + 1 :]
        return line

    def _read_more(self, wait_s: float) -> None:
        """Wait for output and take it; standard error is kept empty meanwhile."""
        ready = {descriptor for descriptor, _ in self._poll.poll(math.ceil(wait_s * 1000))}
        if self._stderr in ready and not self._drain_stderr():
            self._poll.unregister(self._stderr)
        if self._stdout in ready:
            data = os.read(self._stdout, 65536)
            if not data:
                raise ChildGone(self._how_it_ended())
            self._buffer += data

    def _drain_stderr(self) -> bool:
        """Keep the newest standard error; False at its end."""
        with contextlib.suppress(BlockingIOError):
            data = os.read(self._stderr, 65536)
            self._said = (self._said + data)[-MAX_STDERR_B:]
            return bool(data)
        return True

    def _how_it_ended(self) -> str:
        """Its exit status and the last thing it said."""
        ended = reap(self.process, 0.5)
        self._drain_stderr()
        ending = _exit_text(self.process.returncode) if ended else "closed its pipe"
        said = self._said.decode(errors="replace").strip().splitlines()
        return f"{ending} ({said[-1][:200]})" if said else ending


def _exit_text(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


def _fd(pipe: Any) -> int:
    descriptor: int = pipe.fileno()
    return descriptor


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        reply = json.loads(line.decode())
    except ValueError:
        raise ChildGarbled(f"{line[:60]!r}") from None
    if not isinstance(reply, dict):
        raise ChildGarbled(f"{line[:60]!r}")
    return reply
