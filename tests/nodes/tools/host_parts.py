"""Linux, units, disks and clock of filled-in nodes: a server that is set up as the guides say."""

from __future__ import annotations

from typing import Any

GIB = 2**30
_LIMITS = "\n".join(
    f"{name:<26}{soft:<21}{hard:<21}{unit:<10}"
    for name, soft, hard, unit in (
        ("Limit", "Soft Limit", "Hard Limit", "Units"),
        ("Max cpu time", "unlimited", "unlimited", "seconds"),
        ("Max open files", "1048576", "1048576", "files"),
        ("Max locked memory", "unlimited", "unlimited", "bytes"),
    )
)
NVIDIA_MODULES = ("nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_peermem")
RDMA_MODULES = ("mlx5_core", "mlx5_ib", "ib_core", "ib_uverbs", "ib_umad")


def files(
    *,
    name: str,
    boot_id: str,
    driver: str,
    cpus: list[str],
    memory_gib: int,
    kernel: str,
    machine: str = "x86_64",
    modules: tuple[str, ...] = (*NVIDIA_MODULES, *RDMA_MODULES),
    mounts: tuple[str, ...] = (),
    cpu_count: int,
) -> dict[str, Any]:
    """procfs and sysfs of the host; `cpus` is the CPU list of each NUMA node."""
    nodes = len(cpus)
    kib = memory_gib * 2**20
    module_text = f"NVIDIA UNIX Open Kernel Module for {machine}  {driver}  Release Build"
    iommu = "iommu=pt " if machine == "x86_64" else ""
    found: dict[str, Any] = {
        "proc/cmdline": (
            f"BOOT_IMAGE=/boot/vmlinuz-{kernel} root=/dev/md0 ro {iommu}numa_balancing=disable "
            "transparent_hugepage=madvise pcie_aspm=off"
        ),
        "proc/meminfo": _meminfo(kib),
        "proc/swaps": "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority",
        "proc/self/mounts": "\n".join(("/dev/md0 / ext4 rw,relatime 0 0", *mounts)),
        "proc/stat": f"cpu  {_ticks(1)}\n" + "\n".join(f"cpu{i} {_ticks(0)}" for i in range(2)),
        "proc/uptime": "93784.25 35000000.00",
        "proc/sys/kernel/random/boot_id": boot_id,
        "proc/sys/kernel/hostname": name,
        "proc/sys/kernel/osrelease": kernel,
        "proc/sys/kernel/numa_balancing": "0",
        "proc/sys/kernel/pid_max": "4194304",
        "proc/sys/vm/swappiness": "1",
        "proc/sys/vm/max_map_count": "1048576",
        "proc/sys/vm/zone_reclaim_mode": "0",
        "proc/sys/vm/overcommit_memory": "1",
        "proc/sys/net/core/somaxconn": "65535",
        "proc/driver/nvidia/version": f"NVRM version: {module_text}",
        "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
        "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "0",
        "sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages": "0",
        "sys/module/pcie_aspm/parameters/policy": "default [performance] powersave powersupersave",
        "sys/devices/system/node/online": f"0-{nodes - 1}" if nodes > 1 else "0",
        "sys/devices/system/node/has_memory": f"0-{nodes - 1}" if nodes > 1 else "0",
        "sys/devices/system/cpu/online": f"0-{cpu_count - 1}",
        "sys/class/nvme/nvme0/state": "live",
        "sys/class/nvme/nvme1/state": "live",
        f"lib/modules/{kernel}/modules.builtin": (
            "kernel/drivers/nvme/host/nvme-core.ko\nkernel/drivers/nvme/host/nvme.ko"
        ),
        "proc/self/limits": _LIMITS,
        "etc/os-release": 'NAME="Ubuntu"\nVERSION_ID="24.04"\nID=ubuntu',
    }
    for module in modules:
        found[f"sys/module/{module}/initstate"] = "live"
        if module.startswith("nvidia"):
            found[f"sys/module/{module}/version"] = driver
    for cpu in range(cpu_count):
        found[f"sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor"] = "performance"
    for node, cpulist in enumerate(cpus):
        base = f"sys/devices/system/node/node{node}"
        found[f"{base}/cpulist"] = cpulist
        found[f"{base}/distance"] = " ".join("10" if other == node else "21" for other in range(nodes))
        found[f"{base}/meminfo"] = (
            f"Node {node} MemTotal:       {kib // nodes} kB\n"
            f"Node {node} MemFree:        {kib // nodes // 2} kB"
        )
    return found


def _meminfo(kib: int) -> str:
    return "\n".join(
        (
            f"MemTotal:       {kib} kB",
            f"MemFree:        {kib // 2} kB",
            f"MemAvailable:   {kib * 3 // 4} kB",
            "SwapTotal:      0 kB",
            "SwapFree:       0 kB",
            "HugePages_Total:       0",
            "HugePages_Free:        0",
            "Hugepagesize:       2048 kB",
        )
    )


def _ticks(more: int) -> str:
    return f"{1000 + more} 0 500 9000000 20 0 10 0 0 0"


def host(
    *,
    units: tuple[str, ...],
    disks: dict[str, tuple[int, int]],
    mounts: dict[str, bool] | None = None,
    reach: tuple[str, ...] = (),
) -> dict[str, Any]:
    """host.json: active units, disks as (GiB, free GiB), mounts that answer, ports that accept."""
    return {
        "units": {
            unit: {
                "load_state": "loaded",
                "active_state": "active",
                "sub_state": "running",
                "restarts": 0,
                "since_mono_s": 34.5,
            }
            for unit in units
        },
        "disks": {
            path: {
                "total_b": size * GIB,
                "free_b": free * GIB,
                "total_inodes": size * 65536,
                "free_inodes": free * 65536,
                "read_only": False,
            }
            for path, (size, free) in disks.items()
        },
        "mounts": {
            path: {"answered": True, "latency_s": 0.002, "problem": "", "marker": marker or None}
            for path, marker in (mounts or {}).items()
        },
        "clock": {"synchronised": True, "offset_s": 0.000021, "max_error_s": 0.0042},
        "reach": {peer: {"accepted": True, "latency_s": 0.0004, "problem": ""} for peer in reach},
    }
