#!/usr/bin/python3 -ES
"""Stand-in for nvidia-smi: -L, -q, --query-gpu; -pl, -pm, -mig, -e for all GPUs or those of -i. SIMULATED."""

from __future__ import annotations

import csv
import io
from typing import Any

import standin
from standin import Machine, Refused

WORDS = {True: "Enabled", False: "Disabled"}
FABRIC = {0: "Not Supported", 1: "Not Started", 2: "In Progress", 3: "Completed"}
SETS = {
    "-pl": "--power-limit",
    "-pm": "--persistence-mode",
    "-mig": "--multi-instance-gpu",
    "-e": "--ecc-config",
}
FULL: tuple[tuple[str, str | None], ...] = (
    ("Product Name", "name"),
    ("Persistence Mode", "persistence_mode"),
    ("MIG Mode", None),
    ("    Current", "mig.mode.current"),
    ("    Pending", "mig.mode.pending"),
    ("Serial Number", "serial"),
    ("GPU UUID", "uuid"),
    ("VBIOS Version", "vbios_version"),
    ("Fabric", None),
    ("    State", "fabric.state"),
    ("    Status", "fabric.status"),
    ("ECC Mode", None),
    ("    Current", "ecc.mode.current"),
    ("    Pending", "ecc.mode.pending"),
    ("GPU Power Readings", None),
    ("    Current Power Limit", "enforced.power.limit"),
    ("    Requested Power Limit", "power.limit"),
    ("    Default Power Limit", "power.default_limit"),
    ("    Min Power Limit", "power.min_limit"),
    ("    Max Power Limit", "power.max_limit"),
)
NO_DEVICES = "No devices were found"


def long_bus_id(gpu: dict[str, Any]) -> str:
    """NVML's own way to write a PCI address: eight digits of domain, capitals."""
    domain, rest = gpu["identity"]["pci_bus_id"].split(":", 1)
    return f"{domain.zfill(8)}:{rest}".upper()


def value(machine: Machine, gpu: dict[str, Any], field: str) -> str | tuple[float, str]:
    """A field as it is printed; (number, unit) for one with a unit."""
    identity, power = gpu["identity"], gpu["power"]
    modes = machine.own["gpus"][identity["uuid"]]
    fabric = gpu.get("fabric", {})
    plain = {
        "index": str(identity["index"]),
        "uuid": identity["uuid"],
        "gpu_uuid": identity["uuid"],
        "serial": identity["serial"],
        "gpu_serial": identity["serial"],
        "name": identity["name"],
        "gpu_name": identity["name"],
        "count": str(len(machine.gpus)),
        "pci.bus_id": long_bus_id(gpu),
        "gpu_bus_id": long_bus_id(gpu),
        "driver_version": machine.nvml["system"]["driver_version"],
        "vbios_version": identity["vbios"],
        "persistence_mode": WORDS[power["persistence"]],
        "compute_mode": "Default",
        "mig.mode.current": WORDS[gpu["ecc"]["mig_enabled"]],
        "mig.mode.pending": WORDS[modes["mig_pending"]],
        "ecc.mode.current": WORDS[gpu["memory"]["ecc_enabled"]],
        "ecc.mode.pending": WORDS[modes["ecc_pending"]],
        "fabric.state": FABRIC.get(fabric.get("state", 0), "N/A"),
        "fabric.status": "Success" if fabric.get("status", 1) == 0 else "N/A",
    }
    if field in plain:
        return plain[field]
    numbers = {
        "power.draw": ("draw_w", "W"),
        "power.limit": ("requested_limit_w", "W"),
        "enforced.power.limit": ("enforced_limit_w", "W"),
        "power.default_limit": ("default_limit_w", "W"),
        "power.min_limit": ("min_limit_w", "W"),
        "power.max_limit": ("max_limit_w", "W"),
    }
    if field in numbers:
        return power[numbers[field][0]], numbers[field][1]
    if field == "temperature.gpu":
        return str(gpu["thermal"]["temperature_c"])
    raise Refused(f'Field "{field}" is not a valid field to query.', 2)


def query(machine: Machine, gpus: list[dict[str, Any]], fields: str, form: str) -> str:
    how = form.split(",")
    if how[0] != "csv":
        raise Refused('"--format=" is missing or not valid; only csv is supported.', 2)
    names = [name.strip() for name in fields.split(",")]
    units = "nounits" not in how
    rows = [[value(machine, gpu, name) for name in names] for gpu in gpus]
    out = io.StringIO()
    writer = csv.writer(out, delimiter="\t", lineterminator="\n", quoting=csv.QUOTE_NONE, escapechar="\\")
    if "noheader" not in how and rows:
        cells = zip(names, rows[0], strict=True)
        writer.writerow([f"{n} [{v[1]}]" if units and isinstance(v, tuple) else n for n, v in cells])
    for row in rows:
        cell = [
            (f"{v[0]:.2f} {v[1]}" if units else f"{v[0]:.2f}") if isinstance(v, tuple) else v for v in row
        ]
        writer.writerow(cell)
    return out.getvalue().replace("\t", ", ")


def full(machine: Machine, gpus: list[dict[str, Any]]) -> str:
    """The parts of -q that tell what can be set."""
    lines = ["", "==============NVSMI LOG==============", ""]
    rows = (
        ("Driver Version", machine.nvml["system"]["driver_version"]),
        ("Attached GPUs", str(len(machine.gpus))),
    )
    lines += [f"{name:<42}: {text}" for name, text in rows]
    for gpu in gpus:
        lines.append(f"GPU {long_bus_id(gpu)}")
        for name, field in FULL:
            if field is None:
                lines.append(f"    {name}")
                continue
            seen = value(machine, gpu, field)
            text = f"{seen[0]:.2f} {seen[1]}" if isinstance(seen, tuple) else seen
            lines.append(f"    {name:<38}: {text}")
    return "\n".join([*lines, ""])


def selected(machine: Machine, word: str | None) -> list[dict[str, Any]]:
    if word is None:
        return machine.gpus
    found = []
    for one in word.split(","):
        mine = [g for g in machine.gpus if one.upper() in _names(g)]
        if not mine:
            raise Refused(NO_DEVICES, 6)
        found += mine
    return found


def _names(gpu: dict[str, Any]) -> set[str]:
    identity = gpu["identity"]
    names = {str(identity["index"]), identity["uuid"], identity["pci_bus_id"], identity["serial"]}
    return {name.upper() for name in names} | {long_bus_id(gpu)}


def set_limit(gpu: dict[str, Any], text: str) -> str:
    power, where = gpu["power"], long_bus_id(gpu)
    try:
        watts = float(text)
    except ValueError as cause:
        raise Refused(f"Invalid power limit: {text}", 2) from cause
    low, high, old = power["min_limit_w"], power["max_limit_w"], power["requested_limit_w"]
    if not low <= watts <= high:
        raise Refused(
            f"Provided power limit {watts:.2f} W is not a valid power limit which should be between"
            f" {low:.2f} W and {high:.2f} W for GPU {where}\nTerminating early due to previous errors.",
            2,
        )
    power["requested_limit_w"] = power["enforced_limit_w"] = watts
    return f"Power limit for GPU {where} was set to {watts:.2f} W from {old:.2f} W.\n"


def set_mode(machine: Machine, gpu: dict[str, Any], what: str, text: str) -> str:
    on = {"1": True, "0": False, "ENABLED": True, "DISABLED": False}.get(text.upper())
    if on is None:
        raise Refused(f"Invalid value: {text}", 2)
    where, modes, word = long_bus_id(gpu), machine.own["gpus"][gpu["identity"]["uuid"]], WORDS[on]
    if what == "-pm":
        before, gpu["power"]["persistence"] = gpu["power"]["persistence"], on
        if before == on:
            return f"Persistence mode is already {word} for GPU {where}.\n"
        return f"{word} persistence mode for GPU {where}.\n"
    if what == "-mig":
        gpu["ecc"]["mig_enabled"] = modes["mig_pending"] = on  # from Hopper on no reset is needed
        return f"{word} MIG Mode for GPU {where}\n"
    modes["ecc_pending"] = on
    if gpu["memory"]["ecc_enabled"] == on:
        return f"ECC support is already {word} for GPU {where}.\n"
    old = WORDS[not on]
    return f"{word} ECC support for GPU {where} (previous: {old}).\nReboot required.\n"


def work(words: list[str], machine: Machine) -> str:
    gpus = selected(machine, standin.option(words, "-i", "--id"))
    if not gpus:
        raise Refused(NO_DEVICES, 6)
    if "-L" in words or "--list-gpus" in words:
        rows = (g["identity"] for g in gpus)
        return "".join(f"GPU {r['index']}: {r['name']} (UUID: {r['uuid']})\n" for r in rows)
    if "-q" in words or "--query" in words:
        return full(machine, gpus)
    fields = standin.option(words, "--query-gpu")
    if fields is not None:
        return query(machine, gpus, fields, standin.option(words, "--format") or "")
    for short, long in SETS.items():
        text = standin.option(words, short, long)
        if text is not None:
            did = [set_limit(g, text) if short == "-pl" else set_mode(machine, g, short, text) for g in gpus]
            return "".join(did) + "All done.\n"
    raise Refused("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.", 2)


if __name__ == "__main__":
    standin.main("nvidia-smi", work)
