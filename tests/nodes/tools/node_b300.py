"""The nodes b300-roce (one HGX B300 baseboard, CX8 with four planes) and b300-x16 (two baseboards)."""

from __future__ import annotations

from typing import Any

import gpu_parts
import host_parts
import nic_parts
import pci_parts
import redfish_parts
from node_writer import Node

DRIVER = "580.95.05"
#: CX8 functions as NVIDIA's HGX Blackwell Ultra guide lists them; each GPU sits behind its CX8's switch.
CX8_BUSES = ("17", "39", "5f", "70", "97", "b9", "dc", "ed")
DATA_PORTS = (3, 6, 9, 12)
PORTS = 12
CX8_FIRMWARE = "40.48.1132"
MEZZANINE_BUS = "0b"
CPUS = ("0-95", "96-191")
B300_IDS = (0x10DE, 0x3182)
CX8_IDS, CX7_IDS = (0x15B3, 0x1023), (0x15B3, 0x1021)
UNITS = (
    "nvidia-fabricmanager.service", "nvidia-persistenced.service", "chrony.service",
)  # fmt: skip


def gpu_bus(cx8_bus: str) -> str:
    return f"{int(cx8_bus, 16) + 3:02x}"


def identity(node: int, slot: int, address: str) -> dict[str, Any]:
    return {
        "index": slot,
        "uuid": gpu_parts.uuid(node, slot),
        "pci_bus_id": address,
        "serial": f"165{node}2541{20150 + 97 * slot}",
        "minor": slot,
    }


def card(board: int, rail: int) -> nic_parts.Card:
    """The CX8 of one rail; the second baseboard is PCI domain 0001."""
    return nic_parts.Card(
        device=f"roce_r{board * 8 + rail}",
        address=f"{board:04x}:{CX8_BUSES[rail]}:00.0",
        number=board * 8 + rail,
        numa_node=rail // 4,
        hca_type="MT4131",
        board_id="NVD0000000072",
        firmware=CX8_FIRMWARE,
        serial=f"MT2541X{board}{rail:04d}",
    )


def plane(owner: nic_parts.Card, index: int) -> nic_parts.DataPort:
    return nic_parts.DataPort(
        card=owner,
        port=DATA_PORTS[index],
        netdev=f"eth_r{owner.number}_p{index}",
        rate="200 Gb/sec (2X NDR)",
        speed_mb_s=200_000,
        mtu_bytes=9216,
        optical=True,
    )


class Board:
    """One baseboard: eight GPUs, eight CX8, two NVSwitches, and the mezzanine card that manages them."""

    def __init__(self, node: int, board: int, first_slot: int) -> None:
        self.net: dict[str, Any] = {}
        self.files: dict[str, Any] = {}
        self.links: dict[str, str] = {}
        self.addresses: list[str] = []
        self.board, self.node, self.first_slot = board, node, first_slot
        for rail in range(8):
            self._rail(rail)
        self._mezzanine()

    def _rail(self, rail: int) -> None:
        owner = card(self.board, rail)
        gpu = f"{self.board:04x}:{gpu_bus(CX8_BUSES[rail])}:00.0"
        self.addresses.append(gpu)
        files, links = pci_parts.behind_one_switch(
            int(CX8_BUSES[rail], 16) - 3, {0: owner.address, 2: gpu}, rail // 4, 64.0, f"{self.board:04x}"
        )
        self.files |= files
        self.links |= links | nic_parts.links(owner)
        self.files |= pci_parts.function(
            gpu, B300_IDS, 0x030200, speed_gts=64.0, width=16, numa_node=rail // 4, cpulist=CPUS[rail // 4]
        )
        self.files |= pci_parts.function(
            owner.address, CX8_IDS, 0x020000, speed_gts=64.0, width=16, numa_node=rail // 4, max_read_b=4096
        )
        self.files[f"dev/nvidia{self.first_slot + rail}"] = ""
        self.files[f"sys/bus/pci/devices/{owner.address}/vpd"] = pci_parts.vpd(
            "Nvidia ConnectX8 XDR IB/800GBE", "MLX000647", owner.serial
        )
        self.files |= nic_parts.card_files(owner)
        for port in range(1, PORTS + 1):
            if port in DATA_PORTS:
                data = plane(owner, DATA_PORTS.index(port))
                self.files |= nic_parts.port_files(data)
                self.links |= nic_parts.links(data)
                self.net[str(data.netdev)] = nic_parts.netdev(data)
            else:
                self.files |= nic_parts.unused_port(owner, port)

    def _mezzanine(self) -> None:
        """CX7 functions through which the fabric manager reaches the NVSwitches; interfaces stay down."""
        for index in range(2):
            address = f"{self.board:04x}:{MEZZANINE_BUS}:00.{index}"
            mezzanine = nic_parts.Card(
                device=f"mlx5_{self.board * 2 + index}",
                address=address,
                number=0x40 + self.board * 2 + index,
                numa_node=0,
                board_id="NVD0000000079",
                firmware="28.46.1006",
            )
            self.files |= pci_parts.function(
                address, CX7_IDS, 0x020700, speed_gts=16.0, width=2, numa_node=0, max_read_b=512
            )
            self.files |= nic_parts.card_files(mezzanine)
            self.files |= nic_parts.unused_port(mezzanine, 1, infiniband=True)
            netdev = f"ibp{int(MEZZANINE_BUS, 16)}s0f{index}" + (f"d{self.board}" if self.board else "")
            base = f"sys/class/net/{netdev}"
            self.files |= {f"{base}/operstate": "down", f"{base}/mtu": "4092", f"{base}/type": "32"}
            self.links |= nic_parts.links(mezzanine) | {f"{base}/device": f"../../../{address}"}
            self.net[netdev] = nic_parts.down_interface(mezzanine, 4092)
        root = f"{self.board:04x}:0a:01.0"
        files, links = pci_parts.behind_root_port(root, f"{self.board:04x}:{MEZZANINE_BUS}:00.0", 0, 16.0)
        self.files |= files
        self.links |= links


def kernel_log(boards: list[Board]) -> list[tuple[int, float, str]]:
    """Lines of a healthy start, in the wording of the drivers."""
    module = f"NVIDIA UNIX Open Kernel Module for x86_64  {DRIVER}  Release Build"
    lines = [
        (4, 12.402, "nvidia: loading out-of-tree module taints kernel."),
        (6, 12.618, "nvidia-nvlink: Nvlink Core is being initialized, major device number 236"),
        (4, 13.907, f"NVRM: loading {module}"),
    ]
    for board in boards:
        for rail in range(8):
            owner = card(board.board, rail)
            at_s = 6.1 + 0.4 * owner.number
            lines += [
                (6, at_s, f"mlx5_core {owner.address}: firmware version: {owner.firmware}"),
                (6, 21.3 + at_s, f"mlx5_core {owner.address} eth_r{owner.number}_p0: Link up"),
            ]
    return lines


def node(number: int, name: str, boards: int, engines: str, description: str) -> Node:
    made = [Board(number, board, board * 8) for board in range(boards)]
    numa_of = [slot % 8 // 4 for slot in range(8 * boards)]
    boot_id = f"3e2b7a5c-8d41-4f6e-9b0a-6c1d52f7e9{number:02x}"
    files = host_parts.files(
        name=name,
        boot_id=boot_id,
        driver=DRIVER,
        cpus=list(CPUS),
        memory_gib=3072,
        kernel="6.8.0-85-generic",
        cpu_count=192,
        mounts=("/dev/nvme1n1 /models xfs ro,relatime 0 0",),
    )
    net: dict[str, Any] = {}
    links: dict[str, str] = {}
    gpus = []
    for board in made:
        files |= board.files
        net |= board.net
        links |= board.links
        domain = list(range(board.first_slot, board.first_slot + 8))
        for rail, address in enumerate(board.addresses):
            slot = board.first_slot + rail
            gpus.append(gpu_parts.blackwell(slot, identity(number, slot, address), numa_of, domain))
    return Node(
        name=name,
        platform="b300",
        description=description,
        driver=DRIVER,
        nvml_version=f"13.{DRIVER}",
        boot_id=boot_id,
        filled_in=[
            "nvml.json: all but model name, VBIOS form, memory size, power limit, NVLink count and speed",
            "net.json, host.json, bmc.json, kmsg.txt: all",
            "tree.json: all but names and numbers of CX8 devices and ports, types, rates, firmware, PSIDs",
            "PCI configuration space: shortened to PCI Express, AER and ACS capabilities",
        ],
        profile=profile(name, made, numa_of, engines),
        gpus=gpus,
        net=net,
        files=files,
        links=links,
        host=host_parts.host(
            units=UNITS,
            disks={"/": (960, 610), "/var/lib/nodegate": (960, 610), "/models": (28_000, 9_000)},
            mounts={"/models": True},
        ),
        bmc=redfish_parts.liquid_cooled(gpus=8 * boards),
        kmsg=kernel_log(made),
    )


def profile(name: str, boards: list[Board], numa_of: list[int], engines: str) -> str:
    number = boards[0].node
    slots = [(board.first_slot + rail, a) for board in boards for rail, a in enumerate(board.addresses)]
    pins = "".join(
        f'    {slot}: {{uuid: {gpu_parts.uuid(number, slot)}, pci_bus_id: "{address}"}}\n'
        for slot, address in slots
    )
    ports = "".join(
        f"    - {{device: {owner.device}, port: {DATA_PORTS[index]}, netdev: eth_r{owner.number}_p{index},"
        f' rate_gbps: 200, mtu_bytes: 9216, pci_bus_id: "{owner.address}", serial: {owner.serial},'
        f" gpu: {owner.number}, path_to_gpu: PIX, numa_node: {owner.numa_node}}}\n"
        for board in boards
        for owner in (card(board.board, rail) for rail in range(8))
        for index in range(4)
    )
    numa = ", ".join(f"{slot}: {numa}" for slot, numa in enumerate(numa_of))
    domains = [list(range(board.first_slot, board.first_slot + 8)) for board in boards]
    return f"""\
# Profile of the simulated node {name}. The layer `b300` gives what all HGX B300 have in common.
schema_version: 1
node: {name}
platform: b300
mode: gate
driver_version: {DRIVER}

gpus:
  count: {8 * len(boards)}
  model: NVIDIA B300 SXM6 AC
  power_limit_w: 1100
  vbios: [97.10.52.00.17]
  numa_node: {{{numa}}}
  pins:
{pins}
nvlink:
  domains: {domains}

fabric:
  kind: roce
  nic:
    firmware:
      - {{board_id: NVD0000000072, firmware_min: 40.48.1000}}
    pcie_speed_gts: 64
    pcie_width: 16
    max_read_request_bytes: 4096
  roce: {{priority: 3, dscp: 26, cnp_dscp: 48}}
  # Four planes a CX8: ports 3, 6, 9 and 12. The other eight are disabled by the platform for good.
  ports:
{ports}
host:
  kernel_args: [iommu=pt]
  sysctl: {{vm.swappiness: 1, net.core.somaxconn: 65535, kernel.numa_balancing: 0}}
  transparent_hugepage: madvise
  cpu_governor: performance
  swap: false
  numa_nodes: 2
  memory_gib: 2900
  modules: [nvidia_uvm, nvidia_peermem, ib_umad]
  modules_absent: [nouveau]
  services: {{nvidia-fabricmanager.service: active, nvidia-persistenced.service: active}}
  disks: [/, /var/lib/nodegate]
  mounts:
    - {{path: /models, fs_type: xfs, read_only: true, marker: .complete}}
  aspm: performance
  acs: "off"
  iommu: pt

{redfish_parts.LIQUID_PROFILE}
{engines}"""
