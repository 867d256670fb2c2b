#!/usr/bin/python3 -ES
"""Stand-in for ethtool: -a -A -g -G -i -S of the data ports; anything else is the real one's. SIMULATED."""

from __future__ import annotations

import json
import sys
from typing import Any

import standin
from standin import Machine, Refused

WORDS = {True: "on", False: "off"}
LONG = {
    "--show-pause": "-a", "--pause": "-A", "--show-ring": "-g", "--set-ring": "-G", "--driver": "-i",
    "--statistics": "-S",
}  # fmt: skip


def set_pause(port: dict[str, Any], pairs: dict[str, str]) -> str:
    for key, name in (("autoneg", "autonegotiated"), ("rx", "rx"), ("tx", "tx")):
        if key in pairs:
            if pairs[key] not in ("on", "off"):
                raise Refused("ethtool: bad command line argument(s)\nFor more information run ethtool -h", 1)
            port["pause"][name] = pairs[key] == "on"
    if port["pause"]["autonegotiated"]:  # mlx5e_ethtool_set_pauseparam
        raise Refused("netlink error: Invalid argument", 81)
    return ""


def set_ring(ring: dict[str, int], pairs: dict[str, str]) -> str:
    for key, text in pairs.items():
        number = standin.number_in(text)
        if key not in ("rx", "tx") or number is None:
            raise Refused("ethtool: bad command line argument(s)\nFor more information run ethtool -h", 1)
        if number > ring[f"{key}_max"]:
            raise Refused("netlink error: requested ring size exceeds maximum", 81)
        ring[key] = 1 << max(6, (number - 1).bit_length())
    return ""


def show_ring(name: str, ring: dict[str, int]) -> str:
    def block(rx: int, tx: int) -> str:
        return f"RX:\t\t\t{rx}\nRX Mini:\t\tn/a\nRX Jumbo:\t\tn/a\nTX:\t\t\t{tx}\n"

    return (
        f"Ring parameters for {name}:\nPre-set maximums:\n{block(ring['rx_max'], ring['tx_max'])}"
        f"Current hardware settings:\n{block(ring['rx'], ring['tx'])}"
        "RX Buf Len:\t\tn/a\nCQE Size:\t\tn/a\nTX Push:\toff\nTCP data split:\toff\n"
    )


def show_driver(port: dict[str, Any]) -> str:
    driver = port["driver"]
    rows = {
        "driver": driver["driver"],
        "version": driver["version"],
        "firmware-version": driver["firmware"],
        "expansion-rom-version": "",
        "bus-info": driver["bus_info"],
        "supports-statistics": "yes",
        "supports-test": "yes",
        "supports-eeprom-access": "no",
        "supports-register-dump": "no",
        "supports-priv-flags": "yes",
    }
    return "".join(f"{name}: {value}\n" for name, value in rows.items())


def work(words: list[str], machine: Machine) -> str:
    flag = LONG.get(words[0], words[0])
    name, rest = words[1], words[2:]
    port = machine.net[name]
    pairs = dict(zip(rest[::2], rest[1::2], strict=False))
    if flag == "-a":
        pause = port["pause"]
        return (
            f"Pause parameters for {name}:\nAutonegotiate:\t{WORDS[pause['autonegotiated']]}\n"
            f"RX:\t\t{WORDS[pause['rx']]}\nTX:\t\t{WORDS[pause['tx']]}\n\n"
        )
    if flag == "-A":
        return set_pause(port, pairs)
    if flag == "-g":
        return show_ring(name, port["ring"]) + "\n"
    if flag == "-G":
        return set_ring(port["ring"], pairs)
    if flag == "-i":
        return show_driver(port)
    return "NIC statistics:\n" + "".join(f"     {key}: {value}\n" for key, value in port["ethtool"].items())


def ours() -> bool:
    words = sys.argv[1:]
    if len(words) < 2 or LONG.get(words[0], words[0]) not in LONG.values():
        return False
    return words[1] in json.loads((standin.BASE / "node/net.json").read_text(encoding="utf-8"))


if __name__ == "__main__":
    if not ours():
        standin.real_tool("ethtool")
    standin.main("ethtool", work)
