#!/usr/bin/python3 -ES
"""Stand-in for mlnx_qos (mlnx-tools of DOCA-OFED): trust, DSCP map, PFC, DCBX mode. SIMULATED.

As the real one it ignores `--trust dscp` where DSCP is trusted, fills the map with dscp / 8 when that is
switched on, and refuses trust and dscp2prio in one call.
"""

from __future__ import annotations

from optparse import OptionParser
from typing import Any

import standin
from standin import Machine, Refused

MODES = {True: "OS controlled", False: "Firmware controlled"}


def parser() -> OptionParser:
    made = OptionParser(usage="%prog -i <interface> [options]", version="%prog 1.2")
    made.add_option("-i", "--interface", dest="intf")
    made.add_option("-f", "--pfc")
    made.add_option("-d", "--dcbx")
    made.add_option("--trust")
    made.add_option("--dscp2prio", action="append")
    for name in (
        "--prio_tc",
        "--tsa",
        "--tcbw",
        "--ratelimit",
        "--cable_len",
        "--prio2buffer",
        "--buffer_size",
    ):
        made.add_option(name)
    made.add_option("-a", action="store_true", dest="printall", default=False)
    return made


def set_pfc(dcb: dict[str, Any], text: str) -> None:
    values = text.split(",")
    if len(values) > 8:
        raise Refused("Too many items for PFC")
    if any(value not in ("0", "1") for value in values):
        bad = next(value for value in values if value not in ("0", "1"))
        raise Refused(f"Bad value for PFC: {bad} is not in the range 0..1")
    if len(values) != 8:
        raise Refused("pfc list must have 8 items")
    dcb["pfc_on"] = [value == "1" for value in values]


def set_map(dcb: dict[str, Any], orders: list[str]) -> None:
    table = dcb["dscp_to_priority"]
    for order in orders:
        if order == "flush":
            table.clear()
            continue
        try:
            verb, dscp, priority = order.split(",")
            if verb not in ("set", "del") or not 0 <= int(dscp) <= 63 or not 0 <= int(priority) <= 7:
                raise ValueError(order)
        except ValueError as cause:
            raise Refused("Invalid dscp2prio command. Refer to the help.") from cause
        if verb == "set":
            table[str(int(dscp))] = int(priority)
        elif table.get(str(int(dscp))) == int(priority):
            del table[str(int(dscp))]
        else:
            raise Refused("dscp2prio command failed")
    dcb["trust"] = "dscp" if table else "pcp"  # mlx5 goes by whether there are DSCP entries


def set_trust(dcb: dict[str, Any], trust: str) -> None:
    if trust not in ("dscp", "pcp"):
        raise Refused("Invalid trust state command. Refer to the help.")
    if trust != dcb["trust"]:
        dcb["dscp_to_priority"] = {str(i): i >> 3 for i in range(64)} if trust == "dscp" else {}
        dcb["trust"] = trust


def mapping(table: dict[str, int]) -> list[str]:
    lines = []
    for priority in range(8):
        codes = sorted((int(dscp) for dscp, to in table.items() if to == priority), reverse=True)
        text = "".join(f"{code:02d}," for code in codes)
        lines += [f"\tprio:{priority} dscp:{text[i : i + 24]}" for i in range(0, len(text), 24)]
    return lines


def show(dcb: dict[str, Any]) -> str:
    lines = [f"DCBX mode: {MODES[dcb['host_managed']]}", f"Priority trust state: {dcb['trust']}"]
    if dcb["trust"] == "dscp":
        lines += ["dscp2prio mapping:", *mapping(dcb["dscp_to_priority"])]
    lines += [
        "default priority:",
        "Receive buffer size (bytes): 19872,243072,0,0,0,0,0,0,total_size=1027728",
        "Cable len: 7",
        "PFC configuration:",
        "\tpriority    0   1   2   3   4   5   6   7",
        "\tenabled     " + "".join(f"{int(on)}   " for on in dcb["pfc_on"]),
        "\tbuffer      " + "".join(f"{int(on)}   " for on in dcb["pfc_on"]),
    ]
    for tc, priority in ((0, 1), (1, 0), *((i, i) for i in range(2, 8))):
        lines += [f"tc: {tc} ratelimit: unlimited, tsa: vendor", f"\t priority:  {priority}"]
    return "\n".join(lines) + "\n"


def work(words: list[str], machine: Machine) -> str:
    options, rest = parser().parse_args(words)
    if rest:
        raise Refused("Bad arguments\nUsage: mlnx_qos -i <interface> [options]")
    if options.intf is None:
        raise Refused("Interface name is required\nUsage: mlnx_qos -i <interface> [options]")
    if options.intf not in machine.net:
        raise Refused("Cannot get interface index: [Errno 19] No such device")
    if options.trust and options.dscp2prio:
        raise Refused("trust and dscp2prio commands cannot be used at the same time.")
    dcb = machine.net[options.intf]["dcb"]
    if options.dcbx in ("os", "fw"):
        dcb["host_managed"] = options.dcbx == "os"
    elif options.dcbx not in (None, "get"):
        raise Refused("Invalid dcbx mode command. Refer to the help.")
    if options.pfc:
        set_pfc(dcb, options.pfc)
    if options.dscp2prio:
        set_map(dcb, options.dscp2prio)
    if options.trust:
        set_trust(dcb, options.trust)
    return show(dcb)


if __name__ == "__main__":
    standin.main("mlnx_qos", work)
