"""Data Center Bridging of one interface: who owns DCBX, trust, PFC and the DSCP map.

With mlnx_qos of DOCA where it is installed, else with dcb of iproute2. The host owns DCBX: firmware that does
is told to leave it, and lldpad, which would set PFC anew, is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from .host import Host, HostError
from .reading import Reading
from .setting import Setting

_PRIORITIES = 8
_MAPPING = re.compile(r"prio:(\d)\s+dscp:([\d,]*)")
_ENABLED = re.compile(r"PFC configuration:\s*\n\s*priority[ \t\d]*\n\s*enabled\s+((?:[01]\s+){8})", re.M)
_LLDPAD = "lldpad.service"


class DcbState(NamedTuple):
    """What a tool tells of one interface."""

    host_managed: bool
    trust: str
    pfc: tuple[bool, ...]
    dscp_to_priority: Mapping[int, int]

    def pfc_text(self) -> str:
        """Priorities with PFC."""
        return ", ".join(str(priority) for priority, on in enumerate(self.pfc) if on) or "none"


def parse_mlnx_qos(text: str) -> DcbState:
    """What `mlnx_qos -i IF` prints. Raises HostError."""
    trust = re.search(r"^Priority trust state:\s*(\w+)", text, re.M)
    enabled = _ENABLED.search(text + "\n")
    if trust is None or enabled is None:
        raise HostError(f"mlnx_qos: tells no trust state or no PFC: {' '.join(text.split())[:120]!r}")
    mode = re.search(r"^DCBX mode:\s*(.+)$", text, re.M)
    table = {
        int(dscp): int(priority)
        for priority, codes in _MAPPING.findall(text)
        for dscp in codes.split(",")
        if dscp
    }
    pfc = tuple(word == "1" for word in enabled[1].split())
    return DcbState(mode is None or mode[1].startswith("OS"), trust[1].lower(), pfc, table)


def parse_dcb(pfc: str, app: str, dcbx: str | None) -> DcbState:
    """What `dcb pfc show`, `dcb -N app show` and `dcb dcbx show` print. Raises HostError."""
    flags = dict(re.findall(r"\b(\d):(on|off)\b", pfc))
    if len(flags) != _PRIORITIES:
        raise HostError(
            f"dcb pfc show: tells {len(flags)} priorities, not 8: {' '.join(pfc.split())[:120]!r}"
        )
    table = {int(dscp): int(priority) for dscp, priority in re.findall(r"\b(\d{1,2}):(\d)\b", app)}
    return DcbState(
        dcbx is None or "host" in dcbx.split(),
        "dscp" if table else "pcp",
        tuple(flags[str(priority)] == "on" for priority in range(_PRIORITIES)),
        table,
    )


class Dcb:
    """DCB of one interface, and what the profile wants of it."""

    def __init__(self, host: Host, netdev: str, roce: Mapping[str, Any]) -> None:
        """`roce` is fabric.roce of the profile."""
        self._host = host
        self._netdev = netdev
        self._priority = int(roce["priority"])
        self._dscp = int(roce["dscp"])
        self._trust = str(roce["trust"])
        self._pfc = tuple(priority == self._priority for priority in range(_PRIORITIES))
        self.reading: Reading[DcbState] = Reading(self._read)

    def settings(self) -> list[Setting]:
        """Owner, trust, PFC, and the map where DSCP is trusted."""
        state = self.reading.get
        advice = "see mlnx_qos -i or dcb pfc show; is another agent setting DCB?"
        found = [
            self._setting("DCBX", "priority", "host", lambda: _owner(state().host_managed), advice),
            self._setting("trust", "trust", self._trust, lambda: state().trust, advice),
            self._setting("PFC", "priority", str(self._priority), lambda: state().pfc_text(), advice),
        ]
        if self._trust == "dscp":
            found.append(
                self._setting(
                    f"DSCP {self._dscp}", "dscp", f"priority {self._priority}", self._mapped, advice
                )
            )
        return found

    def _setting(self, what: str, key: str, want: str, read: Any, advice: str) -> Setting:
        return Setting(
            f"{self._netdev} {what}", f"fabric.roce.{key}", want, read, self._apply, advice=advice,
            same=lambda seen, wanted: seen == wanted,
        )  # fmt: skip

    def _mapped(self) -> str:
        priority = self.reading.get().dscp_to_priority.get(self._dscp)
        return "not mapped" if priority is None else f"priority {priority}"

    def _read(self) -> DcbState:
        if self._host.has("mlnx_qos"):
            return parse_mlnx_qos(self._host.must(["mlnx_qos", "-i", self._netdev]))
        if not self._host.has("dcb"):
            raise HostError(
                "mlnx_qos: is not installed on this node, nor is dcb; install mlnx-tools of DOCA, or iproute2"
            )
        dcbx = self._host.run(["dcb", "dcbx", "show", "dev", self._netdev])
        return parse_dcb(
            self._host.must(["dcb", "pfc", "show", "dev", self._netdev, "prio-pfc"]),
            self._host.must(["dcb", "-N", "app", "show", "dev", self._netdev, "dscp-prio"]),
            # A driver without a DCBX mode has no firmware that could own it.
            dcbx.out if dcbx.status == 0 else None,
        )

    def _apply(self) -> None:
        """Set what differs; nothing when an earlier call has done it. The map comes last: trust resets it."""
        if self._host.has("mlnx_qos"):
            self._apply_mlnx_qos()
        else:
            self._apply_dcb()

    def _apply_mlnx_qos(self) -> None:
        seen = self.reading.get()
        orders: list[str] = []
        if not seen.host_managed:
            orders += ["--dcbx", "os"]
        if seen.trust != self._trust:
            orders += ["--trust", self._trust]
        if seen.pfc != self._pfc:
            orders += ["--pfc", ",".join(str(int(on)) for on in self._pfc)]
        if orders:
            self._run("mlnx_qos", "-i", self._netdev, *orders)
        if self._unmapped():
            self._run("mlnx_qos", "-i", self._netdev, "--dscp2prio", f"set,{self._dscp},{self._priority}")

    def _apply_dcb(self) -> None:
        seen = self.reading.get()
        if not seen.host_managed:
            self._run("dcb", "dcbx", "set", "dev", self._netdev, "host", "ieee")
        if seen.pfc != self._pfc:
            self._run("dcb", "pfc", "set", "dev", self._netdev, "prio-pfc", "all:off", f"{self._priority}:on")
        if self._trust == "pcp" and seen.trust != "pcp":
            # mlx5 trusts DSCP while there is any DSCP entry.
            self._run("dcb", "app", "flush", "dev", self._netdev, "dscp-prio")
        if self._unmapped():
            pair = f"{self._dscp}:{self._priority}"
            self._run("dcb", "app", "replace", "dev", self._netdev, "dscp-prio", pair)

    def _unmapped(self) -> bool:
        return self._trust == "dscp" and self._mapped() != f"priority {self._priority}"

    def _run(self, *argv: str) -> None:
        try:
            self._host.must(argv)
        finally:
            self.reading.forget()


def _owner(host_managed: bool) -> str:
    return "host" if host_managed else "firmware"


def lldpad_setting(host: Host) -> Setting:
    """lldpad must not run: there is one owner of DCB."""

    def read() -> str:
        if not host.has("systemctl"):
            return "inactive"
        word = host.run(["systemctl", "is-active", _LLDPAD]).out.strip()
        return "active" if word in ("active", "activating", "reloading") else "inactive"

    return Setting(
        "lldpad",
        "fabric.roce.priority",
        "inactive",
        read,
        advice="it would set PFC anew: systemctl disable --now lldpad.socket lldpad.service, then run again",
    )
