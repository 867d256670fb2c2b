"""host.sysctl: kernel settings now (/proc/sys) and at every boot (one file in /etc/sysctl.d).

A key that this kernel lacks is refused by name before anything is written; a file that systemd-sysctl(8)
reads after ours and that sets a key otherwise is named. Keys may hold `*` for any name, as in sysctl.d(5).
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable

from .files import file_setting, no_file_setting
from .host import Host, HostError
from .setting import Setting
from .shared_look import SharedLook

FILE = "/etc/sysctl.d/60-nodegate.conf"
PROC_SYS = "/proc/sys"
#: In the order in which a file of the same name hides one of a later folder.
FOLDERS = ("/etc/sysctl.d", "/run/sysctl.d", "/usr/local/lib/sysctl.d", "/usr/lib/sysctl.d", "/lib/sysctl.d")
_HEADING = "# Written by nodegate's role `kernel`: host.sysctl of the profile.\n"
_LINE = re.compile(r"-?\s*([^=\s#;]+)\s*=\s*(.*)")


def parts_of(key: str) -> list[str]:
    """The parts of a key as sysctl(8) reads it: the first separator counts, the other one stands in names."""
    separators = re.sub(r"[^./]", "", key)
    if separators.startswith("/"):
        return key.split("/")
    return [part.replace("/", ".") for part in key.split(".")]


def there_of(host: Host, key: str) -> list[str]:
    """Files of the kernel that a key stands for, of what there is."""
    paths = [PROC_SYS]
    for part in parts_of(key):
        if "*" in part:
            paths = [
                f"{p}/{name}" for p in paths for name in host.names(p) if fnmatch.fnmatchcase(name, part)
            ]
        else:
            paths = [f"{path}/{part}" for path in paths]
    return [path for path in paths if host.exists(path)]


def paths_of(host: Host, key: str) -> list[str]:
    """As there_of. Raises HostError when there is none."""
    there = there_of(host, key)
    if not there:
        raise HostError(
            f"this kernel has no {key}: setting it does nothing; take it out of host.sysctl in the profile,"
            " or load the module or run the kernel that has it"
        )
    return there


def sysctl_text(wanted: dict[str, int | str]) -> str:
    """The file for systemd-sysctl."""
    return _HEADING + "".join(f"{key} = {value}\n" for key, value in wanted.items())


def runtime_settings(
    host: Host, wanted: dict[str, int | str], coming: Callable[[], bool] = lambda: False
) -> list[Setting]:
    """The values that the kernel has now."""
    return [_runtime(host, key, str(value), coming) for key, value in wanted.items()]


def sysctl_settings(
    host: Host, wanted: dict[str, int | str], coming: Callable[[], bool] = lambda: False
) -> list[Setting]:
    """The values now, the file, and what a later file makes of them at boot.

    `coming`: whether a key that is missing may come with modules that are loaded before, in the same run.
    Those keys are written first: of one that did not come it is told before any other has been set.
    """
    field = "host.sysctl"
    if not wanted:
        return [no_file_setting(host, FILE, field)]
    later = SharedLook(lambda: later_lines(host))
    missing_first = dict(sorted(wanted.items(), key=lambda item: bool(there_of(host, item[0]))))
    return [
        *runtime_settings(host, missing_first, coming),
        file_setting(host, FILE, sysctl_text(wanted), field),
        *(_at_boot(later, key, str(value)) for key, value in wanted.items()),
    ]


def _runtime(host: Host, key: str, want: str, coming: Callable[[], bool]) -> Setting:
    def read() -> str | None:
        if not there_of(host, key) and coming():
            return None
        seen = {path: " ".join((host.read(path) or "").split()) for path in paths_of(host, key)}
        wrong = {path: value for path, value in seen.items() if not _same(value, want)}
        if not wrong:
            return want
        fixed = [path for path in wrong if not (host.mode(path) or 0) & 0o222]
        if fixed:
            raise HostError(
                f"{fixed[0]}: is {wrong[fixed[0]]} and read-only in this kernel;"
                " take it out of host.sysctl in the profile"
            )
        if len(seen) == 1:
            return next(iter(wrong.values())) or "(empty)"
        return ", ".join(f"{value} ({path.removeprefix(PROC_SYS + '/')})" for path, value in wrong.items())

    def write() -> None:
        for path in paths_of(host, key):
            host.poke(path, f"{want}\n")

    return Setting(
        key, f"host.sysctl.{key}", want, read, write,
        advice="the kernel changes it or takes another value: correct it in the profile",
    )  # fmt: skip


def _same(value: str, want: str) -> bool:
    return _numbers(value) == _numbers(want)


def _numbers(text: str) -> list[int | str]:
    """Words, numbers as numbers."""
    return [int(word) if re.fullmatch(r"-?\d{1,20}", word) else word for word in text.split()]


def _at_boot(later: SharedLook[list[tuple[str, str, str]]], key: str, want: str) -> Setting:
    """What the last file after ours says."""

    def read() -> str:
        seen = want
        for path, other, value in later.get(key):
            if _meets(key, other):
                seen = want if _same(value, want) else f"{value} (from {path})"
        return seen

    return Setting(
        f"{key} at boot", f"host.sysctl.{key}", want, read,
        advice="that file is read after ours: take the line out of it, or correct the profile",
    )  # fmt: skip


def _meets(key: str, other: str) -> bool:
    """Whether two keys, of which one may hold `*`, can mean the same file."""
    one, two = "/".join(parts_of(key)), "/".join(parts_of(other))
    return fnmatch.fnmatchcase(one, two) or fnmatch.fnmatchcase(two, one)


def later_lines(host: Host) -> list[tuple[str, str, str]]:
    """(file, key, value) of every file that is read after ours, in order. Raises HostError."""
    files: dict[str, str] = {}
    for folder in FOLDERS:
        for name in host.names(folder):
            if name.endswith(".conf") and name > FILE.rpartition("/")[2]:
                files.setdefault(name, f"{folder}/{name}")
    found = []
    for _, path in sorted(files.items()):
        for line in (host.read(path) or "").splitlines():
            match = _LINE.match(line.strip())
            if match:
                found.append((path, match[1], match[2].strip()))
    return found
