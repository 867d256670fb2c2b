"""host.disk, host.mounts: is there room, and do the mounted file systems answer?

statvfs(3); /proc/self/mounts (fstab(5)). A mount whose server is gone is still in the table: asking it tells.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from pydantic import Field

from agent.checks import advice
from agent.checks.registry import Limits, check, each, unknown
from agent.errors import DeviceAbsent, ParseError, SourceError
from agent.model import Basis, Finding, ServingClass, Verdict
from agent.node_profile import Mount, NodeProfile
from agent.sources import Sources
from agent.sources.host_reading import DiskSpace, MountAnswer

GIB = 1 << 30
MOUNTS = "proc/self/mounts"
_FREE = advice.person("Find what fills it with du -x, and remove old logs, core dumps and caches.")
_READ_ONLY = advice.person(
    "Look in the kernel log for file system or disk errors, check the file system, then reboot or remount it."
)
_MADE_SO = advice.person(
    "Leave the path out of host.disks in the profile if it is read-only by design, as a container's root is."
)
_PATH = advice.person("Make the folder, or correct host.disks in the profile.")
_MOUNT = advice.play(
    "kernel", "Mount it (systemctl list-units --type=mount, /etc/fstab), or correct the profile."
)
_STALE = advice.person(
    "Look at the server and the path to it, then umount -f -l and mount it again before ranks start."
)
_MARKER = advice.person("Look what is mounted there: the marker file that the profile names is not in it.")
_OCTAL = re.compile(r"\\([0-7]{3})")
#: File systems that errors do not make read-only: whoever mounted them so meant it.
_MADE_READ_ONLY = frozenset({"overlay", "squashfs", "erofs", "tmpfs", "ramfs", "iso9660"})
#: Mounts are asked at the same time, so that one that does not answer delays no other.
_AT_ONCE = 16


class DiskLimits(Limits):
    """Tolerances of host.disk."""

    warn_free_percent: float = Field(5.0, description="Less of space or inodes free is told", gt=0, lt=100)
    fail_free_percent: float = Field(1.0, description="Less of space or inodes free fails", ge=0, lt=100)


@check(
    "host.disk",
    title="Disk space",
    source="statvfs(3)",
    serving_class=ServingClass.SOFT,
    limits=DiskLimits,
    period_s=30.0,
    deadline_s=15.0,
    fail_for_s=60.0,
    skip=lambda p: None if p.host.disks else "the profile names no disks",
    action=_FREE,
)
def host_disk(sources: Sources, profile: NodeProfile, limits: DiskLimits) -> Iterator[Finding]:
    """Each file system of the profile must have room for data and files, and must be writable."""
    paths = [(path, path) for path in profile.host.disks]
    yield from each(dict(paths).items(), lambda subject, path: _judge_disk(sources, subject, path, limits))


def _judge_disk(sources: Sources, subject: str, path: str, limits: DiskLimits) -> Finding:
    profile = Basis.profile("host.disks")
    try:
        disk = sources.host.disk(path)
    except DeviceAbsent:
        summary = f"{path} is not there"
        return Finding(subject, Verdict.WARN, summary, "absent", "present", action=_PATH, basis=profile)
    free, what = _least_free_percent(path, disk)
    if disk.read_only:
        made_so = _made_read_only(sources, path)
        summary = "mounted read-only: nothing can be written to it" + (f" ({made_so})" if made_so else "")
        seen, want = "read-only", "writable"
        bad, action = (Verdict.WARN, _MADE_SO) if made_so else (Verdict.FAIL, _READ_ONLY)
        return Finding(subject, bad, summary, seen, want, action=action, basis=profile)
    summary = f"{free:.1f} % of its {what} free, {disk.free_b / GIB:.1f} of {disk.total_b / GIB:.1f} GiB"
    for verdict, name in ((Verdict.FAIL, "fail_free_percent"), (Verdict.WARN, "warn_free_percent")):
        limit: float = getattr(limits, name)
        if free < limit:
            basis = Basis.limit(name)
            return Finding(subject, verdict, summary, round(free, 2), limit, "%", _FREE, basis=basis)
    basis = Basis.limit("warn_free_percent")
    return Finding(subject, Verdict.PASS, summary, round(free, 2), limits.warn_free_percent, "%", basis=basis)


def _made_read_only(sources: Sources, path: str) -> str:
    """The type of a read-only file system that is made to be so; empty for any other."""
    try:
        lines = list(parse_mounts(sources.tree.text(MOUNTS)))
    except SourceError:
        return ""  # not known: then it counts as a fault
    under = [line for line in lines if f"{path.rstrip('/')}/".startswith(f"{line.path.rstrip('/')}/")]
    nearest = max(reversed(under), key=lambda line: len(line.path), default=None)
    return nearest.fs_type if nearest is not None and nearest.fs_type in _MADE_READ_ONLY else ""


def _least_free_percent(path: str, disk: DiskSpace) -> tuple[float, str]:
    """The smaller of free space and free inodes; some file systems make inodes as they need them (0 of 0)."""
    counts = (disk.total_b, disk.free_b, disk.total_inodes, disk.free_inodes)
    if min(counts) < 0 or disk.total_b == 0 or disk.free_b > disk.total_b:
        raise ParseError(f"{path} has {disk.free_b} of {disk.total_b} bytes free, which cannot be")
    space = 100.0 * disk.free_b / disk.total_b
    if disk.total_inodes == 0:
        return space, "space"
    return min((space, "space"), (100.0 * disk.free_inodes / disk.total_inodes, "inodes"))


@dataclass(frozen=True, slots=True)
class MountLine:
    """One line of the mount table."""

    source: str
    path: str
    fs_type: str
    read_only: bool


@check(
    "host.mounts",
    title="Mounts answer",
    source="/proc/self/mounts; statvfs(3) in a process that can be killed",
    serving_class=ServingClass.SOFT,
    period_s=30.0,
    deadline_s=20.0,
    fail_for_s=60.0,
    needed_to_start=True,
    skip=lambda p: None if p.host.mounts else "the profile names no mounts",
    action=_STALE,
)
def host_mounts(sources: Sources, profile: NodeProfile, _limits: Limits) -> Iterator[Finding]:
    """Each mount of the profile must be mounted as it says, answer, and hold its marker file."""
    wanted = {mount.path: mount for mount in profile.host.mounts}
    try:
        table = {line.path: line for line in parse_mounts(sources.tree.text(MOUNTS))}
    except SourceError as cause:
        yield from (unknown(path, cause) for path in wanted)
        return
    answers = _ask(sources, [mount for mount in wanted.values() if _key(mount) in table])
    yield from each(
        wanted.items(), lambda _, mount: _judge_mount(mount, table.get(_key(mount)), answers.get(mount.path))
    )


def _ask(sources: Sources, mounts: list[Mount]) -> dict[str, MountAnswer | SourceError]:
    """The answer of each mount, or why it could not be asked."""

    def ask(mount: Mount) -> MountAnswer | SourceError:
        try:
            return sources.host.mount(mount.path, mount.marker)
        except SourceError as cause:
            return cause

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return dict(zip((mount.path for mount in mounts), pool.map(ask, mounts), strict=True))


def _judge_mount(mount: Mount, line: MountLine | None, answer: MountAnswer | SourceError | None) -> Finding:
    path, basis = mount.path, Basis.profile("host.mounts")
    if line is None or answer is None:
        return Finding(path, Verdict.FAIL, "not mounted", "absent", "mounted", action=_MOUNT, basis=basis)
    if isinstance(answer, SourceError):
        raise answer
    if not answer.answered:
        summary = f"mounted ({line.fs_type} of {line.source[:80]}) and does not answer: {answer.problem[:80]}"
        return Finding(path, Verdict.FAIL, summary, "no answer", "answers", action=_STALE, basis=basis)
    seen = {"type": line.fs_type, "source": line.source, "mode": _mode(line.read_only)}
    mode = None if mount.read_only is None else _mode(mount.read_only)
    for what, want in {"type": mount.fs_type, "source": mount.source, "mode": mode}.items():
        if want is not None and seen[what] != want:
            summary = f"{what} is {seen[what][:80]}, expected {want[:80]}"
            return Finding(path, Verdict.FAIL, summary, seen[what], want, action=_MOUNT, basis=basis)
    if mount.marker is not None and answer.marker is not True:
        summary = f"it answers, and {mount.marker} is not in it: empty, or another file system"
        return Finding(path, Verdict.FAIL, summary, "absent", mount.marker, action=_MARKER, basis=basis)
    return Finding(path, Verdict.PASS, f"{line.fs_type}, answers", "answers", "answers", basis=basis)


def parse_mounts(text: str) -> Iterator[MountLine]:
    """The mount table in its order; a later mount at a path hides an earlier one. Raises ParseError."""
    for line in text.splitlines():
        fields = line.split(" ")
        if len(fields) < 4:
            raise ParseError(f"/{MOUNTS} has the line {line[:40]!r}")
        source, path, fs_type, options = (_unescaped(field) for field in fields[:4])
        yield MountLine(source, path, fs_type, "ro" in options.split(","))


def _unescaped(field: str) -> str:
    """A field without the escapes of blanks: `\\040` is one."""
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), field)


def _key(mount: Mount) -> str:
    return mount.path.rstrip("/") or "/"


def _mode(read_only: bool) -> str:
    return "read-only" if read_only else "writable"
