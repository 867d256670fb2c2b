"""What the agent is told by signals before it can follow them: unhandled, they would end it in the middle.

Handlers and no mask: a program that the agent starts would inherit a blocked SIGTERM, and an engine that does
not hear it cannot be ended in order.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

#: SIGINT ends a start as it ends any command.
NUMBERS = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)


@contextlib.contextmanager
def early_signals() -> Iterator[list[signal.Signals]]:
    """Note them in the order of arrival, in a list that grows until others handle them. Main thread alone.

    A second SIGTERM ends the process: a start that hangs can be ended so.
    """
    heard: list[signal.Signals] = []

    def note(number: int, _frame: FrameType | None) -> None:
        heard.append(signal.Signals(number))
        if number == signal.SIGTERM:
            signal.signal(number, signal.SIG_DFL)

    before = {number: signal.signal(number, note) for number in NUMBERS}
    try:
        yield heard
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
