"""The GPU driver: loaded and installed version, whether it must wait for a reboot, its services and modules.

/sys/module/nvidia/version is what runs; modinfo says what the next boot loads. While they differ, library and
module are of different versions and nvidia-smi refuses to start.
"""

from __future__ import annotations

import re
from typing import Any

from .host import Host, HostError
from .kernel_modules import load_settings, of_gpu, state_of
from .packages import PackageSet
from .services import Units, unit_setting
from .setting import Setting
from .shared_look import SharedLook

LOADED = "/sys/module/nvidia/version"
#: The driver, and the module of unified memory, which every CUDA context opens.
MODULES = ("nvidia", "nvidia_uvm")
PERSISTENCED = "nvidia-persistenced.service"
FABRIC_MANAGER = "nvidia-fabricmanager.service"
SUBNET_MANAGER = "nvlsm.service"
IMEX = "nvidia-imex.service"
DROP_IN = f"/etc/systemd/system/{PERSISTENCED}.d/60-nodegate.conf"
_NO_PERSISTENCE = "--no-persistence-mode"
_ARGV = re.compile(r"argv\[\]=(.*?) ;")
_MODPROBE_S = 180.0


class Driver:
    """The driver of a node."""

    def __init__(self, host: Host, packages: PackageSet) -> None:
        """Look at nothing yet."""
        self._host, self.packages = host, packages
        self._wait = SharedLook(self._waits)
        packages.on_installed.append(self._wait.forget)

    def loaded(self) -> str | None:
        """Version of the module that runs."""
        return (self._host.read(LOADED) or "").strip() or None

    def installed(self) -> str | None:
        """Version of the module that the next boot loads; None when it cannot be told."""
        if not self._host.has("modinfo"):
            return None
        done = self._host.run(["modinfo", "--field", "version", "nvidia"])
        return done.out.strip() or None if done.status == 0 else None

    def waits(self, reader: str) -> bool:
        """Whether what is installed runs only after a reboot; for one reader."""
        return self._wait.get(reader)

    def absent(self) -> bool:
        """No driver yet, but one is coming: its GPUs cannot be asked before."""
        return not self._host.has("nvidia-smi") and self.packages.coming

    def packages_coming(self) -> bool:
        """Whether packages are about to be installed."""
        return self.packages.coming

    def _waits(self) -> bool:
        loaded, there = self.loaded(), self.installed()
        if there is None:
            return False
        if loaded is None:
            return state_of(self._host, "nouveau") != "absent"
        return loaded != there

    def setting(self, want: str | None) -> Setting:
        """The profile's driver runs; without driver_version, the installed one."""
        plain = "the installed one"

        def shown(version: str | None) -> str | None:
            if version is None or want is not None:
                return version
            there = self.installed()
            return plain if there in (None, version) else f"{version} ({there} is installed)"

        def read() -> str | None:
            loaded = self.loaded()
            if loaded is None or (want is not None and loaded != want):
                self._refuse_hopeless(want)
            return shown(loaded)

        def staged() -> str | None:
            there = self.installed()
            return shown(self.loaded()) if there is None else (there if want is not None else plain)

        return Setting(
            "NVIDIA driver", "driver_version", want or plain, read, lambda: self._load(want), staged,
            advice="read dkms status and the kernel log",
        )  # fmt: skip

    def _refuse_hopeless(self, want: str | None) -> None:
        """Neither installed nor about to be: said before anything is written."""
        there = self.installed()
        if self.packages.coming or (there is not None and want in (None, there)):
            return
        raise HostError(
            f"driver {there or self.loaded() or 'none'} is installed, not {want or 'any'}: list its packages"
            " with their versions under gpus.packages, or install it by hand"
        )

    def _load(self, want: str | None) -> None:
        there = self.installed()
        if want is not None and there is not None and there != want:
            raise HostError(
                f"the packages of gpus.packages bring driver {there}, driver_version says {want};"
                " correct one of them in the profile"
            )
        self._wait.forget()
        if self.loaded() is None and not self.waits("load"):
            self._host.must(["modprobe", "nvidia"], timeout_s=_MODPROBE_S)
            self._wait.forget()


def module_settings(host: Host, driver: Driver, wanted: list[str]) -> list[Setting]:
    """Modules of the driver: those that CUDA needs, and those of host.modules."""
    names = [*MODULES, *(name for name in wanted if of_gpu(name))]
    return load_settings(host, names, "host.modules", "gpu", wait=driver.waits)


def services_of(profile: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """State and field of each unit of the driver; what host.services says of one counts."""
    gpus, nvlink = profile["gpus"], profile["nvlink"]
    found: dict[str, tuple[str, str]] = {}
    if gpus["count"] and gpus["persistence"]:
        found[PERSISTENCED] = ("active", "gpus.persistence")
    if gpus["count"] and nvlink["fabric"]:
        if "nvlsm" in gpus["packages"]:
            found[SUBNET_MANAGER] = ("active", "gpus.packages.nvlsm")
        found[FABRIC_MANAGER] = ("active", "nvlink.fabric")
    if gpus["count"] and nvlink["imex"]:
        found[IMEX] = ("active", "nvlink.imex")
    for name, want in profile["host"]["services"].items():
        if name.startswith(("nvidia-", "nvlsm.")):
            found[name] = (want, f"host.services.{name}")
    return found


def service_settings(host: Host, driver: Driver, profile: dict[str, Any]) -> list[Setting]:
    """The driver's services, persistence not forbidden by the unit of the distribution."""
    wanted = services_of(profile)
    units = Units(host, wanted)
    settings = []
    if wanted.get(PERSISTENCED, ("",))[0] == "active" and profile["gpus"]["persistence"]:
        settings.append(_persistence_allowed(host, units))
    remedy = "list its package under gpus.packages, or write `{name}: inactive` under host.services"
    for name, (want, field) in wanted.items():
        line = remedy.format(name=name)
        coming = driver.packages_coming
        settings.append(unit_setting(units, name, want, field, coming=coming, remedy=line))
    return settings


def _persistence_allowed(host: Host, units: Units) -> Setting:
    """Distributions start the daemon with --no-persistence-mode: a drop-in takes it out."""

    def argv() -> list[str]:
        shown = host.must(["systemctl", "show", "--property=ExecStart", "--value", "--", PERSISTENCED])
        match = _ARGV.search(shown)
        return match[1].split() if match else []

    def write() -> None:
        words = [word for word in argv() if word != _NO_PERSISTENCE]
        if words:
            start = f"ExecStart=\nExecStart={' '.join(words)}\n"
            host.write(DROP_IN, f"# Written by nodegate's role `gpu`.\n[Service]\n{start}")
            units.change("daemon-reload")
            units.change("try-restart", PERSISTENCED)

    return Setting(
        f"{PERSISTENCED} without {_NO_PERSISTENCE}", "gpus.persistence", "so",
        lambda: "not so" if _NO_PERSISTENCE in argv() else "so", write,
        advice=f"another drop-in sets ExecStart: systemctl cat {PERSISTENCED}",
    )  # fmt: skip
