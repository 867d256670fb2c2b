#!/usr/bin/python3 -ES
"""Stand-in for mlxfwreset (MFT): loads burned firmware and staged configuration at once. SIMULATED."""

from __future__ import annotations

import standin
import standin_boot
from standin import Machine, Refused

LEVEL = "3: Driver restart and PCI reset"


def work(words: list[str], machine: Machine) -> str:
    device = standin.option(words, "-d", "--device")
    found = machine.nic(device) if device else None
    if found is None:
        raise Refused(f"-E- Failed to open device: {device}", 1)
    if "query" in words or "q" in words:
        return (
            f"\nSupported reset levels for loading FW on device, {device}:\n\n"
            '0: Driver, PCI link, network link will remain up ("live-Patch")      -Not Supported\n'
            f"{LEVEL}                                     -Supported     (default)\n"
            "4: Warm Reboot                                                        -Supported\n"
        )
    if "reset" not in words and "r" not in words:
        raise Refused("usage: mlxfwreset [options] reset | query", 2)
    head = f"\nMinimal reset level for device, {device}:\n\n{LEVEL}\n"
    if not any(word in ("-y", "--yes") for word in words):
        raise Refused(f"{head}Continue with reset?[y/N] n\nAborted", 1)
    standin_boot.load_nic(machine, *found)
    steps = ("Sending Reset Command To Fw", "Stopping Driver", "Resetting PCI", "Starting Driver")
    done = "".join(f"-I- {step:<40}-Done\n" for step in steps)
    return (
        f"{head}Continue with reset?[y/N] y\n{done}-I- {'Restarting MST':<40}-Skipped\n"
        "-I- FW was loaded successfully.\n"
    )


if __name__ == "__main__":
    standin.main("mlxfwreset", work)
