"""The node gb10: one GB10 (arm64), memory shared with the CPU, two 200G ports as four functions."""

from __future__ import annotations

from typing import Any

import gpu_parts
import host_parts
import nic_parts
import pci_parts
from node_writer import Node

DRIVER = "580.95.05"
GPU = "000f:01:00.0"
NUMBER = 5
#: (RDMA device, netdev, PCI address): each QSFP port is two functions, one on each PCIe x4 link.
FUNCTIONS = (
    ("rocep1s0f0", "enp1s0f0np0", "0000:01:00.0"),
    ("rocep1s0f1", "enp1s0f1np1", "0000:01:00.1"),
    ("roceP2p1s0f0", "enP2p1s0f0np0", "0002:01:00.0"),
    ("roceP2p1s0f1", "enP2p1s0f1np1", "0002:01:00.1"),
)


def port_of(number: int) -> nic_parts.DataPort:
    device, netdev, address = FUNCTIONS[number]
    card = nic_parts.Card(
        device=device, address=address, number=number, numa_node=0, board_id="NVD0000000087",
        firmware="28.45.4028", serial="MT2530XGB0001",
    )  # fmt: skip
    return nic_parts.DataPort(
        card=card, port=1, netdev=netdev, rate="200 Gb/sec (4X HDR)", speed_mb_s=200_000, mtu_bytes=9000
    )


def gb10() -> Node:
    """The whole node."""
    boot_id = f"3e2b7a5c-8d41-4f6e-9b0a-6c1d52f7e9{NUMBER:02x}"
    ports = [port_of(number) for number in range(4)]
    files: dict[str, Any] = host_parts.files(
        name="gb10",
        boot_id=boot_id,
        driver=DRIVER,
        cpus=["0-19"],
        memory_gib=119,
        kernel="6.14.0-1013-nvidia",
        machine="aarch64",
        cpu_count=20,
        modules=("nvidia", "nvidia_uvm", "nvidia_modeset", *host_parts.RDMA_MODULES),
    )
    links: dict[str, str] = {}
    files |= pci_parts.function(GPU, (0x10DE, 0x2E12), 0x030000, speed_gts=2.5, width=1, numa_node=0)
    files |= {"dev/nvidia0": ""}
    for port in ports:
        files |= pci_parts.function(
            port.card.address, (0x15B3, 0x1021), 0x020000, speed_gts=32.0, width=4, numa_node=0,
            max_read_b=4096,
        )  # fmt: skip
        files |= nic_parts.card_files(port.card) | nic_parts.port_files(port)
        links |= nic_parts.links(port.card) | nic_parts.links(port)
    for domain in ("0000", "0002", "000f"):
        bridges, paths = pci_parts.behind_root_port(f"{domain}:00:00.0", f"{domain}:01:00.0", 0, 32.0)
        files |= bridges
        links |= paths
    for domain in ("0000", "0002"):
        top = f"../../../devices/pci{domain}:00/{domain}:00:00.0"
        links[f"sys/bus/pci/devices/{domain}:01:00.1"] = f"{top}/{domain}:01:00.1"
    identity = {"index": 0, "uuid": gpu_parts.uuid(NUMBER, 0), "pci_bus_id": GPU, "serial": None, "minor": 0}
    return Node(
        name="gb10",
        platform="gb10",
        description="One GB10 (DGX Spark and alike): arm64, unified memory, two 200G ports as four functions",
        driver=DRIVER,
        nvml_version=f"13.{DRIVER}",
        boot_id=boot_id,
        filled_in=[
            "nvml.json: temperatures, thresholds, draw, clocks, VBIOS, UUID",
            "net.json, host.json, kmsg.txt: all",
            "tree.json: all but names, links and rates of the ports and the GPU's bus id",
        ],
        profile=profile(ports),
        gpus=[gpu_parts.gb10(identity)],
        net={str(port.netdev): nic_parts.netdev(port) for port in ports},
        files=files,
        links=links,
        host=host_parts.host(
            units=("nvidia-persistenced.service", "systemd-timesyncd.service"),
            disks={"/": (3700, 2900), "/var/lib/nodegate": (3700, 2900)},
        ),
        kmsg=[
            (4, 9.2, f"NVRM: loading NVIDIA UNIX Open Kernel Module for aarch64  {DRIVER}  Release Build"),
        ],
    )


def profile(ports: list[nic_parts.DataPort]) -> str:
    lines = "".join(
        f"    - {{device: {port.card.device}, netdev: {port.netdev}, rate_gbps: 200, mtu_bytes: 9000,"
        f' pci_bus_id: "{port.card.address}"}}\n'
        for port in ports
    )
    return f"""\
# Profile of the simulated node gb10. The layer `gb10` says what the platform does not have.
schema_version: 1
node: gb10
platform: gb10
mode: gate
driver_version: {DRIVER}

gpus:
  pins:
    0: {{uuid: {gpu_parts.uuid(NUMBER, 0)}, pci_bus_id: "{GPU}"}}

fabric:
  kind: roce
  roce: {{priority: 3, dscp: 26, cnp_dscp: 48}}
  # Two QSFP ports, each on two functions with a PCIe x4 link of its own: full rate needs both.
  nic: {{pcie_speed_gts: 32, pcie_width: 4}}
  ports:
{lines}
host:
  sysctl: {{vm.swappiness: 1}}
  swap: false
  memory_gib: 110
  modules: [nvidia_uvm]
  disks: [/, /var/lib/nodegate]

engines:
  rank:
    gpus: [0]
    port: 8000
    launch: {{command: [vllm, serve], model: kimi, served_model_name: kimi, rdma: true}}
"""
