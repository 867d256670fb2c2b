"""The NICs of the healthy H200 node of fake_h200.py: sysfs files and what netlink and ethtool say."""

from __future__ import annotations

from typing import Any

NIC_BUSES = ("06", "18", "3b", "5e", "86", "98", "bb", "de")


def nic_files(slot: int) -> dict[str, Any]:
    port = f"sys/class/infiniband/mlx5_{slot}/ports/1"
    counters = {
        "counters/link_downed": 1,
        "counters/excessive_buffer_overrun_errors": 0,
        "counters/local_link_integrity_errors": 0,
        "counters/symbol_error": 12,
        "counters/link_error_recovery": 0,
        "counters/port_rcv_errors": 2,
        "counters/port_xmit_discards": 5,
        "hw_counters/rnr_nak_retry_err": 0,
        "hw_counters/local_ack_timeout_err": 4,
        "hw_counters/roce_slow_restart": 9,
    }
    return {
        f"{port}/state": "4: ACTIVE",
        f"{port}/phys_state": "5: LinkUp",
        f"{port}/rate": "400 Gb/sec (4X NDR)",
        f"{port}/link_layer": "Ethernet",
        f"sys/class/net/eth{slot}/ecn/roce_np/enable/3": "1",
        f"sys/class/net/eth{slot}/ecn/roce_rp/enable/3": "1",
        **{f"{port}/{name}": str(value) for name, value in counters.items()},
    }


def interface() -> dict[str, Any]:
    return {
        "link": {"operstate": "up", "carrier": True, "mtu_bytes": 9000, "carrier_down_count": 1},
        "ethtool": {"rx_prio3_discards": 11, "rx_prio3_pause": 100},
        "dcb": {
            "pfc_on": [priority == 3 for priority in range(8)],
            "trust": "dscp",
            "dscp_to_priority": {"26": 3, "46": 6},
            "host_managed": True,
        },
    }
