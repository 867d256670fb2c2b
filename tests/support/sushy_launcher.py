"""Runs sushy-emulator on libvirt's test driver, in the environment that sushy_rig.py makes.

The test driver keeps its domains in the memory of the process: one connection is held open, or the state
would be gone between two requests.
"""

from __future__ import annotations

import sys

import libvirt
from sushy_tools.emulator.main import main

URI = "test:///default"


def launch() -> int:
    """Hold a connection, then serve what the file of --config says."""
    held = libvirt.open(URI)
    try:
        return int(main() or 0)
    finally:
        held.close()


if __name__ == "__main__":
    sys.exit(launch())
