"""Make agent/demo_nodes/h200-roce and tests/nodes/h200-roce-two-engines/profile.yaml.

Run it from anywhere: python tests/nodes/tools/build_demo_node.py [TARGET]. GPU values are those of the real
captures h200-x1-capture and h200-x2-capture; everything else is filled in, see the README that it writes from
demo_readme.md. Scenarios are written by hand and not touched.
"""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path
from typing import Any

import demo_nic
import gpu_parts
import host_parts
import pci_parts
import yaml
from node_writer import write_json

NODES = Path(__file__).parents[1]
REPOSITORY = NODES.parents[1]
#: (NIC, GPU) behind one PCIe switch; addresses as on an 8-GPU HGX board with two sockets.
PAIRS = (
    ("18", "1b"),
    ("40", "43"),
    ("4f", "52"),
    ("5e", "61"),
    ("9a", "9d"),
    ("c0", "c3"),
    ("ce", "d1"),
    ("dc", "df"),
)
NVSWITCH_BUSES = ("04", "05", "06", "07")
CPUS = ("0-55,112-167", "56-111,168-223")
BOOT_ID = "3e2b7a5c-8d41-4f6e-9b0a-6c1d52f7e908"
KERNEL = "6.8.0-79-generic"
MODULE = "NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build"
UPTIME_S = 93784.25
#: Two real ones, NCCL 2.28.9, fp32, 1 GiB (docs/measured.md).
MEASURED = {"nccl.all_reduce": {"bus_gb_s": 328.0}}


def main(target: Path = REPOSITORY) -> None:
    node = target / "agent/demo_nodes/h200-roce"
    node.mkdir(parents=True, exist_ok=True)
    (node / "node.yaml").write_text(yaml.safe_dump(META, sort_keys=False))
    write_json(node / "nvml.json", nvml(), depth=3)
    write_json(
        node / "net.json",
        {f"eth{i}": demo_nic.netdev(i, f"0000:{PAIRS[i][0]}:00.0") for i in range(8)},
        depth=2,
    )
    (node / "kmsg.txt").write_text("".join(f"{line}\n" for line in kernel_log()))
    files, links = tree()
    write_json(node / "tree.json", dict(sorted(files.items())), depth=1)
    write_json(node / "links.json", dict(sorted(links.items())), depth=1)
    write_json(node / "host.json", HOST, depth=2)
    write_json(node / "measured.json", MEASURED, depth=1)
    (node / "README.md").write_text((Path(__file__).parent / "demo_readme.md").read_text())
    (node / "profile.yaml").write_text(profile(ONE_ENGINE))
    two = target / "tests/nodes/h200-roce-two-engines"
    two.mkdir(parents=True, exist_ok=True)
    (two / "profile.yaml").write_text(profile(TWO_ENGINES))


def uuid(i: int) -> str:
    return f"GPU-{0xA1C0FFEE + i * 0x01010101:08x}-4e2d-5b7a-9c3f-{0x0D15EA5E0000 + i * 0x1111:012x}"


def nvml() -> dict[str, Any]:
    """Eight times the first real GPU, with the NVLink and fabric values of the second capture."""
    one = json.loads((NODES / "h200-x1-capture/nvml.json").read_text())
    two = json.loads((NODES / "h200-x2-capture/nvml.json").read_text())
    gpus = []
    for i, (_nic, bus) in enumerate(PAIRS):
        gpu = copy.deepcopy(one["gpus"][0])
        gpu["identity"] |= {
            "index": i,
            "uuid": uuid(i),
            "pci_bus_id": f"0000:{bus}:00.0",
            "serial": f"16506230{40150 + 97 * i}",
            "minor": i,
        }
        gpu["nvlink"] = copy.deepcopy(two["gpus"][i % 2]["nvlink"])
        gpu["nvlink_errors"] = copy.deepcopy(two["gpus"][i % 2]["nvlink_errors"])
        gpu["fabric"] = copy.deepcopy(two["gpus"][i % 2]["fabric"])
        gpu["call_us"] |= {"nvlink": 310.0, "fabric": 45.0}
        # Neighbours are never equal: some degrees and watts more than measured, and as much less margin.
        warmer = (0, 2, 1, 3, 1, 0, 2, 1)[i]
        gpu["thermal"]["temperature_c"] += warmer
        gpu["thermal"]["memory_temperature_c"] += warmer
        gpu["thermal"]["margin_c"] -= warmer
        gpu["power"]["draw_w"] = round(gpu["power"]["draw_w"] + 0.8 * warmer, 3)
        gpu["slowdowns"] = gpu_parts.event_times()
        gpu["nvlink_ber"] = gpu_parts.no_ber()
        numa_of = [slot // 4 for slot in range(8)]
        gpu |= gpu_parts.later_groups(i, gpu_parts.topology(i, numa_of), gpu["power"]["max_sm_clock_mhz"])
        gpus.append(gpu)
    return {"system": {**one["system"], "device_count": 8}, "gpus": gpus}


def tree() -> tuple[dict[str, Any], dict[str, str]]:
    """Files and links of the host, GPUs, NICs and NVSwitches."""
    files = host_parts.files(
        name="h200-roce",
        boot_id=BOOT_ID,
        driver="580.159.04",
        cpus=list(CPUS),
        memory_gib=2048,
        kernel=KERNEL,
        cpu_count=224,
    )
    links: dict[str, str] = {}
    for i, (nic, gpu) in enumerate(PAIRS):
        numa, ends = i // 4, {0: f"0000:{nic}:00.0", 2: f"0000:{gpu}:00.0"}
        bridges, paths = pci_parts.behind_one_switch(int(nic, 16) - 3, ends, numa, 32.0)
        files |= bridges
        files |= demo_nic.files(i, ends[0], numa)
        files |= pci_parts.function(
            ends[2], (0x10DE, 0x2335), 0x030200, speed_gts=32.0, width=16, numa_node=numa, cpulist=CPUS[numa],
            subsystem=(0x10DE, 0x18BF),
        )  # fmt: skip
        files |= pci_parts.function(
            ends[0], (0x15B3, 0x1021), 0x020000, speed_gts=32.0, width=16, numa_node=numa, max_read_b=4096,
            subsystem=(0x15B3, 0x0026),
        )  # fmt: skip
        files[f"dev/nvidia{i}"] = ""
        links |= paths | demo_nic.links(i, ends[0])
    for index, bus in enumerate(NVSWITCH_BUSES):
        address = f"0000:{bus}:00.0"
        bridges, paths = pci_parts.behind_root_port(f"0000:00:01.{index + 1}", address, 0, 8.0)
        files |= bridges
        files |= pci_parts.function(address, (0x10DE, 0x22A3), 0x068000, speed_gts=8.0, width=2, numa_node=0)
        links |= paths
    return files, links


def kernel_log() -> list[str]:
    """Lines of a healthy start, in the wording of the NVIDIA and mlx5 drivers."""
    lines: list[tuple[int, float, str]] = []
    for i, (nic, _gpu) in enumerate(PAIRS):
        at_s = 6.1 + 0.4 * i
        lines += [
            (6, at_s, f"mlx5_core 0000:{nic}:00.0: firmware version: {demo_nic.FIRMWARE}"),
            (6, at_s + 0.01,
             f"mlx5_core 0000:{nic}:00.0: 504.112 Gb/s available PCIe bandwidth (32.0 GT/s PCIe x16 link)"),
            (6, 21.3 + 0.2 * i, f"mlx5_core 0000:{nic}:00.0 eth{i}: Link up"),
        ]  # fmt: skip
    lines += [
        (4, 12.402, "nvidia: loading out-of-tree module taints kernel."),
        (6, 12.618, "nvidia-nvlink: Nvlink Core is being initialized, major device number 236"),
        (4, 13.907, f"NVRM: loading {MODULE}"),
        (6, 14.122,
         "nvidia-modeset: Loading NVIDIA UNIX Open Kernel Mode Setting Driver for UNIX platforms  "
         "580.159.04"),
        (4, 31.556,
         "NVRM: Persistence mode is deprecated and will be removed in a future release. "
         "Please use nvidia-persistenced instead."),
    ]  # fmt: skip
    lines.sort(key=lambda line: line[1])
    return [f"{level},{900 + i},{round(at_s * 1e6)},-;{text}" for i, (level, at_s, text) in enumerate(lines)]


META = {
    "schema": 1,
    "name": "h200-roce",
    "platform": "h200",
    "description": "8-GPU HGX H200 with eight 400 Gb/s RoCE ports, idle and healthy",
    "simulated": True,
    "captured_s": 1795967760.0,
    "captured_mono_s": UPTIME_S,
    "boot_id": BOOT_ID,
    "driver": "580.159.04",
    "redacted": True,
    "filled_in": [
        "nvml.json: identities, GPUs 1 to 7, spread of temperature and power",
        "nvml.json: ecc, nvlink_ber, pcie_errors, peers, times of clock events",
        "net.json, host.json: all",
        "tree.json: all but class, vendor, device, subsystem and link speed of GPUs",
        "kmsg.txt: all (wording of the drivers)",
    ],
}

HOST = host_parts.host(
    units=("nvidia-fabricmanager.service", "nvidia-persistenced.service", "chrony.service"),
    disks={"/": (960, 610), "/var/lib/nodegate": (960, 610)},
)

ONE_ENGINE = """\
engines:
  main:
    gpus: [0, 1, 2, 3, 4, 5, 6, 7]
    port: 8000
    launch:
      command: [vllm, serve]
      model: demo
      served_model_name: demo
      # Prefill and decode are split over nodes, so the KV cache travels over the fabric: port faults gate it.
      rdma: true
"""
TWO_ENGINES = """\
engines:
  glm:
    gpus: [0, 1, 2, 3]
    port: 8001
    launch: {command: [vllm, serve], model: glm, served_model_name: glm, rdma: true}
  kimi:
    gpus: [4, 5, 6, 7]
    port: 8002
    # Its traffic stays on NVLink: port faults only warn here.
    launch: {command: [vllm, serve], model: kimi, served_model_name: kimi}
"""


def profile(engines: str) -> str:
    pins = "".join(
        f'    {i}: {{uuid: {uuid(i)}, pci_bus_id: "0000:{gpu}:00.0"}}\n' for i, (_n, gpu) in enumerate(PAIRS)
    )
    ports = "".join(
        f"    - {{device: mlx5_{i}, netdev: eth{i}, rate_gbps: 400, mtu_bytes: 9000,"
        f' pci_bus_id: "0000:{nic}:00.0", gpu: {i}}}\n'
        for i, (nic, _gpu) in enumerate(PAIRS)
    )  # fmt: skip
    return f"""\
# Profile of the simulated node h200-roce. The layer `h200` gives what all HGX H200 have in common.
schema_version: 1
node: h200-roce
platform: h200
mode: manage
driver_version: 580.159.04

gpus:
  pins:
{pins}
nvlink: {{nvswitches: 4}}

fabric:
  kind: roce
  roce: {{cnp_dscp: 48}}
  nic: {{max_read_request_bytes: 4096, firmware: [{{board_id: MT_0000000838, firmware_min: 28.43.1000}}]}}
  ports:
{ports}
host:
  kernel_args: [iommu=pt]
  sysctl: {{vm.swappiness: 1, kernel.numa_balancing: 0}}
  transparent_hugepage: madvise
  cpu_governor: performance
  swap: false
  numa_nodes: 2
  modules: [nvidia_uvm, nvidia_peermem]
  modules_absent: [nouveau]
  services: {{nvidia-fabricmanager.service: active, nvidia-persistenced.service: active}}
  aspm: performance
  acs: "off"
  iommu: pt

{engines}
# Shorter than in production, so that a gate reopens within seconds of a fault's end while one watches.
checks:
  gpu.thermal_margin: {{clear_for_s: 3}}
  gpu.throttle: {{fail_for_s: 2, clear_for_s: 3}}
  nvlink.links: {{period_s: 2, fail_for_s: 2, clear_for_s: 3}}
"""


if __name__ == "__main__":
    main(*(Path(argument) for argument in sys.argv[1:2]))
