"""Role `gpu`: driver packages as one set, the driver's modules and services, and the settings of each GPU.

Which GPU is where, and what it is, is only verified. Pins are role `pins`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .boot_unit import boot_groups, boot_settings
from .gpu_driver import Driver, module_settings, service_settings
from .gpu_modes import Presence, mode_settings
from .gpu_smi import Smi
from .host import Host
from .packages import PackageSet
from .setting import Setting

#: Modules of this package that the boot unit needs besides the common ones.
MODULES = (
    "boot_unit", "gpu", "gpu_driver", "gpu_modes", "gpu_smi", "kernel_modules", "packages", "services",
    "shared_look",
)  # fmt: skip
UNIT = "nodegate-apply@gpu.service"
#: It waits for GPUs that come late.
_START_S = 300.0
_OF_GPUS = ("count", "persistence", "ecc", "mig_off", "has_power_limit", "power_limit_w")


def part_of(profile: dict[str, Any]) -> dict[str, Any]:
    """What of the profile the boot unit needs, as plain data."""
    return {"gpus": {key: profile["gpus"][key] for key in _OF_GPUS}}


def wanted_gpu(profile: dict[str, Any], host: Host, *, check: bool = False) -> list[Setting]:
    """All settings of the role. `profile`: its parts host, gpus, nvlink and driver_version, with all keys."""
    gpus = profile["gpus"]
    packages = PackageSet(host, gpus["packages"], check=check)
    if not gpus["count"]:
        return packages.settings()
    driver = Driver(host, packages)
    smi = Smi(host, gpus["count"])
    return [
        *packages.settings(),
        driver.setting(profile["driver_version"]),
        *module_settings(host, driver, profile["host"]["modules"]),
        *service_settings(host, driver, profile),
        *mode_settings(smi, gpus, driver),
        *boot_settings(host, "gpu", part_of(profile), MODULES),
        _unit_has_run(host, driver),
    ]


def gpu_groups(host: Host) -> dict[str, Callable[[], None]]:
    """What is run once after settings that ask for it."""
    return boot_groups(host)


def batches(host: Host, part: dict[str, Any]) -> list[list[Setting]]:
    """What the boot unit applies: what the driver forgets, each GPU for itself."""
    gpus = part["gpus"]
    smi = Smi(host, gpus["count"])
    return [[setting] for setting in mode_settings(smi, gpus, Presence(), staged_too=False)]


def _unit_has_run(host: Host, driver: Driver) -> Setting:
    """Only a unit that is active is started again with nvidia-persistenced, as after a driver's reload."""
    name = f"{UNIT} has run"

    def read() -> str:
        seen = host.run(["systemctl", "is-active", UNIT]).out.strip()
        return "active" if driver.waits(name) else seen or "inactive"

    def write() -> None:
        host.must(["systemctl", "daemon-reload"])
        if not driver.waits(f"{name} write"):
            host.must(["systemctl", "start", UNIT], timeout_s=_START_S)

    return Setting(name, "boot.gpu", "active", read, write, advice=f"read journalctl -u {UNIT}")
