#!/usr/bin/python3 -ES
"""Stand-in for dcb (iproute2): pfc, app and dcbx of the data ports; others go to the real one. SIMULATED."""

from __future__ import annotations

import sys
from typing import Any

import standin
from standin import Machine, Refused

NAMES = {"CS0": 0, "CS1": 8, "AF31": 26, "EF": 46, "CS6": 48, "CS7": 56}


def pairs(words: list[str]) -> list[tuple[str, str]]:
    found = []
    for word in words:
        key, colon, value = word.partition(":")
        if not colon:
            raise Refused(f"Expected key:value, not {word!r}", 255)
        found.append((key, value))
    return found


def pfc(dcb: dict[str, Any], verb: str, words: list[str]) -> str:
    if verb == "set":
        if words[:1] != ["prio-pfc"]:
            raise Refused(f'Command "{words[0] if words else ""}" is unknown, try "dcb pfc help".', 255)
        for key, value in pairs(words[1:]):
            if value not in ("on", "off") or (key != "all" and key not in "01234567"):
                raise Refused(f"Invalid prio-pfc: {key}:{value}", 255)
            for i in range(8):
                if key in ("all", str(i)):
                    dcb["pfc_on"][i] = value == "on"
        return ""
    shown = " ".join(f"{i}:{'on' if on else 'off'}" for i, on in enumerate(dcb["pfc_on"]))
    head = "" if words else "pfc-cap 8 macsec-bypass off delay 0 \n"
    return f"{head}prio-pfc {shown} \n"


def app(dcb: dict[str, Any], verb: str, words: list[str]) -> str:
    table = dcb["dscp_to_priority"]
    if verb == "show":
        shown = " ".join(f"{dscp}:{prio}" for dscp, prio in sorted(table.items(), key=lambda e: int(e[0])))
        return f"dscp-prio {shown} \n" if table else ""
    if verb == "flush":
        table.clear()
    elif words[:1] == ["dscp-prio"]:
        for key, value in pairs(words[1:]):
            number = NAMES.get(key.upper(), standin.number_in(key))
            prio = standin.number_in(value)
            if number is None or not 0 <= number < 64 or prio is None or not 0 <= prio < 8:
                raise Refused(f"Invalid dscp-prio: {key}:{value}", 255)
            if verb == "del":
                table.pop(str(number), None)
            else:
                table[str(number)] = prio
    else:
        raise Refused('Command is unknown, try "dcb app help".', 255)
    dcb["trust"] = "dscp" if table else "pcp"
    return ""


def work(words: list[str], machine: Machine) -> str:
    words = [word for word in words if word not in ("-N", "-n")]
    kind, verb = [*words, "", ""][:2]
    name = standin.option(words, "dev") or ""
    if name not in machine.net:
        raise Refused("dcb: Failed to open device: No such device", 255)
    dcb = machine.net[name]["dcb"]
    rest = words[words.index(name) + 1 :]
    if kind == "pfc":
        return pfc(dcb, verb, rest)
    if kind == "app":
        return app(dcb, verb, rest)
    if kind == "dcbx":
        if verb == "set":
            dcb["host_managed"] = "host" in rest
            return ""
        return "host ieee \n" if dcb["host_managed"] else "lld-managed ieee \n"
    raise Refused(f'Object "{kind}" is unknown, try "dcb help".', 255)


if __name__ == "__main__":
    if "dev" not in sys.argv:
        standin.real_tool("dcb")
    standin.main("dcb", work)
