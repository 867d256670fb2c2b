"""host.mounts: file systems that are mounted as the profile says, answer, and hold their marker.

What /etc/fstab has is mounted from there; what the profile gives with type and source gets a unit of systemd
(systemd.mount(5)). Options beyond ro or rw are a site's own: it writes them into /etc/fstab.
"""

from __future__ import annotations

import re
from typing import Any

from .files import file_setting
from .host import Host, HostError
from .kernel_swap import FSTAB
from .setting import Setting

_OCTAL = re.compile(r"\\([0-7]{3})")
_ANSWER_S = 10.0
_MOUNT_S = 180.0
_NETWORK = frozenset({"nfs", "nfs4", "cifs", "ceph", "lustre", "glusterfs", "beegfs", "wekafs", "gpfs", "9p"})
_UNIT = """\
# Written by nodegate's role `kernel`: host.mounts of the profile.
[Unit]
Description=nodegate: {path}
{order}
[Mount]
What={source}
Where={path}
Type={fs_type}
Options={options}

[Install]
WantedBy={target}
"""


def mount_settings(host: Host, mounts: list[dict[str, Any]]) -> list[Setting]:
    """For each mount its unit, where it needs one, and that it is there now."""
    settings: list[Setting] = []
    for mount in mounts:
        field = f"host.mounts.{mount['path']}"
        if unit_wanted(host, mount):
            path = f"/etc/systemd/system/{unit_name(mount['path'])}"
            settings.append(file_setting(host, path, unit_text(mount), field))
        settings.append(_mounted(host, mount, field))
    return settings


def unit_wanted(host: Host, mount: dict[str, Any]) -> bool:
    """Whether we mount it ourselves: type and source are known, and /etc/fstab does not have it."""
    known = mount["fs_type"] is not None and mount["source"] is not None
    return known and not in_fstab(host, mount["path"])


def in_fstab(host: Host, path: str) -> bool:
    """Whether a line of /etc/fstab mounts something there."""
    rows = [line.split() for line in (host.read(FSTAB) or "").splitlines()]
    return any(len(row) > 2 and not row[0].startswith("#") and _plain(row[1]) == _key(path) for row in rows)


def unit_name(path: str) -> str:
    """The name of a mount's unit, as systemd-escape --path gives it."""
    name = path.strip("/") or "-"
    if name == "-":
        return "-.mount"
    escaped = ""
    for at, char in enumerate("/".join(part for part in name.split("/") if part)):
        if char == "/":
            escaped += "-"
        elif re.fullmatch(r"[A-Za-z0-9:_]", char) or (char == "." and at > 0):
            escaped += char
        else:
            escaped += "".join(f"\\x{byte:02x}" for byte in char.encode())
    return f"{escaped}.mount"


def unit_text(mount: dict[str, Any]) -> str:
    """The unit of a mount."""
    network = mount["fs_type"] in _NETWORK
    options = ["ro" if mount["read_only"] else "rw", "nofail", *(["_netdev"] if network else [])]
    words = {key: str(mount[key]).replace("%", "%%") for key in ("path", "source", "fs_type")}
    order = "After=network-online.target\nWants=network-online.target\n" if network else ""
    return _UNIT.format(**words, order=order, options=",".join(options), target=_target(mount))


def _target(mount: dict[str, Any]) -> str:
    return "remote-fs.target" if mount["fs_type"] in _NETWORK else "local-fs.target"


def wants_path(mount: dict[str, Any]) -> str:
    """The link by which a unit is started at boot."""
    return f"/etc/systemd/system/{_target(mount)}.wants/{unit_name(mount['path'])}"


def _mounted(host: Host, mount: dict[str, Any], field: str) -> Setting:
    path = mount["path"]
    want = " ".join(["mounted", *_compared(mount, mount["fs_type"], mount["source"], mount["read_only"])])

    def read() -> str:
        line = _line(host, path)
        if line is None:
            return "not mounted"
        at_boot = ["not at boot"] if unit_wanted(host, mount) and not host.exists(wants_path(mount)) else []
        source, fs_type, options = line
        seen = ["mounted", *_compared(mount, fs_type, source, "ro" in options.split(","))]
        marker = mount["marker"]
        target = f"{path.rstrip('/')}/{marker}" if marker else path
        # A mount whose server is gone keeps whoever asks it: a process that can be given up asks.
        answer = host.run(["stat", "--terse", "--", target], timeout_s=_ANSWER_S)
        without = [] if answer.status == 0 else [f"without {marker or 'an answer'}"]
        return " ".join([*seen, *without, *at_boot])

    def write() -> None:
        if unit_wanted(host, mount):
            _start(host, unit_name(path))
        elif in_fstab(host, path):
            verb = ["mount", "-o", "remount", path] if _line(host, path) else ["mount", path]
            host.must(verb, timeout_s=_MOUNT_S)
        else:
            raise HostError(
                "/etc/fstab does not have it: give its fs_type and source under host.mounts, or add the line"
            )

    return Setting(
        path, field, want, read, write,
        advice="another file system is mounted there, or its server gives something else: umount it and see",
    )  # fmt: skip


def _start(host: Host, unit: str) -> None:
    host.must(["systemctl", "daemon-reload"], timeout_s=90.0)
    host.must(["systemctl", "enable", unit])
    host.must(["systemctl", "restart", unit], timeout_s=_MOUNT_S)


def _compared(mount: dict[str, Any], fs_type: str, source: str, read_only: bool) -> list[str]:
    """What the profile compares, of what there is."""
    return [
        *([source] if mount["source"] is not None else []),
        *([fs_type] if mount["fs_type"] is not None else []),
        *(["ro" if read_only else "rw"] if mount["read_only"] is not None else []),
    ]


def _line(host: Host, path: str) -> tuple[str, str, str] | None:
    """Source, type and options of what is mounted at a path; the last one hides the others."""
    found = None
    for row in (host.read("/proc/self/mounts") or "").splitlines():
        fields = row.split(" ")
        if len(fields) > 3 and _plain(fields[1]) == _key(path):
            found = (_plain(fields[0]), fields[2], fields[3])
    return found


def _plain(field: str) -> str:
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), field)


def _key(path: str) -> str:
    return path.rstrip("/") or "/"
