"""A node with NICs in memory for the role `nic`: sysfs as files, vendor tools as functions; SIMULATED.

Formats are those of MFT 4.2x, mlnx-tools, iproute2 and ethtool. Not shown: what a driver does beside what it
was told (PFC buffers, links that flap), how long a firmware takes, values that a card rounds.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nodegate_apply.host import Host, HostError, Output

DEFAULTS = {
    "LINK_TYPE_P1": ("IB(1)", "ETH(2)", "ETH(2)"),
    "SRIOV_EN": ("False(0)", "True(1)", "True(1)"),
    "NUM_OF_VFS": ("0", "8", "8"),
    "ROCE_CC_PRIO_MASK_P1": ("255", "255", "255"),
    "ATS_ENABLED": ("False(0)", "False(0)", "False(0)"),
}
NAMES = {"LINK_TYPE_P1": {"1": "IB(1)", "2": "ETH(2)", "IB": "IB(1)", "ETH": "ETH(2)"}}
BUSES = ("06", "18", "3b", "5e")


class NicHost(Host):
    """`count` cards with one port each; `calls` has every command line."""

    def __init__(self, root: Path, count: int = 2) -> None:
        super().__init__(str(root))
        self.count = count
        self.calls: list[str] = []
        self.tools = {"mlxconfig", "mlnx_qos", "ethtool", "setpci", "systemctl", "dcb"}
        self.fail: dict[str, str] = {}  # part of a command line -> what it ends with; "hang" = no answer
        self.lies: set[str] = set()  # tools that take everything and keep nothing
        self.nv = {bus: dict(DEFAULTS) for bus in BUSES[:count]}
        self.dcb: dict[str, dict[str, Any]] = {}
        self.pause = {f"eth{i}": "off" for i in range(count)}
        self.rings = {f"eth{i}": {"rx": 1024, "tx": 1024} for i in range(count)}
        self.read_request = dict.fromkeys(BUSES[:count], 0x5936)
        self.units: dict[str, str] = {}
        self.written: dict[str, str] = {}
        for i in range(count):
            self.dcb[f"eth{i}"] = {"os": True, "pfc": [p == 3 for p in range(8)], "map": {26: 3, 46: 6}}
            self._sysfs(root, i)

    def _sysfs(self, root: Path, i: int) -> None:
        device = root / f"class/infiniband/mlx5_{i}"
        port = device / "ports/1"
        files = {
            device / "board_id": "MT_0000000838\n",
            device / "tc/1/traffic_class": "Global tclass=106\n",
            port / "gids/3": f"0000:0000:0000:0000:0000:ffff:c633:640{i}\n",
            port / "gid_attrs/types/3": "RoCE v2\n",
            port / "gid_attrs/ndevs/3": f"eth{i}\n",
            root / f"kernel/config/rdma_cm/mlx5_{i}/ports/1/default_roce_tos": "106\n",
            root / f"class/net/eth{i}/mtu": "9000\n",
            root / f"class/net/eth{i}/ecn/roce_np/enable/3": "1\n",
            root / f"class/net/eth{i}/ecn/roce_rp/enable/3": "1\n",
            root / f"class/net/eth{i}/ecn/roce_np/cnp_dscp": "48\n",
        }
        for path, text in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        (device / "device").symlink_to(f"../../../0000:{BUSES[i]}:00.0")

    # Files outside /sys stay in memory.
    def read(self, path: str) -> str | None:
        if path == "/proc/sys/kernel/random/boot_id":
            return "5d4f0c3e-0000-4000-8000-000000000001\n"
        return super().read(path) if path.startswith("/sys") else self.written.get(path)

    def mode(self, path: str) -> int | None:
        return 0o644 if path in self.written else None

    def exists(self, path: str) -> bool:
        return super().exists(path) if path.startswith("/sys") else path in self.written

    def write(self, path: str, text: str, mode: int = 0o644, owner: Any = None) -> None:
        self.written[path] = text

    def poke(self, path: str, text: str) -> None:
        """The kernel shows a forced class in words of its own."""
        super().poke(path, f"Global tclass={text}" if path.endswith("/traffic_class") and text else text)

    def remove(self, path: str) -> None:
        self.written.pop(path, None)

    def has(self, program: str) -> bool:
        return program in self.tools

    def run(self, argv: Sequence[str], timeout_s: float = 30.0, stdin: str = "") -> Output:
        words = " ".join(argv)
        self.calls.append(words)
        for part, how in self.fail.items():
            if part in words:
                if how == "hang":
                    raise HostError(f"{words}: gave no answer within {timeout_s:g} s; look at the kernel log")
                return Output(1, how, "")
        if argv[0] not in self.tools:
            raise HostError(f"{argv[0]}: is not installed on this node; install it and run again")
        return getattr(self, "_" + argv[0])(list(argv[1:]))

    def _mlxconfig(self, words: list[str]) -> Output:
        nv = self.nv.get(words[1].split(":")[1])
        if nv is None:
            return Output(1, f"-E- Failed to open the device: {words[1]}\n", "")
        if words[2:] == ["-e", "query"]:
            return Output(0, query_text(words[1], nv), "")
        assert words[2:4] == ["-y", "set"]
        for pair in words[4:]:
            name, _, value = pair.partition("=")
            kinds = {"1": "True(1)", "0": "False(0)"} if nv[name][0].startswith(("True", "False")) else {}
            shown = NAMES.get(name, kinds).get(value, value)
            if "mlxconfig" not in self.lies:
                nv[name] = (*nv[name][:2], shown)
        return Output(0, "Applying... Done!\n-I- Please reboot machine to load new configurations.\n", "")

    def reboot(self) -> None:
        """What was staged is current."""
        for nv in self.nv.values():
            nv |= {name: (default, staged, staged) for name, (default, _, staged) in nv.items()}

    def _mlnx_qos(self, words: list[str]) -> Output:
        dcb = self.dcb[words[1]]
        if "--trust" in words and "--dscp2prio" in words:
            return Output(1, "trust and dscp2prio commands cannot be used at the same time.\n", "")
        for name, value in zip(words[2::2], words[3::2], strict=True):
            if "mlnx_qos" in self.lies:
                continue
            if name == "--dcbx":
                dcb["os"] = value == "os"
            elif name == "--trust":
                dcb["map"] = {i: i >> 3 for i in range(64)} if value == "dscp" else {}
            elif name == "--pfc":
                dcb["pfc"] = [word == "1" for word in value.split(",")]
            else:
                _, dscp, priority = value.split(",")
                dcb["map"][int(dscp)] = int(priority)
        return Output(0, mlnx_qos_text(dcb), "")

    def _dcb(self, words: list[str]) -> Output:
        numeric = words[0] == "-N"
        kind, verb, _, netdev, *rest = words[1:] if numeric else words
        dcb = self.dcb[netdev]
        if verb == "show":
            pairs = " ".join(f"{d}:{p}" for d, p in dcb["map"].items())
            pfc = " ".join(f"{p}:{'on' if on else 'off'}" for p, on in enumerate(dcb["pfc"]))
            text = {
                "dcbx": "host ieee \n" if dcb["os"] else "lld-managed ieee \n",
                "pfc": f"prio-pfc {pfc} \n",
                "app": f"dscp-prio {pairs} \n" if pairs else "",
            }
            return Output(0, text[kind], "")
        if kind == "dcbx":
            dcb["os"] = "host" in rest
        elif kind == "pfc":
            dcb["pfc"] = [f"{p}:on" in rest for p in range(8)]
        elif verb == "flush":
            dcb["map"] = {}
        else:
            dscp, priority = rest[1].split(":")
            dcb["map"][int(dscp)] = int(priority)
        return Output(0, "", "")

    def _ethtool(self, words: list[str]) -> Output:
        option, netdev, *rest = words
        if option == "-A":
            self.pause[netdev] = rest[3]
        elif option == "-G":
            self.rings[netdev] |= {rest[0]: int(rest[1])}
        on = self.pause[netdev]
        if option == "-a":
            text = f"Pause parameters for {netdev}:\nAutonegotiate:\toff\nRX:\t\t{on}\nTX:\t\t{on}\n"
            return Output(0, text, "")
        return Output(0, rings_text(netdev, self.rings[netdev]), "")

    def _setpci(self, words: list[str]) -> Output:
        bus = words[1].split(":")[1]
        match = re.fullmatch(r"CAP_EXP\+08\.w(?:=([0-9a-f]{4}):([0-9a-f]{4}))?", words[2])
        assert match is not None
        if match[1]:
            value, mask = int(match[1], 16), int(match[2], 16)
            self.read_request[bus] = self.read_request[bus] & ~mask | value & mask
        return Output(0, f"{self.read_request[bus]:04x}\n", "")

    def _systemctl(self, words: list[str]) -> Output:
        verb, unit = words[0], words[-1]
        state = self.units.setdefault(unit, "inactive")
        if verb == "is-active":
            word = "active" if "active" in state.split() else "inactive"
            return Output(0 if word == "active" else 3, f"{word}\n", "")
        if verb == "is-enabled":
            word = "enabled" if "enabled" in state.split() else "disabled"
            return Output(0 if word == "enabled" else 1, f"{word}\n", "")
        if "enable" in words:
            self.units[unit] = f"enabled {state}"
        elif verb == "start":
            self.units[unit] = f"{state.replace('inactive', '')} active"
        return Output(0, "", "")


def query_text(address: str, nv: dict[str, tuple[str, str, str]]) -> str:
    """`mlxconfig -d ADDRESS -e query`."""
    rows = "".join(
        f"{'*' if len(set(values)) > 1 else ' ':<8}{name:<45}" + "".join(f"{v:<20}" for v in values) + "\n"
        for name, values in nv.items()
    )
    return (
        "\nDevice #1:\n----------\n\nDevice type:        ConnectX7           \n"
        "Name:               MCX75310AAS-NEA_Ax  \n"
        f"Device:             {address:<20}\n\n"
        f"{'Configurations:':<53}{'Default':<20}{'Current':<20}{'Next Boot':<20}\n{rows}"
        "The '*' shows parameters with next value different from default/current value.\n"
    )


def mlnx_qos_text(dcb: dict[str, Any]) -> str:
    """`mlnx_qos -i IF`."""
    lines = [f"DCBX mode: {'OS controlled' if dcb['os'] else 'Firmware controlled'}"]
    lines.append(f"Priority trust state: {'dscp' if dcb['map'] else 'pcp'}")
    if dcb["map"]:
        lines.append("dscp2prio mapping:")
    for priority in range(8):
        codes = [f"{dscp:02d}," for dscp, to in dcb["map"].items() if to == priority]
        lines += [f"\tprio:{priority} dscp:{''.join(codes[i : i + 8])}" for i in range(0, len(codes), 8)]
    flags = "".join(f"{int(on)}   " for on in dcb["pfc"])
    lines += [
        "default priority:",
        "Receive buffer size (bytes): 19872,220896,0,0,0,0,0,0,max_buffer_size=4151520",
        "Cable len: 7",
        "PFC configuration:",
        "\tpriority    0   1   2   3   4   5   6   7",
        f"\tenabled     {flags}",
        f"\tbuffer      {flags}",
        "tc: 0 ratelimit: unlimited, tsa: vendor",
        "\t priority:  1",
    ]
    return "\n".join(lines) + "\n"


def rings_text(netdev: str, rings: dict[str, int]) -> str:
    """`ethtool -g IF`."""
    part = "RX:\t\t{rx}\nRX Mini:\tn/a\nRX Jumbo:\tn/a\nTX:\t\t{tx}\n"
    return (
        f"Ring parameters for {netdev}:\nPre-set maximums:\n{part.format(rx=8192, tx=8192)}"
        f"Current hardware settings:\n{part.format(**rings)}RX Buf Len:\t\tn/a\nTX Push:\toff\n"
    )


def fabric(count: int = 2, **changes: Any) -> dict[str, Any]:
    """`fabric` of a profile that this host fulfils, validated and as plain data."""
    from agent.fabric_profile import Fabric

    nic = {
        "config": {"LINK_TYPE_P1": "ETH", "SRIOV_EN": True, "NUM_OF_VFS": 8, "LINK_TYPE_P2": "ETH"},
        "max_read_request_bytes": 4096,
        "rx_ring": 1024,
        "tx_ring": 1024,
    }
    ports = [
        {"device": f"mlx5_{i}", "netdev": f"eth{i}", "rate_gbps": 400, "mtu_bytes": 9000}
        for i in range(count)
    ]
    data: dict[str, Any] = {
        "kind": changes.pop("kind", "roce"),
        "ports": ports,
        "nic": {**nic, **changes.pop("nic", {})},
        "roce": {"cnp_dscp": 48, "gid_index": 3, **changes.pop("roce", {})},
    }
    assert not changes
    return Fabric.model_validate(data).model_dump(mode="json")
