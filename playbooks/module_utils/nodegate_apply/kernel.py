"""Role `kernel`: everything of the profile's part `host` that can be applied.

What is wanted is pure: the profile as plain data and a host to read from. Units and modules of the GPU driver
are left to role `gpu`, which installs them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .boot_unit import ETC, boot_groups, boot_settings
from .grub import BootLoader, grub_groups, grub_settings, word_settings
from .host import Host, HostError
from .kernel_cpu import acs_settings, aspm_settings, governor_settings
from .kernel_iommu import RIVALS, iommu_setting, iommu_words
from .kernel_limits import limit_settings
from .kernel_memory import hugepage_settings, thp_settings
from .kernel_modules import all_loaded, forbid_settings, initramfs_groups, load_settings, of_gpu
from .kernel_mounts import mount_settings
from .kernel_swap import reload_groups, swap_settings
from .kernel_sysctl import runtime_settings, sysctl_settings
from .services import TIME_SERVICES, Units, time_setting, unit_setting
from .setting import Setting

#: Modules of this package that the boot unit needs besides the common ones.
MODULES = (
    "boot_unit", "grub", "kernel", "kernel_cpu", "kernel_iommu", "kernel_limits", "kernel_memory",
    "kernel_modules", "kernel_mounts", "kernel_swap", "kernel_sysctl", "services", "shared_look",
)  # fmt: skip
#: Keys of the part `host` that are lost at a reboot and that nothing but the boot unit sets again.
_AT_BOOT = ("sysctl", "hugepages", "transparent_hugepage", "cpu_governor", "aspm", "acs")


def unit_of_gpu(name: str) -> bool:
    """Whether a unit comes with the GPU driver's packages: role gpu applies its state."""
    return name.startswith(("nvidia-", "nvlsm."))


def part_of(profile: dict[str, Any]) -> dict[str, Any]:
    """What of the profile the boot unit needs, as plain data."""
    fabric = profile["fabric"]
    return {
        "host": {key: profile["host"][key] for key in _AT_BOOT},
        "gpus": {key: profile["gpus"][key] for key in ("count", "pcie")},
        "devices": [] if fabric["kind"] == "none" else sorted({port["device"] for port in fabric["ports"]}),
    }


def wanted_kernel(profile: dict[str, Any], host: Host, *, settled: bool = False) -> list[Setting]:
    """All settings of the role. `profile`: at least its parts host, gpus and fabric, with all keys."""
    part = profile["host"]
    modules = [name for name in part["modules"] if not of_gpu(name)]
    return [
        # Modules first: some bring keys of their own (nf_conntrack, br_netfilter).
        *load_settings(host, modules, "host.modules", "kernel"),
        *sysctl_settings(host, part["sysctl"], coming=lambda: not all_loaded(host, modules)),
        *forbid_settings(host, part["modules_absent"]),
        *_boot_words(host, part),
        *limit_settings(host, part["engine_limits"]),
        *swap_settings(host, part["swap"]),
        *_runtime(host, part_of(profile), settled=settled),
        *mount_settings(host, part["mounts"]),
        *_services(host, part),
        *_boot(host, part_of(profile)),
    ]


def kernel_groups(host: Host) -> dict[str, Callable[[], None]]:
    """What is run once after settings that ask for it."""
    return {
        **grub_groups(host, BootLoader(host)),
        **initramfs_groups(host),
        **reload_groups(host),
        **boot_groups(host),
    }


def batches(host: Host, part: dict[str, Any]) -> list[list[Setting]]:
    """What the boot unit applies: each for itself, so that one that fails keeps no other from being set."""
    return [[setting] for setting in [*runtime_settings(host, part["host"]["sysctl"]), *_runtime(host, part)]]


def _runtime(host: Host, part: dict[str, Any], *, settled: bool = False) -> list[Setting]:
    """What the kernel or a device forgets at a reboot."""
    wanted = part["host"]
    return [
        *hugepage_settings(host, wanted["hugepages"], settled=settled),
        *thp_settings(host, wanted["transparent_hugepage"]),
        *governor_settings(host, wanted["cpu_governor"]),
        *aspm_settings(host, wanted["aspm"]),
        *acs_settings(host, part),
    ]


def _boot_words(host: Host, part: dict[str, Any]) -> list[Setting]:
    """Kernel arguments: the file, each word, and the IOMMU as it came of its words."""
    loader, iommu = BootLoader(host), part["iommu"]
    wanted = dict.fromkeys(part["kernel_args"], "host.kernel_args")
    try:
        wanted |= {word: "host.iommu" for word in iommu_words(host, iommu) if word not in wanted}
    except HostError:
        wanted = dict(wanted)  # iommu_setting says why when it is read
    absent = dict.fromkeys(part["kernel_args_absent"], "host.kernel_args_absent")
    return [
        *grub_settings(host, loader, wanted, absent, RIVALS if iommu else ()),
        *word_settings(loader, part["kernel_args"], absent),
        *([iommu_setting(host, loader, iommu)] if iommu else []),
    ]


def _services(host: Host, part: dict[str, Any]) -> list[Setting]:
    wanted = {name: want for name, want in part["services"].items() if not unit_of_gpu(name)}
    keeps_time = part["time_sync"] is True
    units = Units(host, [*wanted, *(TIME_SERVICES if keeps_time else ())])
    settings = [unit_setting(units, name, want, f"host.services.{name}") for name, want in wanted.items()]
    return [*settings, *([time_setting(units, "host.time_sync")] if keeps_time else [])]


def _boot(host: Host, part: dict[str, Any]) -> list[Setting]:
    """The boot unit, once there is anything for it; one that is there is told when there is nothing left."""
    if not any(part["host"].values()) and not host.exists(f"{ETC}/kernel.json"):
        return []
    return boot_settings(host, "kernel", part, MODULES)
