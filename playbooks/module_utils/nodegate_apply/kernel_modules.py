"""host.modules, host.modules_absent: kernel modules that are loaded now and at boot, and some that are not.

modules-load.d(5), modprobe.d(5); /sys/module/NAME/{initstate,refcnt}, /lib/modules/RELEASE/modules.builtin.
Modules of the GPU driver come with its packages: those of host.modules are loaded by role gpu.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from .files import file_setting, no_file_setting
from .host import Host, HostError
from .setting import Setting

MODULES = "/sys/module"
LOAD = "/etc/modules-load.d/nodegate-{}.conf"
FORBID = "/etc/modprobe.d/nodegate.conf"
INITRAMFS = "initramfs"
_INITRAMFS_S = 900.0
_MODPROBE_S = 120.0
_BUILTIN = re.compile(r"([^/]+)\.ko(?:\.\w+)?$")
_HEADING = "# Written by nodegate's role `{}`: {} of the profile.\n"


def of_gpu(name: str) -> bool:
    """Whether a module belongs to the GPU driver, whose packages role gpu installs."""
    return name.startswith("nvidia") or name == "gdrdrv"


def state_of(host: Host, name: str) -> str:
    """live, coming, going, built in or absent."""
    folder = f"{MODULES}/{name}"
    if host.exists(folder):
        return (host.read(f"{folder}/initstate") or "built in").strip()
    return "built in" if name in _builtin(host) else "absent"


def all_loaded(host: Host, names: Iterable[str]) -> bool:
    """Whether nothing is left to load."""
    return all(state_of(host, name) in ("live", "built in") for name in names)


def _builtin(host: Host) -> frozenset[str]:
    release = (host.read("/proc/sys/kernel/osrelease") or "").strip()
    lines = (host.read(f"/lib/modules/{release}/modules.builtin") or "").splitlines()
    found = (_BUILTIN.search(line.strip()) for line in lines)
    return frozenset(match[1].replace("-", "_") for match in found if match)


def load_settings(
    host: Host, names: Iterable[str], field: str, role: str, *, wait: Callable[[str], bool] = lambda _: False
) -> list[Setting]:
    """Modules that are loaded now and named in /etc/modules-load.d. `wait`: they come with the next boot."""
    wanted = list(dict.fromkeys(names))
    path = LOAD.format(role)
    if not wanted:
        return [no_file_setting(host, path, field)]
    text = _HEADING.format(role, field) + "".join(f"{name}\n" for name in wanted)
    return [
        *(_loaded(host, name, field, wait) for name in wanted),
        file_setting(host, path, text, field),
    ]


def _loaded(host: Host, name: str, field: str, wait: Callable[[str], bool]) -> Setting:
    def read() -> str:
        state = state_of(host, name)
        return "loaded" if state in ("live", "built in") else state

    def write() -> None:
        if not wait(f"module {name} write"):
            host.must(["modprobe", name], timeout_s=_MODPROBE_S)

    def staged() -> str:
        return "loaded" if wait(f"module {name}") else read()

    return Setting(
        f"module {name}", field, "loaded", read, write, staged,
        advice="read the kernel log for why it does not load",
    )  # fmt: skip


def forbid_settings(host: Host, names: Iterable[str]) -> list[Setting]:
    """Modules that are not loaded now and cannot be loaded at boot."""
    wanted, field = list(dict.fromkeys(names)), "host.modules_absent"
    if not wanted:
        return [no_file_setting(host, FORBID, field, after=INITRAMFS)]
    lines = "".join(f"blacklist {name}\ninstall {name} /bin/false\n" for name in wanted)
    text = _HEADING.format("kernel", field) + lines
    return [
        file_setting(host, FORBID, text, field, after=INITRAMFS),
        *(_unloaded(host, name, field, text) for name in wanted),
    ]


def _unloaded(host: Host, name: str, field: str, text: str) -> Setting:
    def read() -> str:
        return state_of(host, name)

    def unused() -> bool:
        return (host.read(f"{MODULES}/{name}/refcnt") or "1").strip() == "0"

    def staged() -> str:
        if read() == "built in":
            return "built in"
        forbidden = host.read(FORBID) == text
        # One that nothing uses need not wait for a reboot.
        return read() if not forbidden or unused() else "absent"

    def write() -> None:
        state = read()
        if state == "built in":
            raise HostError(
                f"{name} is built into this kernel; correct host.modules_absent, or run another one"
            )
        if state != "absent" and unused():
            host.must(["modprobe", "-r", name], timeout_s=_MODPROBE_S)

    return Setting(
        f"module {name}", field, "absent", read, write, staged,
        advice="it is loaded although it is forbidden: rebuild the initramfs, and look who loads it",
    )  # fmt: skip


def initramfs_groups(host: Host) -> dict[str, Callable[[], None]]:
    """What is run once after modules were forbidden: the initramfs has a copy of these files."""

    def update() -> None:
        if host.has("update-initramfs"):
            host.must(["update-initramfs", "-u", "-k", "all"], timeout_s=_INITRAMFS_S)
        elif host.has("dracut"):
            host.must(["dracut", "--force", "--regenerate-all"], timeout_s=_INITRAMFS_S)

    return {INITRAMFS: update}
