"""What lossless Ethernet wants of one data port besides DCB: ECN, CNPs, default classes, and its GID."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .host import Host, HostError
from .nic_ports import INFINIBAND, Port, address_of
from .setting import Setting

RDMA_CM = "/sys/kernel/config/rdma_cm"
#: What a driver that lacks a file is said to have; nothing is wrong with it then.
NOT_OFFERED = "(not offered by this driver)"
BY_CARD = "1 (by the card's ROCE_CC_PRIO_MASK)"
_GLOBAL = re.compile(r"Global tclass=(-?\d{1,3})\b")
_ECT0 = 2


def traffic_class(roce: Mapping[str, Any]) -> int:
    """The traffic class of RDMA: DSCP, and ECT(0) where ECN is on."""
    return int(roce["dscp"]) << 2 | (_ECT0 if roce["ecn"] else 0)


class RoceSettings:
    """ECN, CNPs, classes and GID of one port."""

    def __init__(self, host: Host, port: Port, nic: Mapping[str, Any], roce: Mapping[str, Any]) -> None:
        """`nic` and `roce` are these parts of fabric in the profile."""
        self._host = host
        self._port = port
        self._nic = nic
        self._roce = roce

    def settings(self) -> list[Setting]:
        """All that can be set."""
        return [*self._ecn(), *self._cnp(), *self._classes()]

    def _ecn(self) -> list[Setting]:
        if not self._roce["ecn"]:
            return []
        return [self._ecn_point(point) for point in ("np", "rp")]

    def _ecn_point(self, point: str) -> Setting:
        netdev, priority = self._port.netdev, int(self._roce["priority"])
        path = f"/sys/class/net/{netdev}/ecn/roce_{point}/enable/{priority}"

        def read() -> str:
            text = self._host.read(path)
            if text is not None:
                return text.strip()
            if self._by_card(priority):
                return BY_CARD
            raise HostError(
                f"{path}: is not there: the kernel's own driver has no switch for ECN; write"
                " ROCE_CC_PRIO_MASK_P1: 255 into fabric.nic.config, or install the driver of DOCA"
            )

        return Setting(
            f"{netdev} ECN roce_{point} priority {priority}",
            "fabric.roce.ecn",
            "1",
            read,
            lambda: self._host.poke(path, "1"),
            same=lambda seen, want: seen in (want, BY_CARD),
        )

    def _by_card(self, priority: int) -> bool:
        """Whether the profile has the card itself do it for this priority (with the kernel's own driver)."""
        for values in (self._nic.get("config") or {}, *(self._nic.get("config_by_board") or {}).values()):
            mask = values.get(
                f"ROCE_CC_PRIO_MASK_P{self._port.number}", values.get("ROCE_CC_PRIO_MASK_P1", 0)
            )
            if isinstance(mask, int) and mask >> priority & 1:
                return True
        return False

    def _cnp(self) -> list[Setting]:
        want = self._roce.get("cnp_dscp")
        if want is None:
            return []
        own = f"/sys/class/net/{self._port.netdev}/ecn/roce_np/cnp_dscp"

        def path() -> str:
            if self._host.exists(own):
                return own
            address = address_of(self._host, self._port.device)
            inbox = f"/sys/kernel/debug/mlx5/{address}/cc_params/np_cnp_dscp"
            if self._host.exists(inbox):
                return inbox
            raise HostError(
                f"{own}: is not there, nor is {inbox}: this driver has no switch for the DSCP of CNPs;"
                " mount debugfs, or leave fabric.roce.cnp_dscp out and set CNP_DSCP_P1 in fabric.nic.config"
            )

        return [
            Setting(
                f"{self._port.netdev} CNP DSCP",
                "fabric.roce.cnp_dscp",
                str(want),
                lambda: self._host.read(path()),
                lambda: self._host.poke(path(), str(want)),
            )
        ]

    def _classes(self) -> list[Setting]:
        if self._roce["trust"] != "dscp":
            return []  # such a port sorts by service level, not by the traffic class
        return [self._forced_class(), self._connection_tos()]

    def _forced_class(self) -> Setting:
        path = f"{INFINIBAND}/{self._port.device}/tc/{self._port.number}/traffic_class"
        want = str(traffic_class(self._roce))

        def read() -> str:
            text = self._host.read(path)
            if text is None:
                return NOT_OFFERED
            match = _GLOBAL.match(text)
            return match[1] if match else "none"

        return Setting(
            f"{self._port.label} traffic class",
            "fabric.roce.dscp",
            want,
            read,
            lambda: self._host.poke(path, want),
            same=lambda seen, wanted: seen in (wanted, NOT_OFFERED),
        )

    def _connection_tos(self) -> Setting:
        folder = f"{RDMA_CM}/{self._port.device}"
        path = f"{folder}/ports/{self._port.number}/default_roce_tos"
        want = str(traffic_class(self._roce))

        def read() -> str | None:
            if not self._host.exists(RDMA_CM):
                return NOT_OFFERED
            return self._host.read(path)

        def write() -> None:
            if not self._host.exists(path):
                self._make(folder, want)
            self._host.poke(path, want)

        return Setting(
            f"{self._port.label} TOS of librdmacm",
            "fabric.roce.dscp",
            want,
            read,
            write,
            same=lambda seen, wanted: seen.strip() in (wanted, NOT_OFFERED),
        )

    def _make(self, folder: str, want: str) -> None:
        """Make the device's folder in configfs; the kernel puts its files there. It stays, as evidence."""
        if self._host.has("cma_roce_tos"):
            port = str(self._port.number)
            self._host.must(["cma_roce_tos", "-d", self._port.device, "-p", port, "-t", want])
        try:
            self._host.path(folder).mkdir(exist_ok=True)
        except OSError as cause:
            raise HostError(f"{folder}: cannot be made: {cause.strerror}; modprobe rdma_cm") from cause

    def gid(self) -> list[Setting]:
        """The GID that RDMA uses is looked at; it comes from the interface's addresses."""
        index = self._roce.get("gid_index")
        if index is None:
            return []
        path, netdev = f"{INFINIBAND}/{self._port.device}/ports/{self._port.number}", self._port.netdev

        def read() -> str:
            address_of(self._host, self._port.device)  # or there is no such device, which is another line
            gid = (self._host.read(f"{path}/gids/{index}") or "").strip()
            if not gid.strip("0:"):
                return "empty"
            kind = (self._host.read(f"{path}/gid_attrs/types/{index}") or "").strip()
            owner = (self._host.read(f"{path}/gid_attrs/ndevs/{index}") or "").strip()
            local = ", link-local" if gid.startswith("fe80:") else ""
            return f"{kind}{local} of {owner.partition('.')[0]}"

        return [
            Setting(
                f"{self._port.label} GID {index}",
                "fabric.roce.gid_index",
                f"RoCE v2 of {netdev}",
                read,
                advice="give the interface its IP address, look at show_gids, or correct the profile",
            )
        ]
