"""The kernel's clock discipline: adjtimex(2) in its reading form (modes 0), which everybody may call.

https://man7.org/linux/man-pages/man2/adjtimex.2.html, include/uapi/linux/timex.h
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable

from agent.errors import SourceUnavailable
from agent.sources.host_reading import ClockSync

STA_UNSYNC = 0x0040
STA_NANO = 0x2000


class Timex(ctypes.Structure):
    """struct timex of a 64-bit kernel; the kernel reserves the rest."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("constant", ctypes.c_long),
        ("precision", ctypes.c_long),
        ("tolerance", ctypes.c_long),
        ("reserved", ctypes.c_long * 32),
    )


def clock_sync_of(timex: Timex) -> ClockSync:
    """What the kernel's answer means. The offset is in ns with STA_NANO, else in us; maxerror in us."""
    unit_s = 1e-9 if timex.status & STA_NANO else 1e-6
    return ClockSync(
        synchronised=not timex.status & STA_UNSYNC,
        offset_s=timex.offset * unit_s,
        max_error_s=timex.maxerror * 1e-6,
    )


def _adjtimex() -> Callable[[object], int]:
    library = ctypes.CDLL(None, use_errno=True)
    function: Callable[[object], int] = library.adjtimex
    return function


def read_clock_sync() -> ClockSync:
    """The discipline of this machine's clock. Raises SourceUnavailable."""
    timex = Timex(modes=0)
    try:
        failed = _adjtimex()(ctypes.byref(timex)) < 0
    except (OSError, AttributeError) as cause:
        raise SourceUnavailable(f"this C library has no adjtimex: {cause}") from cause
    if failed:
        raise SourceUnavailable(f"adjtimex: {os.strerror(ctypes.get_errno())}")
    return clock_sync_of(timex)
