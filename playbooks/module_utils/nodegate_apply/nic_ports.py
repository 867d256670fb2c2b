"""Settings of one data port that are lost at every boot: MTU, rings, global pause, PCIe MaxReadReq."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from .host import Host, HostError
from .reading import Reading
from .setting import Setting

INFINIBAND = "/sys/class/infiniband"


class Port(NamedTuple):
    """One data port of the profile; `place` is its number in fabric.ports."""

    place: int
    device: str
    number: int
    netdev: str
    mtu_bytes: int | None

    @property
    def label(self) -> str:
        """The device; of one with several ports also which."""
        return self.device if self.number == 1 else f"{self.device}/{self.number}"

    def field(self, key: str) -> str:
        """A key of this port in the profile."""
        return f"fabric.ports.{self.place}.{key}"


class Rings(NamedTuple):
    """`ethtool -g`: entries now and at most."""

    now: Mapping[str, int]
    most: Mapping[str, int]


def address_of(host: Host, device: str) -> str:
    """PCI address of an RDMA device. Raises HostError."""
    try:
        return host.path(f"{INFINIBAND}/{device}/device").readlink().name
    except OSError as cause:
        raise HostError(
            f"{device}: there is no such RDMA device; see ls {INFINIBAND}, load its driver (mlx5_ib)"
            " or correct fabric.ports"
        ) from cause


def parse_pause(text: str) -> str:
    """`rx off, tx off` of `ethtool -a`. Raises HostError."""
    found = dict(re.findall(r"^(RX|TX):\s*(on|off)\s*$", text, re.M))
    if set(found) != {"RX", "TX"}:
        raise HostError(f"ethtool -a: tells no pause parameters: {' '.join(text.split())[:120]!r}")
    return f"rx {found['RX']}, tx {found['TX']}"


def parse_rings(text: str) -> Rings:
    """Entries of RX and TX rings of `ethtool -g`. Raises HostError."""
    most, _, now = text.partition("Current hardware settings:")
    sides = [
        {side.lower(): int(count) for side, count in re.findall(r"^(RX|TX):\s*(\d+)\s*$", part, re.M)}
        for part in (now, most)
    ]
    if any(set(side) != {"rx", "tx"} for side in sides):
        raise HostError(f"ethtool -g: tells no ring sizes: {' '.join(text.split())[:120]!r}")
    return Rings(*sides)


class PortSettings:
    """The settings of one port."""

    def __init__(self, host: Host, port: Port, nic: Mapping[str, Any]) -> None:
        """`nic` is this part of fabric in the profile."""
        self._host = host
        self._port = port
        self._nic = nic
        self.rings: Reading[Rings] = Reading(
            lambda: parse_rings(host.must(["ethtool", "-g", self._port.netdev]))
        )

    def of_any_fabric(self) -> list[Setting]:
        """MTU and MaxReadReq."""
        found = []
        if self._port.netdev and self._port.mtu_bytes is not None:
            found.append(self._mtu(self._port.mtu_bytes))
        size = self._nic.get("max_read_request_bytes")
        if size is not None:
            found.append(self._max_read_request(int(size)))
        return found

    def of_roce(self) -> list[Setting]:
        """Rings and global pause."""
        rings = [self._ring(side) for side in ("rx", "tx") if self._nic.get(f"{side}_ring") is not None]
        return [*rings, self._pause()]

    def _mtu(self, want: int) -> Setting:
        path = f"/sys/class/net/{self._port.netdev}/mtu"
        return Setting(
            f"{self._port.netdev} MTU",
            self._port.field("mtu_bytes"),
            str(want),
            lambda: _there(self._host, path, f"{self._port.netdev}: there is no such interface"),
            lambda: self._host.poke(path, str(want)),
            advice="give it the same MTU in the host's network settings",
        )

    def _max_read_request(self, want: int) -> Setting:
        def register() -> int:
            argv = ["setpci", "-s", address_of(self._host, self._port.device), "CAP_EXP+08.w"]
            text = self._host.must(argv).strip()
            if re.fullmatch(r"[0-9a-fA-F]{4}", text) is None or text.lower() == "ffff":
                raise HostError(f"{' '.join(argv)}: reads {text[:40]!r}; see lspci -vv of this card")
            return int(text, 16)

        def write() -> None:
            code = (want // 128).bit_length() - 1
            # Bits 14:12 alone: the others belong to the BIOS and the driver.
            order = f"CAP_EXP+08.w={code << 12:04x}:7000"
            self._host.must(["setpci", "-s", address_of(self._host, self._port.device), order])

        return Setting(
            f"{self._port.device} MaxReadReq",
            "fabric.nic.max_read_request_bytes",
            str(want),
            lambda: str(128 << (register() >> 12 & 7)),
            write,
        )

    def _ring(self, side: str) -> Setting:
        want = int(self._nic[f"{side}_ring"])

        def read() -> str:
            rings = self.rings.get()
            if want > rings.most[side]:
                raise HostError(
                    f"ethtool -g {self._port.netdev}: {side} rings have at most {rings.most[side]} entries,"
                    f" not {want}; correct fabric.nic.{side}_ring"
                )
            return str(rings.now[side])

        def write() -> None:
            try:
                self._host.must(["ethtool", "-G", self._port.netdev, side, str(want)])
            finally:
                self.rings.forget()

        return Setting(
            f"{self._port.netdev} {side} ring",
            f"fabric.nic.{side}_ring",
            str(want),
            read,
            write,
            advice="the driver rounds to powers of two: see ethtool -g, and correct the profile",
        )

    def _pause(self) -> Setting:
        netdev = self._port.netdev
        return Setting(
            f"{netdev} global pause",
            "fabric.roce.priority",
            "rx off, tx off",
            lambda: parse_pause(self._host.must(["ethtool", "-a", netdev])),
            lambda: _done(
                self._host.must(["ethtool", "-A", netdev, "autoneg", "off", "rx", "off", "tx", "off"])
            ),
        )


def _there(host: Host, path: str, otherwise: str) -> str:
    text = host.read(path)
    if text is None:
        raise HostError(f"{otherwise}; see ip link, load its driver or correct fabric.ports")
    return text


def _done(_text: str) -> None:
    """What a command prints when it has succeeded is nobody's business."""
