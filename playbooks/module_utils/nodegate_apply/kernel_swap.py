"""host.swap: false: no swap space now, none from /etc/fstab, and none from units of systemd at the next boot.

swapon(8), fstab(5), systemd.swap(5). A line of /etc/fstab is kept as a comment.
"""

from __future__ import annotations

from collections.abc import Callable

from .host import Host, HostError
from .setting import Setting

FSTAB = "/etc/fstab"
RELOAD = "systemctl daemon-reload"
_MARK = "# nodegate (host.swap: false): "
_SWAPOFF_S = 600.0
_FIELD = "host.swap"
#: Services that make swap space at boot (compressed memory, a file) without a unit of type swap.
SERVICES = ("zramswap.service", "zram-config.service", "dphys-swapfile.service")


def swap_settings(host: Host, swap: bool | None) -> list[Setting]:
    """Nothing unless the profile says false: swap space that is wanted is a site's to make."""
    if swap is not False:
        return []
    return [_fstab(host), _units(host), _now(host)]


def _now(host: Host) -> Setting:
    def read() -> str:
        text = host.read("/proc/swaps")
        if not text or not text.startswith("Filename"):
            raise HostError("/proc/swaps: has no heading; is /proc mounted?")
        return " ".join(line.split()[0] for line in text.splitlines()[1:] if line.split()) or "none"

    def write() -> None:
        host.must(["swapoff", "--all"], timeout_s=_SWAPOFF_S)

    return Setting("swap space", _FIELD, "none", read, write, advice="look what turns it on: swapon --show")


def is_swap(line: str) -> bool:
    """Whether a line of fstab is swap space."""
    fields = line.split()
    return len(fields) > 2 and not fields[0].startswith("#") and fields[2] == "swap"


def _fstab(host: Host) -> Setting:
    def lines() -> list[str]:
        return (host.read(FSTAB) or "").splitlines(keepends=True)

    def read() -> str:
        return "\n".join(line.strip() for line in lines() if is_swap(line)) or "none"

    def write() -> None:
        if any("\ufffd" in line for line in lines()):
            raise HostError(f"{FSTAB}: holds bytes that are no UTF-8; take its swap lines out by hand")
        text = "".join(_MARK + line if is_swap(line) else line for line in lines())
        host.write(FSTAB, text, host.mode(FSTAB) or 0o644)

    return Setting(f"{FSTAB} swap", _FIELD, "none", read, write, after=RELOAD)


def _units(host: Host) -> Setting:
    """Units that are no mirror of fstab: own files, and what systemd makes of a partition's type."""

    def found() -> list[str]:
        done = host.run(["systemctl", "list-unit-files", "--type=swap", "--no-legend", "--no-pager"])
        if done.status != 0 and (done.err.strip() or done.out.strip()):  # none at all is status 1, too
            raise HostError(f"systemctl list-unit-files --type=swap: {done.said}")
        rows = [line.split() for line in done.out.splitlines() if line.split()]
        names = [row[0] for row in rows if len(row) > 1 and row[1] in ("enabled", "static", "generated")]
        own = [name for name in names if not _of_fstab(host, name)]
        return list(dict.fromkeys([*own, *_services(host)]))

    def write() -> None:
        for name in found():
            host.must(["systemctl", "mask", name])
            if name in SERVICES:
                host.must(["systemctl", "stop", name], timeout_s=_SWAPOFF_S)

    return Setting("swap units", _FIELD, "none", lambda: " ".join(found()) or "none", write, after=RELOAD)


def _services(host: Host) -> list[str]:
    """Services that would make swap space again."""
    done = host.run(["systemctl", "list-unit-files", "--no-legend", "--no-pager", *SERVICES])
    rows = [line.split() for line in done.out.splitlines()]  # none at all is status 1
    return [row[0] for row in rows if len(row) > 1 and row[0] in SERVICES and row[1] == "enabled"]


def _of_fstab(host: Host, name: str) -> bool:
    return host.must(["systemctl", "show", "--property=SourcePath", "--value", "--", name]).strip() == FSTAB


def reload_groups(host: Host) -> dict[str, Callable[[], None]]:
    """What is run once after units or fstab were written."""

    def reload() -> None:
        host.must(["systemctl", "daemon-reload"], timeout_s=90.0)

    return {RELOAD: reload}
