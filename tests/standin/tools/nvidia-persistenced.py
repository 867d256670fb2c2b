#!/usr/bin/python3 -ES
"""Stand-in for nvidia-persistenced: persistence mode on unless told not to, off when it ends. SIMULATED."""

from __future__ import annotations

import os
import signal
import sys

from standin import Machine


def set_all(on: bool) -> None:
    with Machine() as machine:
        for gpu in machine.gpus:
            gpu["power"]["persistence"] = on


def main() -> None:
    if "--no-persistence-mode" not in sys.argv:
        set_all(True)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    set_all(False)


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    os.chdir("/")
    main()
