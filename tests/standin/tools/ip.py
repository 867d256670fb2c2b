#!/usr/bin/python3 -ES
"""Stand-in for `ip link set [dev] ethN mtu N` of the data ports; the rest is the real ip's. SIMULATED."""

from __future__ import annotations

import json
import sys

import standin
import standin_sysfs
from standin import Machine, Refused


def order(words: list[str]) -> tuple[str, str] | None:
    """Interface and MTU of such a command."""
    if words[:1] not in (["link"], ["l"]) or words[1:2] != ["set"] or "mtu" not in words[:-1]:
        return None
    rest = [word for word in words[2:] if word != "dev"]
    ports = json.loads((standin.BASE / "node/net.json").read_text(encoding="utf-8"))
    return (rest[0], words[words.index("mtu") + 1]) if rest[0] in ports else None


def work(words: list[str], machine: Machine) -> str:
    asked = order(words)
    assert asked is not None
    name, text = asked
    number = standin.number_in(text)
    if number is None:
        raise Refused(f'Error: argument "{text}" is wrong: Invalid "mtu" value', 255)
    if number > standin_sysfs.HIGHEST_MTU_BYTES:
        raise Refused("Error: mtu greater than device maximum.", 2)
    machine.net[name]["link"]["mtu_bytes"] = number
    machine.poke(standin.sysfs(f"class/net/{name}/mtu"), text)
    return ""


if __name__ == "__main__":
    if order(sys.argv[1:]) is None:
        standin.real_tool("ip")
    standin.main("ip", work)
