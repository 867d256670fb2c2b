#!/usr/bin/python3 -ES
"""Stand-in for mlxconfig (MFT): query with default, current and next columns; set; reset. SIMULATED."""

from __future__ import annotations

from typing import Any

import standin
import standin_nv
from standin import Machine, Refused


def head(nic: dict[str, Any]) -> str:
    rows = (
        ("Device type:", "ConnectX7"),
        ("Name:", nic["part"]),
        ("Description:", "NVIDIA ConnectX-7 HHHL Adapter card; 400GbE; Single-port OSFP; PCIe 5.0 x16"),
        ("Device:", nic["bdf"]),
    )
    return "\nDevice #1:\n----------\n\n" + "".join(f"{name:<20}{value:<20}\n" for name, value in rows) + "\n"


def chosen(nic: dict[str, Any], names: list[str]) -> list[str]:
    for name in names:
        if name not in standin_nv.PARAMETERS:
            raise Refused(f"-E- Unknown Parameter: {name}", 3)
        if name not in nic["nv"]:
            raise Refused(f"{head(nic)}-E- The Device doesn't support {name} parameter", 3)
    return names or sorted(nic["nv"])


def query(nic: dict[str, Any], names: list[str], every: bool) -> str:
    columns = ("Default", "Current", "Next Boot") if every else ("Next Boot",)
    lines = [f"{'Configurations:':<53}" + "".join(f"{column:<20}" for column in columns)]
    marked = False
    for name in chosen(nic, names):
        value = nic["nv"][name]
        default = standin_nv.PARAMETERS[name][3]
        numbers = (default, value["current"], value["next"]) if every else (value["next"],)
        differs = every and not default == value["current"] == value["next"]
        marked = marked or differs
        cells = "".join(f"{standin_nv.shown(name, number):<20}" for number in numbers)
        lines.append(f"{'*' if differs else ' ':<8}{name:<45}{cells}")
    if marked:
        lines.append("The '*' shows parameters with next value different from default/current value.")
    return head(nic) + "\n".join(lines) + "\n"


def change(nic: dict[str, Any], pairs: list[str]) -> str:
    wanted = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise Refused(f"-E- Missing value for parameter: {name}", 3)
        chosen(nic, [name])
        number = standin_nv.parsed(name, text)
        if number is None:
            raise Refused(f"-E- Failed to parse {name}={text}: value is out of range or unknown", 3)
        wanted[name] = number
    lines = [f"{'Configurations:':<53}{'Next Boot':<20}{'New':<20}"]
    for name, number in wanted.items():
        old = standin_nv.shown(name, nic["nv"][name]["next"])
        lines.append(f"{'':<8}{name:<45}{old:<20}{standin_nv.shown(name, number):<20}")
        nic["nv"][name]["next"] = number
    return (
        head(nic)
        + "\n".join(lines)
        + "\n\n Apply new Configuration? (y/n) [n] : y\nApplying... Done!\n"
        + "-I- Please reboot machine to load new configurations.\n"
    )


def work(words: list[str], machine: Machine) -> str:
    device = standin.option(words, "-d", "--dev")
    if device is None:
        raise Refused("-E- No device was specified", 3)
    found = machine.nic(device)
    if found is None:
        raise Refused(f"-E- Failed to open the device: {device}", 3)
    nic = found[1]
    rest = [word for word in words if word not in ("-d", "--dev", device)]
    sure = any(word in ("-y", "--yes") for word in rest)
    every = any(word in ("-e", "--enable_verbosity") for word in rest)
    plain = [word for word in rest if not word.startswith("-")]
    verb, names = (plain[0], plain[1:]) if plain else ("query", [])
    if verb in ("q", "query"):
        return query(nic, names, every)
    if verb not in ("s", "set", "r", "reset"):
        raise Refused(f"-E- Unknown command: {verb}", 3)
    if not sure:  # it asks, and there is no one at the other end
        raise Refused("\n Apply new Configuration? (y/n) [n] : Aborted by user.", 1)
    if verb in ("s", "set"):
        return change(nic, names)
    for name in chosen(nic, names):
        nic["nv"][name]["next"] = standin_nv.PARAMETERS[name][3]
    return head(nic) + "Reset configuration for device? (y/n) [n] : y\nApplying... Done!\n"


if __name__ == "__main__":
    standin.main("mlxconfig", work)
