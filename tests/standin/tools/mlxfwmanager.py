#!/usr/bin/python3 -ES
"""Stand-in for mlxfwmanager (MFT): what is burned on each NIC. SIMULATED."""

from __future__ import annotations

import standin
from standin import Machine, Refused


def work(words: list[str], machine: Machine) -> str:
    device = standin.option(words, "-d", "--dev")
    nics = list(machine.nics.items())
    if device is not None:
        found = machine.nic(device)
        if found is None:
            raise Refused(f"-E- Failed to query {device} device, error: can not open device", 1)
        nics = [found]
    text = "Querying Mellanox devices firmware ...\n"
    for number, (_name, nic) in enumerate(nics, start=1):
        rows = (
            ("Device Type:", "ConnectX7"),
            ("Part Number:", nic["part"]),
            ("Description:", "NVIDIA ConnectX-7 HHHL Adapter card; 400GbE; Single-port OSFP; PCIe 5.0 x16"),
            ("PSID:", nic["psid"]),
            ("PCI Device Name:", nic["bdf"]),
        )
        text += f"\nDevice #{number}:\n----------\n\n"
        text += "".join(f"  {name:<18}{value}\n" for name, value in rows)
        text += f"  {'Versions:':<18}{'Current':<15}Available\n     {'FW':<15}{nic['burned']:<15}N/A\n"
        if nic["running"] != nic["burned"]:
            text += f"     {'FW (Running)':<15}{nic['running']:<15}N/A\n"
        text += "\n  Status:           No matching image found\n"
    return text + "\n"


if __name__ == "__main__":
    standin.main("mlxfwmanager", work)
