"""One filled-in 400 Gb/s ConnectX-7 port of the demo node: net.json, sysfs files, links.

Names are those of the mlx5 driver (DOCA/OFED); values are those of an idle port that has been in use.
https://enterprise-support.nvidia.com/s/article/understanding-mlx5-linux-counters-and-status-parameters
"""

from __future__ import annotations

from typing import Any

FIRMWARE = "28.43.2566"
PRIORITIES = range(8)
LOSSLESS = 3
COUNTERS = {
    "VL15_dropped": 0,
    "excessive_buffer_overrun_errors": 0,
    "link_downed": 0,
    "link_error_recovery": 0,
    "local_link_integrity_errors": 0,
    "multicast_rcv_packets": 4127,
    "multicast_xmit_packets": 88,
    "port_rcv_constraint_errors": 0,
    "port_rcv_data": 81_442_906_118,
    "port_rcv_errors": 0,
    "port_rcv_packets": 79_512_244,
    "port_rcv_remote_physical_errors": 0,
    "port_rcv_switch_relay_errors": 0,
    "port_xmit_constraint_errors": 0,
    "port_xmit_data": 81_420_771_540,
    "port_xmit_discards": 0,
    "port_xmit_packets": 79_498_812,
    "port_xmit_wait": 0,
    "symbol_error": 0,
    "unicast_rcv_packets": 79_508_117,
    "unicast_xmit_packets": 79_498_724,
}
HW_COUNTERS = {
    "duplicate_request": 0,
    "implied_nak_seq_err": 0,
    "lifespan": 10,
    "local_ack_timeout_err": 0,
    "np_cnp_sent": 1204,
    "np_ecn_marked_roce_packets": 1311,
    "out_of_buffer": 0,
    "out_of_sequence": 17,
    "packet_seq_err": 12,
    "req_cqe_error": 0,
    "req_cqe_flush_error": 0,
    "req_remote_access_errors": 0,
    "req_remote_invalid_request": 0,
    "req_rnr_retries_exceeded": 0,
    "req_transport_retries_exceeded": 0,
    "resp_cqe_error": 64,
    "resp_cqe_flush_error": 64,
    "resp_local_length_error": 0,
    "resp_remote_access_errors": 0,
    "rnr_nak_retry_err": 0,
    "roce_adp_retrans": 0,
    "roce_adp_retrans_to": 0,
    "roce_slow_restart": 0,
    "roce_slow_restart_cnps": 0,
    "roce_slow_restart_trans": 0,
    "rp_cnp_handled": 1187,
    "rp_cnp_ignored": 0,
    "rx_atomic_requests": 0,
    "rx_icrc_encapsulated": 0,
    "rx_read_requests": 220_417,
    "rx_write_requests": 31_870_226,
}
PORT_STATISTICS = {
    "rx_packets": 612_204,
    "rx_bytes": 91_223_406,
    "tx_packets": 588_119,
    "tx_bytes": 80_410_233,
    "rx_vport_rdma_unicast_packets": 78_900_040,
    "rx_vport_rdma_unicast_bytes": 325_771_624_472,
    "tx_vport_rdma_unicast_packets": 78_910_605,
    "tx_vport_rdma_unicast_bytes": 325_683_086_160,
    "rx_out_of_buffer": 0,
    "rx_discards_phy": 0,
    "tx_discards_phy": 0,
    "rx_crc_errors_phy": 0,
    "rx_symbol_err_phy": 0,
    "rx_pcs_symbol_err_phy": 0,
    "rx_corrected_bits_phy": 318_204,
    "rx_err_lane_0_phy": 0,
    "rx_err_lane_1_phy": 0,
    "rx_err_lane_2_phy": 0,
    "rx_err_lane_3_phy": 0,
    "rx_in_range_len_errors_phy": 0,
    "rx_out_of_range_len_phy": 0,
    "rx_oversize_pkts_phy": 0,
    "rx_jabbers_phy": 0,
    "rx_fragments_phy": 0,
    "rx_unsupported_op_phy": 0,
    "rx_global_pause": 0,
    "rx_global_pause_duration": 0,
    "tx_global_pause": 0,
    "tx_global_pause_duration": 0,
    "tx_pause_storm_warning_events": 0,
    "tx_pause_storm_error_events": 0,
    "link_down_events_phy": 0,
    "rx_buffer_passed_thres_phy": 0,
    "rx_pci_signal_integrity": 0,
    "tx_pci_signal_integrity": 8,
    "outbound_pci_stalled_rd": 0,
    "outbound_pci_stalled_wr": 0,
    "outbound_pci_stalled_rd_events": 0,
    "outbound_pci_stalled_wr_events": 0,
    "dev_internal_queue_oob": 0,
    "module_unplug": 0,
    "module_bus_stuck": 0,
    "module_high_temp": 0,
    "module_bad_shorted": 0,
    "ch_events": 120_004,
    "ch_poll": 130_771,
}


def mac(i: int) -> str:
    return f"02:00:5e:10:00:{0x10 + i:02x}"


def guid(i: int, separator: str = ":") -> str:
    return separator.join(("0200", "5e03", "0010", f"00{0x10 + i:02x}"))


def netdev(i: int, address: str) -> dict[str, Any]:
    statistics = dict(PORT_STATISTICS)
    for priority in PRIORITIES:
        used = priority == LOSSLESS
        for side in ("rx", "tx"):
            prefix = f"{side}_prio{priority}"
            statistics[f"{prefix}_bytes"] = 325_700_118_204 + 4096 * i if used else 0
            statistics[f"{prefix}_packets"] = 78_905_322 + i if used else 0
            statistics[f"{prefix}_pause"] = 0
            statistics[f"{prefix}_pause_duration"] = 0
            if side == "rx":
                statistics[f"{prefix}_discards"] = 0
                statistics[f"{prefix}_buf_discard"] = 0
                statistics[f"{prefix}_cong_discard"] = 0
                statistics[f"{prefix}_marked"] = 1311 if used else 0
            statistics[f"{prefix}_pause_transition"] = 0
    return {
        "link": {"operstate": "up", "carrier": True, "mtu_bytes": 9000, "carrier_down_count": 1},
        "ethtool": statistics,
        "dcb": {
            "pfc_on": [priority == LOSSLESS for priority in PRIORITIES],
            "trust": "dscp",
            "dscp_to_priority": {"26": LOSSLESS, "48": 6},
            "host_managed": True,
        },
        "driver": {
            "driver": "mlx5_core",
            "version": "25.07-0.9.7",
            "firmware": f"{FIRMWARE} (MT_0000000838)",
            "bus_info": address,
        },
        "pause": {"autonegotiated": False, "rx": False, "tx": False},
        "module": {
            "kind": "OSFP",
            "vendor": "NVIDIA",
            "part_number": "MCP4Y10-N002",
            "serial": f"MT2519VS{40150 + i}",
            "alarms": [],
        },
    }


def files(i: int, address: str, numa_node: int) -> dict[str, str]:
    pci = {
        "vendor": "0x15b3",
        "device": "0x1021",
        "subsystem_vendor": "0x15b3",
        "subsystem_device": "0x0026",
        "class": "0x020000",
        "current_link_speed": "32.0 GT/s PCIe",
        "current_link_width": "16",
        "max_link_speed": "32.0 GT/s PCIe",
        "max_link_width": "16",
        "numa_node": str(numa_node),
    }
    found = {f"sys/bus/pci/devices/{address}/{name}": text for name, text in pci.items()}
    return found | _rdma_files(i, pci) | _netdev_files(i, pci)


def _rdma_files(i: int, pci: dict[str, str]) -> dict[str, str]:
    device = f"sys/class/infiniband/mlx5_{i}"
    port = f"{device}/ports/1"
    found = {
        f"{device}/fw_ver": FIRMWARE,
        f"{device}/hca_type": "MT4129",
        f"{device}/board_id": "MT_0000000838",
        f"{device}/node_guid": guid(i),
        f"{device}/sys_image_guid": guid(i),
        f"{device}/node_type": "1: CA",
        f"{port}/state": "4: ACTIVE",
        f"{port}/phys_state": "5: LinkUp",
        f"{port}/rate": "400 Gb/sec (4X NDR)",
        f"{port}/link_layer": "Ethernet",
        f"{port}/lid": "0x0",
    }
    found |= {f"{device}/device/{name}": pci[name] for name in ("vendor", "device", "numa_node")}
    found |= {f"{port}/counters/{name}": str(value) for name, value in COUNTERS.items()}
    found |= {f"{port}/hw_counters/{name}": str(value) for name, value in HW_COUNTERS.items()}
    local = f"fe80:0000:0000:0000:0000:5eff:fe10:00{0x10 + i:02x}"
    routed = f"0000:0000:0000:0000:0000:ffff:c633:64{0x10 + i:02x}"  # 198.51.100.0/24, for documentation
    for index, gid in enumerate((local, local, routed, routed)):
        found[f"{port}/gids/{index}"] = gid
        found[f"{port}/gid_attrs/types/{index}"] = "RoCE v2" if index % 2 else "IB/RoCE v1"
        found[f"{port}/gid_attrs/ndevs/{index}"] = f"eth{i}"
    return found


def _netdev_files(i: int, pci: dict[str, str]) -> dict[str, str]:
    base = f"sys/class/net/eth{i}"
    found = {
        f"{base}/address": mac(i),
        f"{base}/mtu": "9000",
        f"{base}/operstate": "up",
        f"{base}/carrier": "1",
        f"{base}/carrier_down_count": "1",
        f"{base}/carrier_up_count": "1",
        f"{base}/speed": "400000",
        f"{base}/duplex": "full",
        f"{base}/type": "1",
        f"{base}/ecn/roce_np/cnp_dscp": "48",
        f"{base}/ecn/roce_np/cnp_802p_prio": "6",
        f"{base}/ecn/roce_np/min_time_between_cnps": "4",
    }
    for point in ("roce_np", "roce_rp"):
        found |= {
            f"{base}/ecn/{point}/enable/{priority}": str(int(priority == LOSSLESS)) for priority in PRIORITIES
        }
    return found | {f"{base}/device/{name}": pci[name] for name in ("vendor", "device", "numa_node")}


def links(i: int, address: str) -> dict[str, str]:
    return {
        f"sys/class/infiniband/mlx5_{i}/device": f"../../../{address}",
        f"sys/class/net/eth{i}/device": f"../../../{address}",
    }
