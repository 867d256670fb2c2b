"""Kernel log lines about NICs: what kind of trouble each tells, and of which card. Pure.

Wording of drivers/net/ethernet/mellanox/mlx5/core/{cmd,health,events,en_main}.c and net/sched/sch_generic.c.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from agent.sources import KmsgRecord


class Trouble(StrEnum):
    """What a line tells."""

    DEAD = "firmware health"  # the device does not answer or has given up
    COMMAND = "command timeout"  # the driver cannot reach the firmware: wedged, while the link stays up
    STUCK = "CPU stuck in mlx5"
    TRANSMIT = "transmit timeout"
    POWER = "insufficient PCIe slot power"
    HOT = "high temperature"
    MODULE = "module error"
    ACCESS = "register access failed"


#: In this order: the first that matches is what a line tells.
_PATTERNS: tuple[tuple[Trouble, re.Pattern[str]], ...] = (
    (
        Trouble.DEAD,
        re.compile(
            r"mlx5.*(?:device's health compromised|Fatal error \d+ detected"
            r"|health recovery (?:failed|flow aborted)|unrecoverable hardware error"
            r"|firmware internal error|irisc not responding|handling bad device)"
        ),
    ),
    (
        Trouble.COMMAND,
        re.compile(
            r"mlx5.*(?:timeout\. Will cause a leak of a command resource|No done completion"
            r"|canceled on out of queue timeout)|mlx5_\d+: timeout"
        ),
    ),
    (Trouble.STUCK, re.compile(r"soft lockup.*mlx5|RIP: .*\bmlx5")),
    (
        Trouble.TRANSMIT,
        re.compile(r"mlx5.*TX timeout (?:detected|on queue)|NETDEV WATCHDOG: .*transmit queue.* timed out"),
    ),
    (Trouble.POWER, re.compile(r"mlx5.*Detected insufficient power on the PCIe slot")),
    (Trouble.HOT, re.compile(r"mlx5.*(?:Port module event.*High Temperature|High temperature on sensors)")),
    (Trouble.MODULE, re.compile(r"mlx5.*Port module event\[error\]")),
    (Trouble.ACCESS, re.compile(r"mlx5.*ACCESS_REG\(0x[0-9a-f]+\).*failed")),
)
#: The driver has started anew or has repaired itself: what it said of this card before is over.
_RECOVERED = re.compile(r"mlx5.*(?:health recovery succeeded|firmware version: \d)")
_ADDRESS = re.compile(r"\b[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\b")
_WATCHDOG = re.compile(r"NETDEV WATCHDOG: (\S+)")
_DEVICE = re.compile(r"\b(mlx5_\d+):")


@dataclass(frozen=True, slots=True)
class NicLine:
    """One line of trouble, or of recovery (`trouble` None); `names` are what it calls its card."""

    trouble: Trouble | None
    mono_s: float
    names: frozenset[str]
    text: str


def nic_lines(records: Iterable[KmsgRecord]) -> list[NicLine]:
    """The lines that matter, oldest first."""
    found: list[NicLine] = []
    for record in records:
        trouble = next((kind for kind, pattern in _PATTERNS if pattern.search(record.text)), None)
        if trouble is not None or _RECOVERED.search(record.text):
            found.append(NicLine(trouble, record.mono_s, _names(record.text), record.text))
    return found


def _names(text: str) -> frozenset[str]:
    """PCI address, interface or RDMA device that a line names; none in a stack trace."""
    names = set(_ADDRESS.findall(text)) | set(_DEVICE.findall(text))
    watchdog = _WATCHDOG.search(text)
    if watchdog is not None:
        names.add(watchdog[1].rstrip(":"))
    return frozenset(names)


def events(lines: Iterable[NicLine], collapse_s: float) -> list[float]:
    """Times of distinct events: lines closer together than `collapse_s` tell of one."""
    times: list[float] = []
    for line in lines:
        if not times or line.mono_s - times[-1] > collapse_s:
            times.append(line.mono_s)
    return times


def most_within(times: list[float], window_s: float) -> int:
    """The most events that ever fell into one window."""
    return max((sum(0 <= time - first <= window_s for time in times) for first in times), default=0)
