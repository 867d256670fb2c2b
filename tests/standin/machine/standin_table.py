"""What a boot does to the stand-in node, in one table. Everything that is not here outlives a reboot.

volatile (falls back to the factory value at each boot)      VOLATILE, SYSCTLS, and in standin_boot.py:
    GPUs: power limit, persistence                           reset_gpus
    ports: PFC, trust, DSCP map, DCBX owner, pause, MTU, ring   reset_ports
    NICs: largest PCIe read request                          reset_ports
staged (becomes current at a boot)
    NIC configuration (mlxconfig), burned NIC firmware       load_nics
    ECC mode of GPUs                                         reset_gpus
derived at boot
    kernel command line                                      /boot/grub/grub.cfg, as update-grub wrote it
    transparent_hugepage, ASPM policy, hugepages, IOMMU      the command line
    loaded modules                                           /etc/modules-load.d, /etc/modprobe.d
    swap                                                     /etc/fstab
"""

from __future__ import annotations

FACTORY_MTU_BYTES = 1500
FACTORY_READ_REQUEST_BYTES = 512
FACTORY_RING = {"rx": 1024, "tx": 1024, "rx_max": 8192, "tx_max": 8192}

#: Files of sysfs (patterns below /sys) and what they read after a boot. "" is an empty file.
VOLATILE: tuple[tuple[str, str], ...] = (
    ("class/net/eth*/mtu", str(FACTORY_MTU_BYTES)),
    # In sysfs it is switched off here after each boot, whatever ROCE_CC_PRIO_MASK says: see tests/README.md.
    ("class/net/eth*/ecn/roce_np/enable/*", "0"),
    ("class/net/eth*/ecn/roce_rp/enable/*", "0"),
    ("class/infiniband/mlx5_*/tc/1/traffic_class", ""),
    ("kernel/config/rdma_cm/mlx5_*/ports/1/default_roce_tos", "0"),
    ("devices/system/cpu/cpu*/cpufreq/scaling_governor", "powersave"),
    ("kernel/mm/transparent_hugepage/defrag", "always defer defer+madvise [madvise] never"),
)

THP = "kernel/mm/transparent_hugepage/enabled"
ASPM = "module/pcie_aspm/parameters/policy"
#: Files that show all choices and mark the one that is set.
CHOICES = {
    THP: "[always] madvise never",
    ASPM: "[default] performance powersave powersupersave",
    "kernel/mm/transparent_hugepage/defrag": "always defer defer+madvise [madvise] never",
}

#: Kernel settings after a boot, below /proc/sys; those of net are the namespace's own and fresh with it.
SYSCTLS = {
    "kernel/numa_balancing": "1",
    "kernel/osrelease": "6.8.0-79-generic",
    "kernel/pid_max": "32768",
    "kernel/watchdog": "1",
    "vm/swappiness": "60",
    "vm/zone_reclaim_mode": "1",
    "vm/max_map_count": "65530",
    "vm/overcommit_memory": "0",
    "vm/dirty_ratio": "20",
    "vm/dirty_background_ratio": "10",
    "vm/min_free_kbytes": "67584",
    "vm/nr_hugepages": "0",
    "vm/compaction_proactiveness": "20",
}
#: Trees of /proc/sys that are one for all namespaces: each host gets a copy of its own.
COPIED = ("vm", "kernel", "fs")

#: Modules that come with the drivers at every boot; others come from /etc/modules-load.d.
MODULES = (
    "ib_core", "ib_umad", "ib_uverbs", "mlx5_core", "mlx5_ib", "nvidia", "nvidia_modeset", "pcie_aspm",
)  # fmt: skip
#: Loaded at boot unless /etc/modprobe.d keeps it away.
UNWANTED = ("nouveau",)
VERSIONED = ("nvidia", "nvidia_modeset", "nvidia_uvm", "nvidia_peermem", "nvidia_drm")
#: What modprobe finds besides.
KNOWN = (
    *MODULES, *UNWANTED, *VERSIONED, "bonding", "br_netfilter", "configfs", "ipmi_devintf", "ipmi_si", "msr",
    "gdrdrv", "nvme_rdma", "rdma_cm", "rdma_ucm", "tcp_bbr", "sch_fq", "vfio_pci", "8021q", "overlay",
)  # fmt: skip

FIRST_CMDLINE = "quiet splash"
KERNEL = "BOOT_IMAGE=/boot/vmlinuz-6.8.0-79-generic root=/dev/md0 ro"
