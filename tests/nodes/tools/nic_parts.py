"""mlx5 devices of filled-in nodes: RDMA devices with one or more ports, their interfaces, and net.json.

Names of files and counters are those of the mlx5 driver (DOCA/OFED); values are those of ports in use.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import demo_nic

LOSSLESS = 3
#: Interface statistics that judge or explain something; the driver has many more.
_STATISTICS = (
    "rx_packets", "rx_bytes", "tx_packets", "tx_bytes", "rx_vport_rdma_unicast_packets",
    "tx_vport_rdma_unicast_packets", "rx_out_of_buffer", "rx_discards_phy", "tx_discards_phy",
    "rx_crc_errors_phy", "rx_symbol_err_phy", "rx_pcs_symbol_err_phy", "rx_corrected_bits_phy",
    "rx_global_pause", "rx_global_pause_duration", "tx_global_pause", "tx_global_pause_duration",
    "tx_pause_storm_warning_events", "tx_pause_storm_error_events", "link_down_events_phy",
    "rx_buffer_passed_thres_phy", "outbound_pci_stalled_rd", "outbound_pci_stalled_wr", "module_unplug",
    "module_bus_stuck", "module_high_temp", "module_bad_shorted",
)  # fmt: skip


@dataclass(frozen=True)
class Card:
    """One RDMA device: its PCI function, kind of card and firmware."""

    device: str
    address: str
    number: int
    numa_node: int
    hca_type: str = "MT4129"
    board_id: str = "MT_0000000838"
    firmware: str = "28.43.2566"
    serial: str = ""
    max_read_b: int = 4096


@dataclass(frozen=True)
class DataPort:
    """One port that carries data: `netdev` None for InfiniBand without IPoIB."""

    card: Card
    port: int
    netdev: str | None
    rate: str
    speed_mb_s: int
    mtu_bytes: int = 9000
    infiniband: bool = False
    lid: int = 0
    optical: bool = False
    cnp_dscp: int = 48
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def place(self) -> int:
        """A number of its own for addresses."""
        return self.card.number * 16 + self.port


def card_files(card: Card) -> dict[str, Any]:
    """What the RDMA device says of itself."""
    base = f"sys/class/infiniband/{card.device}"
    guid = f"0200:5e03:{card.number + 0x20:04x}:0010"
    return {
        f"{base}/fw_ver": card.firmware,
        f"{base}/hca_type": card.hca_type,
        f"{base}/board_id": card.board_id,
        f"{base}/node_guid": guid,
        f"{base}/sys_image_guid": guid,
        f"{base}/node_type": "1: CA",
        f"{base}/device/vendor": "0x15b3",
        f"{base}/device/numa_node": str(card.numa_node),
    }


def unused_port(card: Card, port: int, *, infiniband: bool = False) -> dict[str, Any]:
    """A port that the platform has disabled for good."""
    base = f"sys/class/infiniband/{card.device}/ports/{port}"
    return {
        f"{base}/state": "1: DOWN",
        f"{base}/phys_state": "3: Disabled",
        f"{base}/rate": "10 Gb/sec (4X SDR)",
        f"{base}/link_layer": "InfiniBand" if infiniband else "Ethernet",
        f"{base}/lid": "0xffff" if infiniband else "0x0",
        f"{base}/counters/link_downed": "0",
    }


def port_files(port: DataPort) -> dict[str, Any]:
    """A port that carries data, with its counters, GIDs and interface."""
    base = f"sys/class/infiniband/{port.card.device}/ports/{port.port}"
    found: dict[str, Any] = {
        f"{base}/state": "4: ACTIVE",
        f"{base}/phys_state": "5: LinkUp",
        f"{base}/rate": port.rate,
        f"{base}/link_layer": "InfiniBand" if port.infiniband else "Ethernet",
        f"{base}/lid": f"{port.lid:#x}",
        f"{base}/sm_lid": "0x1" if port.infiniband else "0x0",
        f"{base}/sm_sl": "0",
        f"{base}/lid_mask_count": "0",
        f"{base}/cap_mask": "0xa751e848" if port.infiniband else "0x00010000",
    }
    found |= {f"{base}/counters/{name}": str(value) for name, value in demo_nic.COUNTERS.items()}
    found |= {f"{base}/hw_counters/{name}": str(value) for name, value in demo_nic.HW_COUNTERS.items()}
    found |= _gids(port, base)
    return found | (_interface_files(port) if port.netdev else {})


def _gids(port: DataPort, base: str) -> dict[str, str]:
    if port.infiniband:
        return {f"{base}/gids/0": f"fe80:0000:0000:0000:0200:5e03:{port.card.number + 0x20:04x}:0010"}
    local = f"fe80:0000:0000:0000:0000:5eff:fe10:{port.place:04x}"
    routed = f"0000:0000:0000:0000:0000:ffff:c633:64{port.place % 256:02x}"  # 198.51.100.0/24
    found = {}
    for index, gid in enumerate((local, local, routed, routed)):
        found[f"{base}/gids/{index}"] = gid
        found[f"{base}/gid_attrs/types/{index}"] = "RoCE v2" if index % 2 else "IB/RoCE v1"
        found[f"{base}/gid_attrs/ndevs/{index}"] = str(port.netdev)
    return found


def _interface_files(port: DataPort) -> dict[str, str]:
    base = f"sys/class/net/{port.netdev}"
    found = {
        f"{base}/address": f"02:00:5e:20:{port.place >> 8:02x}:{port.place & 255:02x}",
        f"{base}/mtu": str(port.mtu_bytes),
        f"{base}/operstate": "up",
        f"{base}/carrier": "1",
        f"{base}/carrier_down_count": "1",
        f"{base}/carrier_up_count": "1",
        f"{base}/speed": str(port.speed_mb_s),
        f"{base}/duplex": "full",
        f"{base}/type": "32" if port.infiniband else "1",
        f"{base}/device/vendor": "0x15b3",
        f"{base}/device/numa_node": str(port.card.numa_node),
    }
    if port.infiniband:
        return found
    found |= {
        f"{base}/ecn/roce_np/cnp_dscp": str(port.cnp_dscp),
        f"{base}/ecn/roce_np/cnp_802p_prio": "6",
        f"{base}/ecn/roce_np/min_time_between_cnps": "4",
    }
    for point in ("roce_np", "roce_rp"):
        for priority in range(8):
            found[f"{base}/ecn/{point}/enable/{priority}"] = str(int(priority == LOSSLESS))
    return found


def netdev(port: DataPort) -> dict[str, Any]:
    """What net.json has of the port's interface."""
    refused = {"error": "NOT_SUPPORTED"}
    return {
        "link": {"operstate": "up", "carrier": True, "mtu_bytes": port.mtu_bytes, "carrier_down_count": 1},
        "ethtool": _statistics(port),
        "dcb": refused if port.infiniband else dcb(),
        "driver": {
            "driver": "mlx5_core",
            "version": "25.07-0.9.7",
            "firmware": f"{port.card.firmware} ({port.card.board_id})",
            "bus_info": port.card.address,
        },
        "pause": refused if port.infiniband else {"autonegotiated": False, "rx": False, "tx": False},
        "module": module(port),
    }


def dcb() -> dict[str, Any]:
    """PFC for the one lossless priority, trust by DSCP."""
    return {
        "pfc_on": [priority == LOSSLESS for priority in range(8)],
        "trust": "dscp",
        "dscp_to_priority": {"26": LOSSLESS, "48": 6},
        "host_managed": True,
    }


def module(port: DataPort) -> dict[str, Any]:
    """A healthy transceiver, or a copper cable, which reports nothing of temperature and light."""
    found: dict[str, Any] = {
        "kind": "OSFP",
        "vendor": "NVIDIA",
        "part_number": "MMS4X00-NS400" if port.optical else "MCP4Y10-N002",
        "serial": f"MT25{port.place:03d}VS0{port.place:04d}",
        "alarms": [],
    }
    if port.optical:
        found |= {
            "temperature_c": 47.0,
            "rx_power_mw": [1.12, 1.08, 1.15, 1.1],
            "tx_power_mw": [1.31, 1.29, 1.3, 1.32],
        }
    return found


def _statistics(port: DataPort) -> dict[str, int]:
    found = {name: demo_nic.PORT_STATISTICS[name] for name in _STATISTICS}
    if port.infiniband:
        return {name: value for name, value in found.items() if "pause" not in name}
    for priority in range(8):
        used = priority == LOSSLESS
        for side in ("rx", "tx"):
            prefix = f"{side}_prio{priority}"
            found[f"{prefix}_bytes"] = 325_700_118_204 + 4096 * port.place if used else 0
            found[f"{prefix}_packets"] = 78_905_322 + port.place if used else 0
            found[f"{prefix}_pause"] = 0
            found[f"{prefix}_pause_duration"] = 0
            if side == "rx":
                found[f"{prefix}_discards"] = 0
    return found


def links(port_or_card: DataPort | Card) -> dict[str, str]:
    """Links from the class folders to the PCI function."""
    if isinstance(port_or_card, Card):
        return {
            f"sys/class/infiniband/{port_or_card.device}/device": f"../../../{port_or_card.address}",
        }
    if port_or_card.netdev is None:
        return {}
    return {f"sys/class/net/{port_or_card.netdev}/device": f"../../../{port_or_card.card.address}"}


def down_interface(card: Card, mtu_bytes: int = 1500) -> dict[str, Any]:
    """net.json of an interface that nobody uses."""
    return {
        "link": {"operstate": "down", "carrier": False, "mtu_bytes": mtu_bytes, "carrier_down_count": 1},
        "ethtool": {"rx_packets": 0, "tx_packets": 0},
        "dcb": {"error": "NOT_SUPPORTED"},
        "driver": {
            "driver": "mlx5_core",
            "version": "25.07-0.9.7",
            "firmware": f"{card.firmware} ({card.board_id})",
            "bus_info": card.address,
        },
        "pause": {"error": "NOT_SUPPORTED"},
        "module": {"error": "ABSENT"},
    }
