"""The NICs of the healthy H200 node of fake_h200.py: sysfs files and what netlink and ethtool say.

ConnectX-7 with the driver of DOCA, one port a card, 400 Gb/s RoCE; all values are SIMULATED.
"""

from __future__ import annotations

import json
from typing import Any

NIC_BUSES = ("06", "18", "3b", "5e", "86", "98", "bb", "de")
#: Bus of the switch port above each NIC (fake_h200_fabric.pci_links).
UPSTREAM = ("04", "16", "39", "5c", "84", "96", "b9", "dc")
BOARD_ID = "MT_0000000838"
FIRMWARE = "28.43.2566"
DRIVER = "24.10-1.1.4"
BOOT_ID = "5d4f0c3e-0000-4000-8000-000000000001"
COUNTERS = {
    "counters/link_downed": 1,
    "counters/excessive_buffer_overrun_errors": 0,
    "counters/local_link_integrity_errors": 0,
    "counters/symbol_error": 12,
    "counters/link_error_recovery": 0,
    "counters/port_rcv_errors": 2,
    "counters/port_rcv_remote_physical_errors": 0,
    "counters/port_rcv_constraint_errors": 0,
    "counters/port_xmit_constraint_errors": 0,
    "counters/port_xmit_discards": 5,
    "counters/VL15_dropped": 0,
    "counters/port_rcv_packets": 79_512_244,
    "counters/port_xmit_packets": 79_498_812,
    "hw_counters/rnr_nak_retry_err": 0,
    "hw_counters/local_ack_timeout_err": 4,
    "hw_counters/roce_slow_restart": 9,
    "hw_counters/out_of_sequence": 17,
    "hw_counters/out_of_buffer": 3,
    "hw_counters/packet_seq_err": 12,
    "hw_counters/implied_nak_seq_err": 0,
    "hw_counters/roce_adp_retrans": 1,
    "hw_counters/np_ecn_marked_roce_packets": 1311,
    "hw_counters/np_cnp_sent": 1204,
    "hw_counters/rp_cnp_handled": 1187,
    "hw_counters/rp_cnp_ignored": 2,
}


def nic_address(slot: int) -> str:
    return f"0000:{NIC_BUSES[slot]}:00.0"


def vpd(serial: str) -> str:
    """Vital product data as the card keeps it, in hex: a name, then part and serial number."""
    keywords = b"".join(
        name + bytes([len(text)]) + text for name, text in ((b"PN", b"MCX75310AAS"), (b"SN", serial.encode()))
    )
    title = b"NVIDIA ConnectX-7"
    items = [(0x82, title), (0x90, keywords)]
    return b"".join(bytes([tag]) + len(body).to_bytes(2, "little") + body for tag, body in items).hex() + "78"


def pci_config(max_read_request_code: int = 5) -> str:
    """256 bytes of configuration space in hex, with one capability: PCI Express at byte 60h."""
    space = bytearray(256)
    space[0:4] = bytes.fromhex("b3152110")
    space[0x06] = 0x10
    space[0x34] = 0x60
    space[0x60:0x62] = bytes([0x10, 0x00])
    space[0x68:0x6A] = (max_read_request_code << 12).to_bytes(2, "little")
    return space.hex()


def _rdma_files(slot: int) -> dict[str, Any]:
    device = f"sys/class/infiniband/mlx5_{slot}"
    port = f"{device}/ports/1"
    files = {
        f"{device}/fw_ver": FIRMWARE,
        f"{device}/board_id": BOARD_ID,
        f"{device}/tc/1/traffic_class": "Global tclass=106",
        f"sys/kernel/config/rdma_cm/mlx5_{slot}/ports/1/default_roce_tos": "106",
        f"{port}/state": "4: ACTIVE",
        f"{port}/phys_state": "5: LinkUp",
        f"{port}/rate": "400 Gb/sec (4X NDR)",
        f"{port}/link_layer": "Ethernet",
        f"{port}/lid": "0x0",
        f"{port}/sm_lid": "0x0",
    }
    files |= {f"{port}/{name}": str(value) for name, value in COUNTERS.items()}
    local = f"fe80:0000:0000:0000:0000:5eff:fe10:000{slot}"
    routed = f"0000:0000:0000:0000:0000:ffff:c633:640{slot}"  # 198.51.100.0/24, for documentation
    for index, gid in enumerate((local, local, routed, routed)):
        files[f"{port}/gids/{index}"] = gid
        files[f"{port}/gid_attrs/types/{index}"] = "RoCE v2" if index % 2 else "IB/RoCE v1"
        files[f"{port}/gid_attrs/ndevs/{index}"] = f"eth{slot}"
    return files


def nic_files(slot: int) -> dict[str, Any]:
    """Every file of one NIC."""
    pci = f"sys/bus/pci/devices/{nic_address(slot)}"
    link = {"link_speed": "32.0 GT/s PCIe", "link_width": "16"}
    above = f"sys/bus/pci/devices/0000:{UPSTREAM[slot]}:01.0"
    return {
        "sys/module/mlx5_core/version": DRIVER,
        "proc/sys/kernel/osrelease": "6.8.0-45-generic",
        "proc/sys/kernel/random/boot_id": BOOT_ID,
        "run/nodegate-apply/nic.json": nic_record(),
        **_rdma_files(slot),
        f"sys/class/net/eth{slot}/ecn/roce_np/enable/3": "1",
        f"sys/class/net/eth{slot}/ecn/roce_rp/enable/3": "1",
        f"sys/class/net/eth{slot}/ecn/roce_np/cnp_dscp": "48",
        **{f"{pci}/{side}_{name}": text for name, text in link.items() for side in ("current", "max")},
        **{f"{above}/max_{name}": text for name, text in link.items()},
        f"{pci}/vpd": {"hex": vpd(f"MT2401X0000{slot}")},
        f"{pci}/config": {"hex": pci_config()},
    }


def nic_record() -> str:
    """What `nodegate-apply nic` left a minute ago: NV configuration of each card, and one setting besides."""
    shown = {
        "ATS_ENABLED": ("False", "False(0)"),
        "SRIOV_EN": ("True", "True(1)"),
        "NUM_OF_VFS": ("8", "8"),
        "KEEP_ETH_LINK_UP_P2": ("True", "(not listed: this card has no such port)"),
    }
    settings = [
        {
            "name": f"mlx5_{slot} {name}",
            "field": f"fabric.nic.config.{name}",
            "want": want,
            "current": value,
            "staged": value,
            "state": "ok",
            "problem": "",
        }
        for slot in range(8)
        for name, (want, value) in shown.items()
    ]
    settings.append(
        {"name": "eth0 MTU", "field": "fabric.ports.0.mtu_bytes", "want": "9000", "current": "9000"}
    )
    record = {"schema": 1, "name": "nic", "boot_id": BOOT_ID, "taken_mono_s": 4940.0, "taken_s": 1.7e9}
    return json.dumps({**record, "settings": settings, "problems": []})


def interface() -> dict[str, Any]:
    """What netlink and ethtool say of one interface."""
    statistics = {
        "rx_prio3_discards": 11,
        "rx_discards_phy": 20,
        "rx_prio3_pause": 100,
        "rx_prio3_pause_duration": 5000,
        "tx_prio3_pause": 40,
        "tx_prio3_pause_duration": 900,
        "tx_pause_storm_warning_events": 0,
        "tx_pause_storm_error_events": 0,
    }
    return {
        "link": {"operstate": "up", "carrier": True, "mtu_bytes": 9000, "carrier_down_count": 1},
        "ethtool": statistics,
        "dcb": {
            "pfc_on": [priority == 3 for priority in range(8)],
            "trust": "dscp",
            "dscp_to_priority": {"26": 3, "46": 6},
            "host_managed": True,
        },
        "driver": {
            "driver": "mlx5_core",
            "version": DRIVER,
            "firmware": f"{FIRMWARE} ({BOARD_ID})",
            "bus_info": "0000:06:00.0",
        },
        "pause": {"autonegotiated": False, "rx": False, "tx": False},
        "ring": {"rx": 8192, "tx": 8192, "rx_max": 8192, "tx_max": 8192},
        "module": {
            "kind": "OSFP optical",
            "vendor": "NVIDIA",
            "part_number": "MMA4Z00-NS",
            "serial": "MT2401FT00001",
            "temperature_c": 48.0,
            "rx_power_mw": [0.95, 0.96, 0.94, 0.95],
            "tx_power_mw": [1.0, 1.0, 1.0, 1.0],
            "alarms": [],
        },
    }


def fabric(ports: list[dict[str, Any]]) -> dict[str, Any]:
    """The fabric part of the profile that the healthy node fulfils."""
    row = {"board_id": BOARD_ID, "firmware_min": "28.39.1002", "driver_min": "24.04", "driver_max": "25.07"}
    return {
        "kind": "roce",
        "ports": [{**port, "serial": f"MT2401X0000{slot}"} for slot, port in enumerate(ports)],
        "nic": {
            "firmware": [row],
            "pcie_speed_gts": 32.0,
            "pcie_width": 16,
            "max_read_request_bytes": 4096,
            "rx_ring": 8192,
            "tx_ring": 8192,
            "config": {"ATS_ENABLED": False, "SRIOV_EN": True, "NUM_OF_VFS": 8, "KEEP_ETH_LINK_UP_P2": True},
        },
        "roce": {"cnp_dscp": 48, "gid_index": 3},
    }
