"""host.engine_limits: limits of the engine's processes, for systemd (drop-in) and for logins (limits.d).

Names are those of /proc/PID/limits. systemd.exec(5) LimitX=, limits.conf(5).
"""

from __future__ import annotations

from collections.abc import Mapping

from .files import file_setting, no_file_setting
from .host import Host, HostError
from .kernel_swap import RELOAD
from .setting import Setting

#: Engines as units of their own, and the agent whose children they are under `supervision: process`.
UNITS = ("nodegate-engine@.service", "nodegate.service")
DROP_IN = "/etc/systemd/system/{}.d/60-nodegate-limits.conf"
LOGINS = "/etc/security/limits.d/60-nodegate.conf"
_FIELD = "host.engine_limits"
_KIB = 1024
#: /proc/PID/limits -> systemd's name, limits.conf's item, and how many of the first make one of the last.
NAMES: dict[str, tuple[str, str, int]] = {
    "Max cpu time": ("LimitCPU", "cpu", 60),
    "Max file size": ("LimitFSIZE", "fsize", _KIB),
    "Max data size": ("LimitDATA", "data", _KIB),
    "Max stack size": ("LimitSTACK", "stack", _KIB),
    "Max core file size": ("LimitCORE", "core", _KIB),
    "Max resident set": ("LimitRSS", "rss", _KIB),
    "Max processes": ("LimitNPROC", "nproc", 1),
    "Max open files": ("LimitNOFILE", "nofile", 1),
    "Max locked memory": ("LimitMEMLOCK", "memlock", _KIB),
    "Max address space": ("LimitAS", "as", _KIB),
    "Max file locks": ("LimitLOCKS", "locks", 1),
    "Max pending signals": ("LimitSIGPENDING", "sigpending", 1),
    "Max msgqueue size": ("LimitMSGQUEUE", "msgqueue", 1),
    "Max nice priority": ("LimitNICE", "nice", 1),
    "Max realtime priority": ("LimitRTPRIO", "rtprio", 1),
    "Max realtime timeout": ("LimitRTTIME", "", 1),
}
_HEADING = "# Written by nodegate's role `kernel`: host.engine_limits of the profile.\n"


def limit_settings(host: Host, wanted: Mapping[str, int | str]) -> list[Setting]:
    """Files; a process that runs keeps the limits it was started with."""
    unknown = [name for name in wanted if name not in NAMES]
    if unknown:
        return [_refused(unknown[0])]
    paths = [DROP_IN.format(unit) for unit in UNITS]
    if not wanted:
        return [no_file_setting(host, path, _FIELD, after=RELOAD) for path in paths] + [
            no_file_setting(host, LOGINS, _FIELD)
        ]
    text = _HEADING + "[Service]\n" + "".join(_systemd(name, value) for name, value in wanted.items())
    return [
        *(file_setting(host, path, text, _FIELD, after=RELOAD) for path in paths),
        file_setting(host, LOGINS, _HEADING + logins_text(wanted), _FIELD),
    ]


def _refused(name: str) -> Setting:
    def read() -> str:
        raise HostError(
            f"there is no such limit; write it as /proc/self/limits does, e.g. {next(iter(NAMES))!r}"
        )

    return Setting(f"limit {name}", f"{_FIELD}.{name}", "", read)


def _systemd(name: str, value: int | str) -> str:
    return f"{NAMES[name][0]}={'infinity' if value == 'unlimited' else value}\n"


def logins_text(wanted: Mapping[str, int | str]) -> str:
    """For everybody and for root, whom `*` leaves out."""
    lines = []
    for name, value in wanted.items():
        _, item, unit = NAMES[name]
        shown = value if value == "unlimited" else -(-int(value) // unit)
        lines += [f"{who} - {item} {shown}\n" for who in ("*", "root") if item]
    return "".join(lines)
