"""Host and BMC of the healthy H200 node of fake_h200.py: procfs and sysfs files, units, disks, Redfish."""

from __future__ import annotations

from typing import Any

from fake_h200_bmc import bmc_documents
from fake_h200_engines import MAIN
from fake_h200_fabric import pci_links
from fake_h200_net import NIC_BUSES

PCI = "sys/bus/pci/devices"
BUSES = ("05", "17", "3a", "5d", "85", "97", "ba", "dd")
CPUS = 96
SYSCTL = {
    "vm.swappiness": 1,
    "net.core.somaxconn": 65535,
    "net.ipv4.tcp_rmem": "4096 67108864 1073741824",
    "net.ipv4.conf.*.arp_ignore": 1,
}
LIMITS = """Limit                     Soft Limit           Hard Limit           Units     \n\
Max cpu time              unlimited            unlimited            seconds   \n\
Max open files            1048576              1048576              files     \n\
Max locked memory         unlimited            unlimited            bytes     \n\
Max nice priority         0                    0                    \n\
"""
_MOUNTS = (
    "/dev/nvme0n1p2 / ext4 rw,relatime 0 0",
    "store:/models /models nfs4 ro,relatime,vers=4.2,hard 0 0",
    "/dev/nvme1n1 /scratch\\040space xfs rw 0 0",
)


def config_space(*, acs: int | None = 0, aspm: int = 0, read_request_code: int = 5) -> dict[str, str]:
    """PCI configuration space of a PCIe device as root sees it; `acs` None = without that capability."""
    data = bytearray(0x120)
    data[0:4] = b"\x1d\x12\x00\x40"
    data[0x06] = 0x10  # capability list
    data[0x34] = 0x40
    data[0x40:0x42] = b"\x01\x60"  # power management, then
    data[0x60:0x62] = b"\x10\x00"  # PCI Express
    data[0x68:0x6A] = (read_request_code << 12).to_bytes(2, "little")
    data[0x70:0x72] = aspm.to_bytes(2, "little")
    extended = 0x0001 | 1 << 16 | (0x110 << 20 if acs is not None else 0)
    data[0x100:0x104] = extended.to_bytes(4, "little")
    data[0x110:0x114] = (0x000D | 1 << 16).to_bytes(4, "little")
    data[0x116:0x118] = (acs or 0).to_bytes(2, "little")
    return {"hex": bytes(data).hex()}


def _cpu_files() -> dict[str, Any]:
    governors = {
        f"sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor": "performance" for cpu in range(CPUS)
    }
    nodes = {
        f"sys/devices/system/node/node{node}/meminfo": f"Node {node} MemTotal:  1056964608 kB"
        for node in range(2)
    }
    return governors | nodes


def _proc_files() -> dict[str, Any]:
    return {
        "proc/cmdline": "BOOT_IMAGE=/vmlinuz root=/dev/nvme0n1p2 ro quiet iommu=pt pci=realloc",
        "proc/swaps": "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority",
        "proc/self/mounts": "\n".join(_MOUNTS),
        "proc/self/limits": LIMITS,
        "proc/sys/kernel/osrelease": "6.8.0-45-generic",
        "proc/sys/kernel/numa_balancing": "0",
        "proc/sys/vm/swappiness": "1",
        "proc/sys/net/core/somaxconn": "65535",
        "proc/sys/net/ipv4/tcp_rmem": "4096\t67108864\t1073741824",
        **{f"proc/sys/net/ipv4/conf/{name}/arp_ignore": "1" for name in ("all", "default", "eth0")},
        **{f"proc/{pid}/limits": LIMITS for pid in MAIN.values()},
        "lib/modules/6.8.0-45-generic/modules.builtin": "kernel/drivers/nvme/host/nvme-core.ko",
    }


def _pci_files() -> dict[str, Any]:
    files: dict[str, Any] = {"sys/module/pcie_aspm/parameters/policy": "default [performance] powersave"}
    for target in pci_links(BUSES).values():
        for bridge in target.split("/")[5:-1]:
            files[f"{PCI}/{bridge}/vendor"] = "0x1000"
            files[f"{PCI}/{bridge}/class"] = "0x060400"
            files[f"{PCI}/{bridge}/config"] = config_space()
    for group, bus in enumerate((*BUSES, *NIC_BUSES)):
        files[f"{PCI}/0000:{bus}:00.0/link/l1_aspm"] = "0"
        files[f"sys/kernel/iommu_groups/{group}/type"] = "identity"
    return files


#: gpus.packages of the profile, and what dpkg says of them.
PACKAGES = dict.fromkeys(("nvidia-driver-580-server", "nvidia-fabricmanager"), "580.159.04-0ubuntu1")
DPKG_STATUS = "\n\n".join(
    f"Package: {name}\nStatus: hold ok installed\nPriority: optional\nVersion: {version}\nDescription: driver"
    for name, version in PACKAGES.items()
)


def host_files() -> dict[str, Any]:
    """Files by path."""
    return {
        "var/lib/dpkg/status": DPKG_STATUS,
        **_proc_files(),
        **_cpu_files(),
        **_pci_files(),
        "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "1024",
        "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
        "sys/module/nvidia_peermem/initstate": "live",
        "sys/class/nvme/nvme0/state": "live",
        "sys/class/nvme/nvme1/state": "live",
    }


def host_links() -> dict[str, str]:
    """Symbolic links by path."""
    return {
        f"{PCI}/0000:{bus}:00.0/iommu_group": f"../../../../kernel/iommu_groups/{group}"
        for group, bus in enumerate((*BUSES, *NIC_BUSES))
    }


def host_profile() -> dict[str, Any]:
    """The profile's part `host` that the node fulfils."""
    return {
        "kernel_args": ["iommu=pt"],
        "kernel_args_absent": ["nouveau.modeset", "mitigations"],
        "sysctl": SYSCTL,
        "engine_limits": {"Max locked memory": "unlimited", "Max open files": 524288},
        "hugepages": {2048: 1024},
        "transparent_hugepage": "madvise",
        "cpu_governor": "performance",
        "swap": False,
        "numa_nodes": 2,
        "memory_gib": 2000,
        "modules": ["nvidia_uvm", "nvidia_peermem", "nvme_core"],
        "modules_absent": ["nouveau"],
        "services": {"chrony.service": "active", "nvidia-dcgm.service": "active"},
        "mounts": [
            {
                "path": "/models",
                "fs_type": "nfs4",
                "source": "store:/models",
                "read_only": True,
                "marker": ".complete",
            },
            {"path": "/scratch space", "fs_type": "xfs", "read_only": False},
        ],
        "aspm": "performance",
        "acs": "off",
        "iommu": "pt",
    }


def engine_peers(name: str) -> list[dict[str, Any]]:
    """The peers of an engine in the profile."""
    port = {"glm": 29500, "kimi": 29600}[name]
    return [{"host": "node2", "port": port}, {"host": "node3", "port": port}]


def _unit() -> dict[str, Any]:
    return {"load_state": "loaded", "active_state": "active", "sub_state": "running", "restarts": 0}


def _disk() -> dict[str, Any]:
    gib = 1 << 30
    return {
        "total_b": 1800 * gib,
        "free_b": 900 * gib,
        "total_inodes": 10**8,
        "free_inodes": 9 * 10**7,
        "read_only": False,
    }


def host_data() -> dict[str, Any]:
    """The parts `host` and `bmc` of FakeNode."""
    reach = {
        f"{peer['host']}:{peer['port']}": {"accepted": True, "latency_s": 0.0002}
        for name in MAIN
        for peer in engine_peers(name)
    }
    host = {
        "units": {"chrony.service": _unit(), "nvidia-dcgm.service": _unit()},
        "disks": {"/": _disk(), "/var/lib/nodegate": _disk()},
        "mounts": {
            "/models": {"answered": True, "latency_s": 0.03, "marker": True},
            "/scratch space": {"answered": True, "latency_s": 0.03},
        },
        "clock": {"synchronised": True, "offset_s": -0.000012, "max_error_s": 0.004},
        "reach": reach,
    }
    return {"host": host, "bmc": bmc_documents()}
