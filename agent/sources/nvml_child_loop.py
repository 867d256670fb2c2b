"""The NVML child's side of its pipes: a line of JSON in, a line of JSON out, until the parent is gone.

The parent may send several lines before it reads replies; they are answered one by one, each at once.
Request `{"id": 7, "op": "read", "args": {...}}`; reply `{"id": 7, "ok": {...}}` or
`{"id": 7, "refused": "NOT_FOUND"}`.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any


class Refused(Exception):
    """NVML refuses the whole request; `name` is its error without NVML_ERROR_."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def serve(operations: Mapping[str, Callable[..., dict[str, Any]]]) -> None:
    """Answer requests from standard input until its end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C at a terminal is for the parent alone
    replies = claim_stdout()
    follow_parent()
    encoded = json.JSONEncoder(separators=(",", ":"), default=_text).encode
    for line in sys.stdin.buffer:
        request = json.loads(line.decode())
        try:
            reply = {"id": request["id"], "ok": operations[request["op"]](**request["args"])}
        except Refused as no:
            reply = {"id": request["id"], "refused": no.name}
        write_all(replies, encoded(reply).encode() + b"\n")


def claim_stdout() -> int:
    """Keep the reply pipe for replies: what a library prints on standard output goes to standard error."""
    replies = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return replies


def follow_parent() -> None:
    """End with the parent, in a thread of its own."""
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    """End this process when the parent closes standard input, even while NVML hangs in the main thread.

    PR_SET_PDEATHSIG would not do: it fires when the parent's *thread* that started this process ends.
    """
    poll = select.poll()
    poll.register(sys.stdin.fileno(), 0)  # no events: only POLLHUP is reported
    poll.poll()
    os._exit(0)


def write_all(descriptor: int, data: bytes) -> None:
    """Write everything."""
    while data:
        data = data[os.write(descriptor, data) :]


def _text(value: object) -> str:
    """Older bindings return bytes where newer ones return text."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    raise TypeError(f"{value!r} of an NVML reply is not JSON")
