"""host.cpu_governor, host.aspm, host.acs: CPU frequency and PCIe; sysfs and devices forget them at a reboot.

https://docs.kernel.org/admin-guide/pm/cpufreq.html; /sys/module/pcie_aspm/parameters/policy; setpci(8).
"""

from __future__ import annotations

import re
from typing import Any

from .host import Host, HostError
from .kernel_memory import choice_setting
from .setting import Setting

CPUS = "/sys/devices/system/cpu"
ASPM = "/sys/module/pcie_aspm/parameters/policy"
DEVICES = "/sys/bus/pci/devices"
_NVIDIA, _GPU_CLASSES = "0x10de", ("0x0302", "0x0300")
_BRIDGE = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
#: PCI_ACS_RR, PCI_ACS_CR, PCI_ACS_EC: redirect requests, completions, egress control.
_REDIRECTS = 0x2C
_CAP_ACS, _ACS_CONTROL, _EXTENDED_B, _MOST = 0x000D, 6, 256, 480


def governor_settings(host: Host, want: str | None) -> list[Setting]:
    """The frequency governor of every CPU that is online."""
    if want is None:
        return []

    def files() -> list[str]:
        cpus = [name for name in host.names(CPUS) if re.fullmatch(r"cpu\d{1,5}", name)]
        return [path for cpu in cpus if host.exists(path := f"{CPUS}/{cpu}/cpufreq/scaling_governor")]

    def read() -> str:
        paths = files()
        if not paths:
            raise HostError(
                "no CPU has a frequency governor: the BIOS keeps that to itself (OS control of performance"
                " states); change it there, or take host.cpu_governor out of the profile"
            )
        offered = host.read(paths[0].replace("scaling_governor", "scaling_available_governors"))
        if offered is not None and want not in offered.split():
            raise HostError(
                f"the CPUs offer {', '.join(offered.split())}, not {want}; correct host.cpu_governor"
            )
        return ", ".join(sorted({(host.read(path) or "").strip() for path in paths}))

    def write() -> None:
        for path in files():
            if (host.read(path) or "").strip() != want:
                host.poke(path, want)

    advice = "a service of this node sets it: look for tuned, cpufrequtils, power-profiles-daemon"
    return [Setting("CPU governor", "host.cpu_governor", want, read, write, advice=advice)]


def aspm_settings(host: Host, want: str | None) -> list[Setting]:
    """The kernel's PCIe power saving policy."""
    if want is None:
        return []
    advice = "with pcie_aspm=off on the command line, or ASPM kept by the BIOS, the kernel takes no policy"
    return [choice_setting(host, "PCIe power saving policy", "host.aspm", ASPM, want, advice)]


def acs_settings(host: Host, part: dict[str, Any]) -> list[Setting]:
    """No PCIe port above a GPU or a data port redirects peer-to-peer traffic."""
    if part["host"]["acs"] != "off":
        return []

    def wrong() -> dict[str, int]:
        ports = {port for address in _parts(host, part) for port in _above(host, address)}
        return {port: control for port in sorted(ports) if (control := _acs(host, port)) & _REDIRECTS}

    def read() -> str:
        seen = wrong()
        return ", ".join(f"{port} {control:#06x}" for port, control in seen.items()) or "off"

    def write() -> None:
        for port in wrong():
            # value:mask leaves the bits that isolate a device alone.
            host.must(["setpci", "-s", port, f"ECAP_ACS+{_ACS_CONTROL}.w=0:{_REDIRECTS:x}"])

    advice = "the port keeps its ACS bits: clear ACS in the BIOS (bmc.bios), or see who sets them"
    return [Setting("PCIe access control (ACS)", "host.acs", "off", read, write, advice=advice)]


def _parts(host: Host, part: dict[str, Any]) -> list[str]:
    """PCI addresses of the GPUs and of the profile's data ports."""
    found = []
    if part["gpus"]["count"] and part["gpus"]["pcie"]:
        found += [
            name
            for name in host.names(DEVICES)
            if (host.read(f"{DEVICES}/{name}/vendor") or "").strip() == _NVIDIA
            and (host.read(f"{DEVICES}/{name}/class") or "").strip()[:6] in _GPU_CLASSES
        ]
    for device in part["devices"]:
        target = _link(host, f"/sys/class/infiniband/{device}/device")
        found.append(target.rstrip("/").rsplit("/", 1)[-1])
    return found


def _link(host: Host, path: str) -> str:
    try:
        return str(host.path(path).readlink())
    except OSError as cause:
        raise HostError(f"{path}: cannot be followed: {cause.strerror}; is the device there?") from cause


def _above(host: Host, address: str) -> list[str]:
    """PCI ports between the root and a device."""
    chain = [
        name for name in _link(host, f"{DEVICES}/{address}").lower().split("/") if _BRIDGE.fullmatch(name)
    ]
    return chain[:-1]


def _acs(host: Host, port: str) -> int:
    """The ACS control register of a port; 0 for one without. Raises HostError."""
    path = f"{DEVICES}/{port}/config"
    try:
        data = host.path(path).read_bytes()
    except OSError as cause:
        raise HostError(f"{path}: cannot be read: {cause.strerror}") from cause
    at = _EXTENDED_B
    for _ in range(_MOST):
        header = int.from_bytes(data[at : at + 4], "little")
        if header in (0, 0xFFFF_FFFF) or at + 4 > len(data):
            return 0
        if header & 0xFFFF == _CAP_ACS:
            return int.from_bytes(data[at + _ACS_CONTROL : at + _ACS_CONTROL + 2], "little")
        at = (header >> 20) & 0xFFC
        if at < _EXTENDED_B:
            return 0
    return 0
