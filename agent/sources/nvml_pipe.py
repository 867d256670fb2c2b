"""One NVML child process and the pipes to it: ask with a deadline, kill, reap. One caller at a time."""

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
        self._stderr = b""
        self._next_id = 0
        for pipe in (self.process.stdout, self.process.stderr):
            os.set_blocking(_fd(pipe), False)

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self.process.poll() is None

    def ask(self, op: str, args: Mapping[str, object], deadline_s: float) -> dict[str, Any]:
        """Send one request and wait for its reply. Raises ChildLate, ChildGone, ChildGarbled."""
        self._next_id += 1
        request = json.dumps({"id": self._next_id, "op": op, "args": args}, separators=(",", ":"))
        end_s = time.monotonic() + deadline_s
        try:
            os.write(_fd(self.process.stdin), request.encode() + b"\n")
        except BrokenPipeError:
            raise ChildGone(self._how_it_ended()) from None
        reply = _parsed(self._line(end_s))
        if reply.get("id") != self._next_id:
            raise ChildGarbled(f"a reply to request {reply.get('id')!r} instead of {self._next_id}")
        return reply

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()

    def close_pipes(self) -> None:
        """Close the parent's ends; the child leaves by itself when it can."""
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()

    def _line(self, end_s: float) -> bytes:
        """One line of the child's output, read until `end_s`; its standard error is kept empty meanwhile."""
        output, errors = _fd(self.process.stdout), _fd(self.process.stderr)
        poll = select.poll()
        poll.register(output, select.POLLIN)
        poll.register(errors, select.POLLIN)
        line = b""
        while not line.endswith(b"\n"):
            left_s = end_s - time.monotonic()
            if left_s <= 0:
                raise ChildLate
            ready = {descriptor for descriptor, _ in poll.poll(math.ceil(left_s * 1000))}
            if errors in ready and not self._drain_stderr():
                poll.unregister(errors)
            if output in ready:
                data = os.read(output, 65536)
                if not data:
                    raise ChildGone(self._how_it_ended())
                line += data
                if len(line) > MAX_REPLY_B:
                    raise ChildGarbled("a reply without end")
        return line

    def _drain_stderr(self) -> bool:
        """Keep the newest standard error; False at its end."""
        with contextlib.suppress(BlockingIOError):
            data = os.read(_fd(self.process.stderr), 65536)
            self._stderr = (self._stderr + data)[-MAX_STDERR_B:]
            return bool(data)
        return True

    def _how_it_ended(self) -> str:
        """Its exit status and the last thing it said."""
        ended = reap(self.process, 0.5)
        self._drain_stderr()
        ending = _exit_text(self.process.returncode) if ended else "closed its pipe"
        said = self._stderr.decode(errors="replace").strip().splitlines()
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
        reply = json.loads(line)
    except ValueError:
        raise ChildGarbled(f"{line[:60]!r}") from None
    if not isinstance(reply, dict):
        raise ChildGarbled(f"{line[:60]!r}")
    return reply
