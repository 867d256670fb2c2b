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
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing import connection
from typing import Any

#: prctl(2): a child dies with the thread that made it.
_PR_SET_PDEATHSIG = 1
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
    # Pipes, not a queue: that needs named semaphores, which would be left when this is killed.
    pipes = [context.Pipe(duplex=False) for _ in range(count)]
    running = [
        context.Process(target=_run, args=(work, order, number, pipes[number][1]), daemon=True)
        for number in range(count)
    ]
    waiting: dict[Any, int] = {pipe[0]: number for number, pipe in enumerate(pipes)}
    until_s = time.monotonic() + limit_s
    try:
        for process, pipe in zip(running, pipes, strict=True):
            process.start()
            pipe[1].close()
        while waiting:
            ready = connection.wait(list(waiting), timeout=max(0.0, until_s - time.monotonic()))
            for end in ready or list(waiting):
                number = waiting[end]
                answer = _answer(end, running[number], number) if ready else _late(number)
                if "error" in answer or "done" in answer:
                    del waiting[end]
                yield number, answer
    finally:
        for process in running:
            if process.pid is not None:
                process.kill()
                process.join()


def _answer(end: Any, process: Any, number: int) -> Answer:
    """What a process has said; its end without a word is an error."""
    try:
        found = end.recv()
    except EOFError:
        process.join(timeout=5.0)
        silent = f"process {number} ended with exit status {process.exitcode} and said nothing"
        return {"error": silent}
    assert isinstance(found, dict)
    return found


def _late(number: int) -> Answer:
    return {"error": f"process {number} has given no answer in time"}


def _run(work: Work, order: Order, number: int, out: Any) -> None:
    """One process: whatever happens to it becomes an answer."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        work(order, number, out.send)
    # The edge of this process: nobody above could catch it, and the text is all that is ever seen of it.
    except BaseException as cause:  # noqa: BLE001
        out.send({"error": _one_line(cause)})


def _one_line(cause: BaseException) -> str:
    words = " ".join(str(cause).split())[:_LONGEST_ERROR]
    return f"{type(cause).__name__}: {words}" if words else type(cause).__name__
