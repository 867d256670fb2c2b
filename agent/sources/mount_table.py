"""Whether a file system is read-only by itself: proc_pid_mountinfo(5).

statvfs(2) also says read-only for a mount that is so for this process alone, and under the agent's unit
(ProtectSystem=) /usr, /boot and /etc are. A disk error makes the file system read-only: its own options,
behind the separator, tell.
"""

from __future__ import annotations

import re
from pathlib import Path

from agent.errors import ParseError, SourceUnavailable

MOUNTINFO = Path("/proc/self/mountinfo")
_OCTAL = re.compile(r"\\([0-7]{3})")


def is_read_only(path: str, table: str) -> bool:
    """Whether the file system that holds an absolute, resolved path is, by the text of mountinfo.

    Of mounts on one another the last counts. Raises ParseError.
    """
    best, answer = -1, None
    for line in table.splitlines():
        mount, separator, of_system = line.partition(" - ")
        fields, system = mount.split(" "), of_system.split(" ")
        if not separator or len(fields) < 6 or len(system) < 3:
            raise ParseError(f"{MOUNTINFO}: not a mount: {line[:80]!r}")
        point = _OCTAL.sub(lambda match: chr(int(match[1], 8)), fields[4])
        if len(point) >= best and f"{path.rstrip('/')}/".startswith(f"{point.rstrip('/')}/"):
            best, answer = len(point), "ro" in system[-1].split(",")
    if answer is None:
        raise ParseError(f"{MOUNTINFO}: no mount holds {path}")
    return answer


def file_system_read_only(path: str) -> bool:
    """The same for this process's mounts; may hang where the path does. Raises SourceError."""
    try:
        table = MOUNTINFO.read_text(encoding="utf-8", errors="surrogateescape")
        return is_read_only(str(Path(path).resolve()), table)
    except OSError as cause:
        raise SourceUnavailable(f"{MOUNTINFO}: {cause.strerror or cause}") from cause
