"""A program: `nodegate` as it is, on a SIMULATED node; at SIGUSR2 the scenario jumps to the second in a file.

So one daemon can be taken through many faults in any order: second 0 is the healthy node again. The file is
the first argument; standard error tells each jump.
"""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path

from agent.cli import main
from agent.sources.replay import ReplaySources


def _start_at_cues(self: ReplaySources) -> None:
    """In place of ReplaySources.start."""
    stage = self._stage
    stage.started_mono_s = stage.clock.mono_s()

    def jump() -> None:
        word = CUE.read_text()
        stage.started_mono_s = stage.clock.mono_s() - float(word)
        self.tick()
        print(f"cue {word}", file=sys.stderr, flush=True)

    # A thread: the signal may come while the main thread holds a lock that is needed here.
    signal.signal(signal.SIGUSR2, lambda *_: threading.Thread(target=jump, daemon=True).start())


if __name__ == "__main__":
    CUE = Path(sys.argv.pop(1))
    ReplaySources.start = _start_at_cues  # type: ignore[method-assign]
    main()
