"""The nodes h20-roce (HGX H20, eight 400G RoCE ports) and h200-ib (HGX H200, eight NDR ports)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gpu_parts
import host_parts
import nic_parts
import pci_parts
from node_writer import Node

#: (NIC, GPU) behind one PCIe switch.
PAIRS = (
    ("18", "1b"), ("40", "43"), ("4f", "52"), ("5e", "61"), ("9a", "9d"), ("c0", "c3"), ("ce", "d1"),
    ("dc", "df"),
)  # fmt: skip
NVSWITCH_BUSES = ("04", "05", "06", "07")
CPUS = ("0-47,96-143", "48-95,144-191")
DRIVER = "580.159.04"
UNITS = (
    "nvidia-fabricmanager.service", "nvidia-persistenced.service", "chrony.service",
)  # fmt: skip
NUMA_OF = [slot // 4 for slot in range(8)]


@dataclass(frozen=True)
class Kind:
    """What sets one of the nodes apart."""

    number: int
    name: str
    platform: str
    gpu_name: str
    gpu_ids: tuple[int, int]
    total_mib: int
    limit_w: float
    infiniband: bool
    firmware: str = "28.43.2566"


H20 = Kind(3, "h20-roce", "h20", "NVIDIA H20", (0x10DE, 0x2329), 97_871, 500.0, False)
H200_IB = Kind(4, "h200-ib", "h200", "NVIDIA H200", (0x10DE, 0x2335), 143_771, 700.0, True)


def port_of(kind: Kind, slot: int) -> nic_parts.DataPort:
    card = nic_parts.Card(
        device=f"mlx5_{slot}",
        address=f"0000:{PAIRS[slot][0]}:00.0",
        number=slot,
        numa_node=slot // 4,
        firmware=kind.firmware,
        serial=f"MT25{kind.number}1X{slot:04d}",
    )
    return nic_parts.DataPort(
        card=card,
        port=1,
        netdev=f"ib{slot}" if kind.infiniband else f"eth{slot}",
        rate="400 Gb/sec (4X NDR)",
        speed_mb_s=400_000,
        mtu_bytes=2044 if kind.infiniband else 9000,
        infiniband=kind.infiniband,
        lid=0x100 + slot if kind.infiniband else 0,
        optical=True,
    )


def identity(kind: Kind, slot: int) -> dict[str, Any]:
    return {
        "index": slot,
        "uuid": gpu_parts.uuid(kind.number, slot),
        "pci_bus_id": f"0000:{PAIRS[slot][1]}:00.0",
        "serial": f"165{kind.number}2430{40150 + 97 * slot}",
        "minor": slot,
    }


def tree(kind: Kind) -> tuple[dict[str, Any], dict[str, str]]:
    """PCI, RDMA and network files of GPUs, NICs and NVSwitches."""
    files: dict[str, Any] = {}
    links: dict[str, str] = {}
    for slot, (nic, gpu) in enumerate(PAIRS):
        port = port_of(kind, slot)
        ends = {0: f"0000:{nic}:00.0", 2: f"0000:{gpu}:00.0"}
        bridges, paths = pci_parts.behind_one_switch(int(nic, 16) - 3, ends, slot // 4, 32.0)
        nic_class = 0x020700 if kind.infiniband else 0x020000
        files |= bridges
        files |= pci_parts.function(
            ends[2], kind.gpu_ids, 0x030200, speed_gts=32.0, width=16, numa_node=slot // 4,
            cpulist=CPUS[slot // 4],
        )  # fmt: skip
        files |= pci_parts.function(
            ends[0], (0x15B3, 0x1021), nic_class, speed_gts=32.0, width=16, numa_node=slot // 4,
            max_read_b=4096,
        )  # fmt: skip
        files |= nic_parts.card_files(port.card) | nic_parts.port_files(port) | {f"dev/nvidia{slot}": ""}
        links |= paths | nic_parts.links(port.card) | nic_parts.links(port)
    for index, bus in enumerate(NVSWITCH_BUSES):
        address = f"0000:{bus}:00.0"
        files |= pci_parts.function(address, (0x10DE, 0x22A3), 0x068000, speed_gts=8.0, width=2, numa_node=0)
        bridges, paths = pci_parts.behind_root_port(f"0000:00:01.{index + 1}", address, 0, 8.0)
        files |= bridges
        links |= paths
    return files, links


def kernel_log(kind: Kind) -> list[tuple[int, float, str]]:
    """Lines of a healthy start."""
    module = f"NVIDIA UNIX Open Kernel Module for x86_64  {DRIVER}  Release Build"
    lines = [(4, 13.907, f"NVRM: loading {module}")]
    for slot, (nic, _gpu) in enumerate(PAIRS):
        lines.append((6, 6.1 + 0.4 * slot, f"mlx5_core 0000:{nic}:00.0: firmware version: {kind.firmware}"))
    return lines


def build(kind: Kind, description: str, fabric: str, engines: str) -> Node:
    boot_id = f"3e2b7a5c-8d41-4f6e-9b0a-6c1d52f7e9{kind.number:02x}"
    files, links = tree(kind)
    ports = [port_of(kind, slot) for slot in range(8)]
    return Node(
        name=kind.name,
        platform=kind.platform,
        description=description,
        driver=DRIVER,
        nvml_version=f"13.{DRIVER}",
        boot_id=boot_id,
        filled_in=[
            "nvml.json: as an idle H200; name, memory and power limit of this part from reports",
            "net.json, host.json, kmsg.txt: all",
            "tree.json: all but topology (affinity of GPUs, NICs and NUMA nodes), rates and device types",
            "PCI configuration space: shortened to PCI Express, AER and ACS capabilities",
        ],
        profile=profile(kind, fabric, engines),
        gpus=[
            gpu_parts.hopper(
                slot, identity(kind, slot), NUMA_OF, name=kind.gpu_name, total_mib=kind.total_mib,
                limit_w=kind.limit_w,
            )
            for slot in range(8)
        ],
        net={str(port.netdev): nic_parts.netdev(port) for port in ports},
        files=files
        | host_parts.files(
            name=kind.name, boot_id=boot_id, driver=DRIVER, cpus=list(CPUS), memory_gib=2048,
            kernel="6.8.0-79-generic", cpu_count=192,
        ),
        links=links,
        host=host_parts.host(
            units=UNITS,
            disks={"/": (960, 610), "/var/lib/nodegate": (960, 610)},
            reach=() if kind.infiniband else ("198.51.100.2:29500",),
        ),
        kmsg=kernel_log(kind),
    )  # fmt: skip


def profile(kind: Kind, fabric: str, engines: str) -> str:
    pins = "".join(
        f'    {slot}: {{uuid: {gpu_parts.uuid(kind.number, slot)}, pci_bus_id: "0000:{gpu}:00.0"}}\n'
        for slot, (_nic, gpu) in enumerate(PAIRS)
    )
    ports = "".join(
        f"    - {{device: {port.card.device}, netdev: {port.netdev}, rate_gbps: 400,"
        f' mtu_bytes: {port.mtu_bytes}, pci_bus_id: "{port.card.address}", gpu: {slot}, path_to_gpu: PIX,'
        f" numa_node: {port.card.numa_node}}}\n"
        for slot, port in enumerate(port_of(kind, slot) for slot in range(8))
    )
    return f"""\
# Profile of the simulated node {kind.name}.
schema_version: 1
node: {kind.name}
platform: {kind.platform}
mode: gate
driver_version: {DRIVER}

gpus:
  model: {kind.gpu_name}
  power_limit_w: {kind.limit_w}
  numa_node: {{0: 0, 1: 0, 2: 0, 3: 0, 4: 1, 5: 1, 6: 1, 7: 1}}
  pins:
{pins}
nvlink: {{nvswitches: 4}}

fabric:
{fabric}
  nic:
    firmware:
      - {{board_id: MT_0000000838, firmware_min: 28.43.1000}}
    max_read_request_bytes: 4096
  ports:
{ports}
host:
  kernel_args: [iommu=pt]
  sysctl: {{vm.swappiness: 1, kernel.numa_balancing: 0}}
  cpu_governor: performance
  swap: false
  numa_nodes: 2
  modules: [nvidia_uvm, nvidia_peermem, ib_umad]
  services: {{nvidia-fabricmanager.service: active, nvidia-persistenced.service: active}}
  disks: [/, /var/lib/nodegate]
  acs: "off"
  iommu: pt

{engines}"""


def h20_roce() -> Node:
    """Two such nodes are one instance (tensor parallel 8, pipeline 2)."""
    fabric = "  kind: roce\n  roce: {priority: 3, dscp: 26, cnp_dscp: 48}"
    engines = """\
engines:
  kimi:
    gpus: [0, 1, 2, 3, 4, 5, 6, 7]
    port: 8000
    # Pipeline stage 0 of two nodes: the other's port must answer before the ranks start.
    peers: [{host: 198.51.100.2, port: 29500}]
    launch: {command: [vllm, serve], model: kimi, served_model_name: kimi, rdma: true}
"""
    return build(H20, "8-GPU HGX H20 with eight 400 Gb/s RoCE ports, healthy", fabric, engines)


def h200_ib() -> Node:
    """InfiniBand: no PFC and no ECN, but a subnet manager."""
    fabric = "  kind: ib\n  ib: {subnet_manager: true}"
    engines = """\
engines:
  prefill:
    gpus: [0, 1, 2, 3]
    port: 8001
    launch: {command: [vllm, serve], model: glm, served_model_name: glm, rdma: true}
  decode:
    gpus: [4, 5, 6, 7]
    port: 8002
    launch: {command: [vllm, serve], model: glm, served_model_name: glm, rdma: true}
"""
    return build(H200_IB, "8-GPU HGX H200 with eight NDR InfiniBand ports, healthy", fabric, engines)
