"""A program: `nodegate` as it is, but a scenario's time begins at SIGUSR2, and standard error tells when.

So a test can wait until the gates are open, however slow the machine is, before the first fault comes.
"""

from __future__ import annotations

import signal
import sys
import time

from agent.cli import main
from agent.sources.replay import ReplaySources

_start = ReplaySources.start


def _start_at_signal(self: ReplaySources) -> None:
    def begin(*_: object) -> None:
        began_s = time.clock_gettime(time.CLOCK_BOOTTIME)
        _start(self)
        print(f"scenario began {began_s:.6f}", file=sys.stderr, flush=True)

    signal.signal(signal.SIGUSR2, begin)


if __name__ == "__main__":
    ReplaySources.start = _start_at_signal  # type: ignore[method-assign]
    main()
