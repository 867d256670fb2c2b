"""Makes the stand-in's files of sysfs answer as sysfs does; run by standin-sysfs.service. SIMULATED.

A plain file reads what was written, sysfs does not: `madvise` becomes `always [madvise] never`, a bad value
is not taken, an MTU is the interface's. fanotify(7) tells of each write and holds each open back until what
was written before has been dealt with, so no reader sees a file in between. What stays unlike sysfs: the
write itself never fails; a value that is refused is only found in the read-back.
"""

from __future__ import annotations

import ctypes
import os
import re
import socket
import struct
from collections.abc import Callable
from pathlib import Path

import standin
import standin_table as table
from standin import BASE

_libc = ctypes.CDLL(None, use_errno=True)
CLASS_CONTENT, CLOEXEC, MARK_ADD, AT_FDCWD = 0x4, 0x1, 0x1, -100
CLOSE_WRITE, OPEN_PERM, ALLOW = 0x8, 0x10000, 1
EVENT = struct.Struct("=IBBHQii")
RESPONSE = struct.Struct("=iI")
LOWEST_MTU_BYTES, HIGHEST_MTU_BYTES = 68, 9978

#: What a file reads after a write: (path below sys, text before, what was written) -> text, None = refused.
Rule = Callable[[str, str, str], "str | None"]


def as_choice(path: str, before: str, written: str) -> str | None:
    """A word of the list becomes the marked one."""
    return standin.choose(before, written.strip())


def as_class(path: str, before: str, written: str) -> str | None:
    """mlx5's tc/PORT/traffic_class: a number for all traffic; -1 takes it back."""
    number = standin.number_in(written.strip().removeprefix("tclass="))
    if number is None or not -1 <= number <= 255:
        return None
    return "" if number == -1 else f"Global tclass={number}"


def as_number(lowest: int, highest: int) -> Rule:
    """A number in a range, in decimal."""

    def rule(path: str, before: str, written: str) -> str | None:
        number = standin.number_in(written.strip())
        return str(number) if number is not None and lowest <= number <= highest else None

    return rule


def as_mtu(path: str, before: str, written: str) -> str | None:
    """An interface's MTU: NVML's neighbour netlink tells the same."""
    text = as_number(LOWEST_MTU_BYTES, HIGHEST_MTU_BYTES)(path, before, written)
    if text is not None:
        with standin.Machine() as machine:
            machine.net[path.split("/")[2]]["link"]["mtu_bytes"] = int(text)
    return text


RULES: tuple[tuple[str, Rule], ...] = (
    *((path, as_choice) for path in table.CHOICES),
    ("class/infiniband/mlx5_*/tc/1/traffic_class", as_class),
    ("class/net/eth*/mtu", as_mtu),
    ("class/net/eth*/ecn/roce_np/enable/*", as_number(0, 1)),
    ("class/net/eth*/ecn/roce_rp/enable/*", as_number(0, 1)),
    ("class/net/eth*/ecn/roce_np/cnp_dscp", as_number(0, 63)),
    ("class/net/eth*/ecn/roce_np/cnp_802p_prio", as_number(0, 7)),
    ("kernel/config/rdma_cm/mlx5_*/ports/1/default_roce_tos", as_number(0, 255)),
)


class Watcher:
    """The files with a rule, and what each read last."""

    def __init__(self) -> None:
        self.group = _libc.fanotify_init(CLASS_CONTENT | CLOEXEC, os.O_RDWR | os.O_CLOEXEC)
        if self.group < 0:
            raise OSError(ctypes.get_errno(), "fanotify_init")
        self.files: dict[str, tuple[str, Rule]] = {}
        self.texts: dict[str, str] = {}
        for pattern, rule in RULES:
            for path in sorted((BASE / "sys").glob(pattern)):
                self._add(path, rule)

    def _add(self, path: Path, rule: Rule) -> None:
        real = str(path.resolve())
        self.files[real] = (str(path.relative_to(BASE / "sys")), rule)
        self.texts[real] = path.read_text(encoding="utf-8").strip()
        mask = ctypes.c_uint64(CLOSE_WRITE | OPEN_PERM)
        if _libc.fanotify_mark(self.group, MARK_ADD, mask, AT_FDCWD, real.encode()) < 0:
            raise OSError(ctypes.get_errno(), "fanotify_mark", real)

    def follow(self) -> None:
        """For ever."""
        while True:
            data = os.read(self.group, 65536)
            while data:
                length, _version, _reserved, _size, mask, fd, _pid = EVENT.unpack_from(data)
                data = data[length:]
                try:
                    if mask & CLOSE_WRITE:
                        self._written(fd)
                    if mask & OPEN_PERM:
                        os.write(self.group, RESPONSE.pack(fd, ALLOW))
                finally:
                    os.close(fd)

    def _written(self, fd: int) -> None:
        """Make the file read as sysfs would; through this descriptor, which tells no one."""
        real = str(Path(f"/proc/self/fd/{fd}").readlink())
        path, rule = self.files[real]
        written = os.pread(fd, 4096, 0).decode(errors="replace")
        before = self.texts[real]
        if written.strip() == before:
            return
        fault = standin.take_fault("sysfs", path) or {}
        text = before if fault else rule(path, before, re.sub(r"\0", "", written))
        text = before if text is None else text
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{text}\n".encode() if text else b"", 0)
        self.texts[real] = text


def say_ready() -> None:
    """Tell systemd (sd_notify(3))."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.connect(f"\0{address[1:]}" if address.startswith("@") else address)
            channel.send(b"READY=1")


def main() -> None:
    """Watch."""
    watcher = Watcher()
    say_ready()
    watcher.follow()


if __name__ == "__main__":
    main()
