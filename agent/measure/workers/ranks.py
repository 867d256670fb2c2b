"""One process a GPU, in the engine's own Python (never in nodegate's): started, heard, none left behind.

Used by the workers beside it, which are scripts: their folder is the first on the path, so that nothing of
nodegate is imported. Whoever started the script holds its standard input open; when that ends, so does the
script, and with it every process of it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import multiprocessing
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

#: prctl(2): a child dies with the thread that made it.
_PR_SET_PDEATHSIG = 1
_POLL_S = 0.2
_LONGEST_ERROR = 300

Order = dict[str, Any]
Answer = dict[str, Any]
#: What one process does: its order, its number on this node, and where its answers go.
Work = Callable[[Order, int, Callable[[Answer], None]], None]


def read_order() -> Order:
    """The one argument, a JSON object; from here on the script ends with its standard input."""
    threading.Thread(target=_end_with_input, daemon=True).start()
    order = json.loads(sys.argv[1])
    assert isinstance(order, dict), "the argument is no JSON object"
    return order


def _end_with_input() -> None:
    """Wait for the end of standard input, then take the whole process group along."""
    with contextlib.suppress(OSError):
        while os.read(0, 4096):
            pass
    os.killpg(os.getpgrp(), signal.SIGKILL)


def say(answer: Answer) -> None:
    """One JSON line."""
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def answers(work: Work, order: Order, count: int, limit_s: float) -> Iterator[tuple[int, Answer]]:
    """Run `work` in `count` processes; what they answer, as it comes, until each has said its last.

    An answer with `error` or `done` is a process's last. A process that ends without one, and the time
    `limit_s` over, are answers with `error` too. Nothing of them is left when this is left.
    """
    context = multiprocessing.get_context("spawn")
    inbox: Any = context.Queue()
    running = [
        context.Process(target=_run, args=(work, order, number, inbox), daemon=True)
        for number in range(count)
    ]
    waiting = dict(enumerate(running))
    until_s = time.monotonic() + limit_s
    try:
        for process in running:
            process.start()
        while waiting:
            for number, answer in _heard(inbox, waiting, late=time.monotonic() > until_s):
                if "error" in answer or "done" in answer:
                    waiting.pop(number, None)
                yield number, answer
    finally:
        for process in running:
            if process.pid is not None:
                process.kill()
                process.join()


def _heard(inbox: Any, waiting: dict[int, Any], *, late: bool) -> list[tuple[int, Answer]]:
    """What has come by now, else which processes are gone, or late."""
    if late:
        return [(number, {"error": f"process {number} has given no answer in time"}) for number in waiting]
    gone = [number for number, process in waiting.items() if not process.is_alive()]
    try:
        return [inbox.get(timeout=_POLL_S)]
    except queue.Empty:  # those that were gone before this wait have nothing more to say
        silent = "process {} ended with exit status {} and said nothing"
        return [(at, {"error": silent.format(at, waiting[at].exitcode)}) for at in gone]


def _run(work: Work, order: Order, number: int, inbox: Any) -> None:
    """One process: whatever happens to it becomes an answer."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        work(order, number, lambda answer: inbox.put((number, answer)))
    # The edge of this process: nobody above could catch it, and the text is all that is ever seen of it.
    except BaseException as cause:  # noqa: BLE001
        inbox.put((number, {"error": _one_line(cause)}))
    inbox.close()
    inbox.join_thread()


def _one_line(cause: BaseException) -> str:
    words = " ".join(str(cause).split())[:_LONGEST_ERROR]
    return f"{type(cause).__name__}: {words}" if words else type(cause).__name__
