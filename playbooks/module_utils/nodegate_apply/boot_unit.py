"""What makes settings outlive a reboot: this package on the node, and a unit that applies them at each boot.

One template, `nodegate-apply@NAME.service`, serves every role that has settings which the hardware forgets.
It runs the code that the Ansible module ran, on the settings that the module left in /etc/nodegate/apply. A
timer reads them again and records what it saw: for checks, of what only root can read.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

from . import boot  # noqa: F401  # Ansible takes to a node what a module imports, and this has to be there
from .files import file_setting, own_sources
from .host import Host, HostError
from .record import FOLDER
from .setting import Setting

LIBRARY = "/usr/local/lib/nodegate"
UNITS = "/etc/systemd/system"
RELOAD = "systemctl daemon-reload"
#: What every role's unit needs of this package.
_COMMON = ("__init__", "boot", "files", "host", "record", "setting")
#: Ansible takes no module of this name to a node.
_MAIN = '''"""`python3 -m nodegate_apply NAME ...`, see boot.py."""

import sys

from .boot import main

if __name__ == "__main__":
    sys.exit(main())
'''

_SERVICE = """\
# Settings that the hardware forgets at a reboot: applied and read back at each boot.
# Written by nodegate's roles; {etc}/%i.json is what it applies.
[Unit]
Description=nodegate: %i settings of this boot
# Drivers and devices first; a unit that this node does not have orders nothing. A device that comes later is
# waited for.
After=systemd-modules-load.service systemd-udev-settle.service openibd.service rdma-hw.target network.target
After=nvidia-persistenced.service nvidia-fabricmanager.service lldpad.service
# A driver that is loaded again has forgotten them.
PartOf=openibd.service nvidia-persistenced.service
ConditionPathExists={etc}/%i.json

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart={run} --settings {etc}/%i.json --record {records}/%i.json
TimeoutStartSec=15min
{hardening}
[Install]
WantedBy=multi-user.target
"""

_CHECK = """\
# Reads the settings again and records them; it writes none.
[Unit]
Description=nodegate: %i settings as they are
After=nodegate-apply@%i.service
ConditionPathExists={etc}/%i.json

[Service]
Type=oneshot
ExecStart={run} --check --settings {etc}/%i.json --record {records}/%i.json
TimeoutStartSec=10min
{hardening}"""

_TIMER = """\
[Unit]
Description=nodegate: %i settings are read again

[Timer]
OnBootSec=15min
OnUnitInactiveSec=15min
RandomizedDelaySec=30s

[Install]
WantedBy=timers.target
"""

#: What reading and setting hardware can do without. Not ProtectClock, which implies a list of devices. Not
#: ProtectControlGroups: with it a container's unit gets a /proc of its own, whose settings are the machine's.
_HARDENING = f"""\
Environment=PYTHONPATH={LIBRARY} PYTHONDONTWRITEBYTECODE=1
RuntimeDirectory=nodegate-apply
RuntimeDirectoryPreserve=yes
UMask=0022
NoNewPrivileges=yes
ProtectSystem=full
ProtectHome=yes
PrivateTmp=yes
ProtectHostname=yes
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
SystemCallArchitectures=native
"""

ETC = "/etc/nodegate/apply"


def boot_settings(
    host: Host, name: str, part: dict[str, Any], modules: Iterable[str], *, deadline_s: float = 180.0
) -> list[Setting]:
    """Files and units by which `name` is applied at every boot; `boot_groups` has what goes with them.

    `part` is what the role was given of the profile, as plain data; `modules` are the modules of this
    package that the role needs besides the common ones: NAME.py of it must have `batches(host, part)`, which
    gives lists of settings, each applied for itself. `deadline_s`: how long late devices are waited for.
    """
    document = {"schema": 1, "name": name, "deadline_s": deadline_s, "sys_root": host.sys_root or "/sys"}
    text = json.dumps({**document, "part": part}, indent=1, sort_keys=True) + "\n"
    field = f"boot.{name}"
    return [
        *package_settings(host, (*_COMMON, *modules), field),
        file_setting(host, f"{ETC}/{name}.json", text, field),
        *_unit_files(host, field),
        _enabled(host, f"nodegate-apply@{name}.service", field),
        _enabled(host, f"nodegate-apply-check@{name}.timer", field),
        _running(host, f"nodegate-apply-check@{name}.timer", field),
        _not_failed(host, f"nodegate-apply@{name}.service", field),
    ]


def after_boot(host: Host, name: str, patience_s: float = 300.0) -> None:
    """Wait while the unit of this boot is at work: two writers at once would both find drift."""
    end_s = time.monotonic() + patience_s
    while host.has("systemctl") and time.monotonic() < end_s:
        if host.run(["systemctl", "is-active", f"nodegate-apply@{name}.service"]).out.strip() != "activating":
            return
        time.sleep(0.5)


def boot_groups(host: Host) -> dict[str, Callable[[], None]]:
    """What is run once after units were written."""
    return {RELOAD: lambda: _reload(host)}


def package_settings(host: Host, modules: Iterable[str], field: str) -> list[Setting]:
    """Modules of this package as files on the node."""
    sources = {"__main__.py": _MAIN, **own_sources(dict.fromkeys(modules))}
    return [
        file_setting(host, f"{LIBRARY}/nodegate_apply/{name}", text, field, opaque=True)
        for name, text in sorted(sources.items())
    ]


def _unit_files(host: Host, field: str) -> list[Setting]:
    run = f"{sys.executable} -P -m nodegate_apply %i"
    words = {"run": run, "etc": ETC, "records": FOLDER, "hardening": _HARDENING}
    texts = {
        "nodegate-apply@.service": _SERVICE.format(**words),
        "nodegate-apply-check@.service": _CHECK.format(**words),
        "nodegate-apply-check@.timer": _TIMER,
    }
    return [file_setting(host, f"{UNITS}/{name}", text, field, after=RELOAD) for name, text in texts.items()]


def _reload(host: Host) -> None:
    host.must(["systemctl", "daemon-reload"])


def _answer(host: Host, verb: str, unit: str) -> str:
    """What `systemctl is-enabled` or `is-active` says; a unit that is not there is an answer, too."""
    done = host.run(["systemctl", verb, unit])
    if done.out.strip():
        return done.out.split()[0]
    if done.status == 1 and ("No such file" in done.err or "not found" in done.err):
        return "not-found"
    raise HostError(f"systemctl {verb} {unit}: {done.said}")


def _enabled(host: Host, unit: str, field: str) -> Setting:
    return Setting(
        f"{unit} at boot",
        field,
        "enabled",
        lambda: _answer(host, "is-enabled", unit),
        lambda: _must(host, ["systemctl", "--quiet", "enable", unit]),
        advice=f"see systemctl status {unit}; a masked unit is released by systemctl unmask {unit}",
    )


def _running(host: Host, unit: str, field: str) -> Setting:
    def start() -> None:
        _reload(host)
        _must(host, ["systemctl", "start", unit])

    return Setting(
        f"{unit} now", field, "active", lambda: _answer(host, "is-active", unit), start,
        advice=f"see systemctl status {unit}",
    )  # fmt: skip


def _not_failed(host: Host, unit: str, field: str) -> Setting:
    """A failure of before stays shown although all is well now."""
    return Setting(
        f"{unit} now",
        field,
        "not failed",
        lambda: "failed" if _answer(host, "is-active", unit) == "failed" else "not failed",
        lambda: _must(host, ["systemctl", "reset-failed", unit]),
        advice=f"see journalctl -u {unit}",
    )


def _must(host: Host, argv: list[str]) -> None:
    host.must(argv)
