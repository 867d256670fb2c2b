"""What a data port counts, and how much it grew: sysfs counters and the driver's ethtool statistics.

Kernel: /sys/class/infiniband/DEVICE/ports/N/{counters,hw_counters}/NAME, ETHTOOL_GSTATS.
https://docs.kernel.org/networking/device_drivers/ethernet/mellanox/mlx5/counters.html
The classic ones are those of InfiniBand's PortCounters, 4 to 16 bits wide, and stop when they are full.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from agent.checks.ports import netdev_of, port_path, subject_of
from agent.errors import DeviceAbsent, NotSupported, ParseError
from agent.model import Measure
from agent.node_profile import NicPort
from agent.sources import Sources
from agent.sources.counters import CounterDelta

#: What the name of a metric may not have in it: one such name and Prometheus refuses the whole page.
_NO_NAME = re.compile(r"[^a-z0-9_]")
#: Where a counter stays once it is full (drivers/infiniband/core/sysfs.c: width of each PortCounters field).
FULL: dict[str, int] = {
    "counters/symbol_error": 0xFFFF,
    "counters/link_error_recovery": 0xFF,
    "counters/link_downed": 0xFF,
    "counters/port_rcv_errors": 0xFFFF,
    "counters/port_rcv_remote_physical_errors": 0xFFFF,
    "counters/port_xmit_discards": 0xFFFF,
    "counters/port_xmit_constraint_errors": 0xFF,
    "counters/port_rcv_constraint_errors": 0xFF,
    "counters/local_link_integrity_errors": 0xF,
    "counters/excessive_buffer_overrun_errors": 0xF,
    "counters/VL15_dropped": 0xFFFF,
}
#: For a port that does not count everything; {} is the check.
NOT_COUNTED = (
    "Where a firmware or driver does not count it, name the counter under"
    " `limits: {{{0}: {{optional: [...]}}}}`, or leave the check out: checks: {{{0}: {{enabled: false}}}}."
)


@dataclass(frozen=True, slots=True)
class Counts:
    """Lifetime values by name, and the optional counters that this port does not have."""

    values: dict[str, int]
    missing: tuple[str, ...] = ()

    def joined(self, other: Counts) -> Counts:
        """Both in one."""
        return Counts(self.values | other.values, self.missing + other.missing)

    def without(self) -> str:
        """What a PASS rests on less, for its summary; empty when nothing is missing."""
        return f"; without {', '.join(self.missing)}" if self.missing else ""


def sysfs_counts(
    sources: Sources, port: NicPort, names: Iterable[str], optional: Iterable[str] = ()
) -> Counts:
    """Counters like `counters/link_downed`. Raises DeviceAbsent for a missing one that is not optional."""
    values: dict[str, int] = {}
    missing: list[str] = []
    may_lack = frozenset(optional)
    folder, integer = port_path(port), sources.tree.integer
    for name in names:
        try:
            values[name] = as_count(integer(f"{folder}/{name}"), name)
        except DeviceAbsent:
            if name not in may_lack:
                raise
            missing.append(name)
    return Counts(values, tuple(missing))


def driver_counts(
    sources: Sources, port: NicPort, names: Iterable[str], optional: Iterable[str] = ()
) -> Counts:
    """Statistics like `rx_prio3_discards`. Raises NotSupported for a missing one that is not optional."""
    statistics = sources.net.ethtool_stats(netdev_of(port))
    values: dict[str, int] = {}
    missing: list[str] = []
    may_lack = frozenset(optional)
    for name in names:
        if name in statistics:
            values[name] = as_count(statistics[name], name)
        elif name in may_lack:
            missing.append(name)
        else:
            raise NotSupported(f"the driver of {port.netdev} has no statistic {name}")
    return Counts(values, tuple(missing))


def growth(
    sources: Sources, check: str, port: NicPort, values: Mapping[str, int], window_s: float
) -> dict[str, CounterDelta]:
    """Growth of every counter. Raises BaselineOnly, once all are sampled, when one of them is new.

    A counter that goes back (driver reload, wrap) begins a new baseline.
    """
    prefix = f"{check}/{subject_of(port)}"
    return sources.counters.deltas(prefix, values, sources.clock.mono_s(), window_s)


def full(values: Mapping[str, int]) -> dict[str, int]:
    """The counters that have stopped because they are full: whatever happens now is not counted.

    A higher value shows a device that keeps this counter wider than the classic one.
    """
    return {name: value for name, value in values.items() if value == FULL.get(name)}


def totals(prefix: str, values: Mapping[str, int]) -> tuple[Measure, ...]:
    """Lifetime values for dashboards; some drivers' counters have the prefix already."""
    return tuple([Measure(_metric(prefix, name), value, "", short(name)) for name, value in values.items()])


# Cached, these two: a node asks for the same few dozen names a thousand times a pass.
@lru_cache(maxsize=1024)
def _metric(prefix: str, name: str) -> str:
    """The metric's name for a counter."""
    own = _NO_NAME.sub("_", short(name).removeprefix(f"{prefix}_").lower())
    return f"{prefix}_{own}_total"


@lru_cache(maxsize=1024)
def short(name: str) -> str:
    """A counter's own name, without its folder."""
    return name.rsplit("/", 1)[-1]


def described(grown: Mapping[str, CounterDelta]) -> str:
    """`link_downed +1 in 10 s; symbol_error +40 in 10 s`."""
    return "; ".join(f"{short(name)} +{d.delta} in {d.seconds:.0f} s" for name, d in grown.items())


def as_count(value: object, name: str) -> int:
    """A count, and nothing else. Raises ParseError."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ParseError(f"{name} reads {value!r}, not a count")
    return value
