"""NVLink, NVSwitches, PCIe tree and driver of the healthy H200 node of fake_h200.py; SIMULATED values."""

from __future__ import annotations

from typing import Any

from fake_h200_net import NIC_BUSES

PCI = "sys/bus/pci/devices"
SWITCH_BUSES = ("c1", "c2", "c3", "c4")
DRIVER = "580.159.04"
#: Hopper has none of these.
BER_FIELDS = (
    "malformed_packets", "buffer_overruns", "receive_errors", "remote_errors", "general_errors",
    "integrity_errors", "transmit_discards", "recoveries", "failed_recoveries", "effective_errors",
    "symbol_errors", "effective_ber", "symbol_ber",
)  # fmt: skip
REFUSED = {"error": "NOT_SUPPORTED"}
RUNNING = {"load_state": "loaded", "active_state": "active", "sub_state": "running", "restarts": 0}


def hopper_ber() -> dict[str, Any]:
    return dict.fromkeys(BER_FIELDS, REFUSED)


def blackwell_ber(links: int = 18) -> dict[str, Any]:
    """The same group as a Blackwell GPU in good health answers it."""
    counters = {name: [2] * links for name in BER_FIELDS if not name.endswith("_ber")}
    return {**counters, "effective_ber": [15e-238] * links, "symbol_ber": [15e-238] * links}


def peers(slot: int) -> dict[str, Any]:
    """NV18 between all; GPUs 0-3 on one NUMA node, 4-7 on the other."""
    return {
        "p2p_nvlink": [0] * 8,
        "p2p_read": [0] * 8,
        "topology": [0 if at == slot else 40 if at // 4 == slot // 4 else 50 for at in range(8)],
    }


def pci_links(buses: tuple[str, ...]) -> dict[str, str]:
    """GPU and NIC of each slot under one PCIe switch of a root complex of their own."""
    links = {}
    for gpu, nic in zip(buses, NIC_BUSES, strict=True):
        root, up, down = (f"{int(gpu, 16) - behind:02x}" for behind in (3, 2, 1))
        stem = f"../../../devices/pci0000:{root}/0000:{root}:01.0/0000:{up}:00.0"
        links[f"{PCI}/0000:{gpu}:00.0"] = f"{stem}/0000:{down}:00.0/0000:{gpu}:00.0"
        links[f"{PCI}/0000:{nic}:00.0"] = f"{stem}/0000:{down}:01.0/0000:{nic}:00.0"
    return links


def fabric_files() -> dict[str, Any]:
    files: dict[str, Any] = {
        "proc/driver/nvidia/version": (
            f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {DRIVER}  Release Build  (builder@)\n"
            "GCC version:  gcc version 13.3.0 (GCC)"
        ),
        "sys/module/nvidia/version": DRIVER,
    }
    for module in ("nvidia", "nvidia_uvm", "nvidia_modeset", "mlx5_core", "ib_uverbs"):
        files[f"sys/module/{module}/initstate"] = "live"
    for bus in SWITCH_BUSES:
        files[f"{PCI}/0000:{bus}:00.0/vendor"] = "0x10de"
        files[f"{PCI}/0000:{bus}:00.0/class"] = "0x068000"
    for slot, bus in enumerate(NIC_BUSES):
        files[f"{PCI}/0000:{bus}:00.0/numa_node"] = str(slot // 4)
    return files


def units() -> dict[str, Any]:
    return {
        "nvidia-fabricmanager.service": dict(RUNNING),
        "nvidia-persistenced.service": dict(RUNNING),
        "nvidia-imex.service": dict(RUNNING),
    }
