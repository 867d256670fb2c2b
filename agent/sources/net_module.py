"""What a transceiver or cable says of itself: SFF-8636 (QSFP) and CMIS (QSFP-DD, OSFP) memory maps. Pure.

SFF-8636 rev 2.11 and OIF-CMIS-05.3; module kinds are those of SFF-8024 table 4-1. Flags are latched in the
module until they are read, and set again at once while their cause lasts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from agent.errors import NotSupported, ParseError
from agent.sources import ModuleInfo

#: Stands for the lower memory, which all pages share, where a page is asked for.
LOWER = -1
_HALF_B = 128
SFF8636_KINDS = {0x0C: "QSFP", 0x0D: "QSFP+", 0x11: "QSFP28"}
CMIS_KINDS = {0x18: "QSFP-DD", 0x19: "OSFP", 0x1E: "QSFP with CMIS", 0x1F: "SFP-DD", 0x20: "SFP+ with CMIS"}
_LEVELS = ("high alarm", "low alarm", "high warning", "low warning")
_CMIS_LANES = 8
#: CMIS page 11h: first of four bytes (high alarm, low alarm, high warning, low warning), a bit a lane.
_CMIS_LANE_FLAGS = {"tx power": 139, "tx bias": 143, "rx power": 149}
_CMIS_LANE_FAULTS = {"tx fault": 135, "tx loss of signal": 136, "rx loss of signal": 147}
_CMIS_TX_POWER, _CMIS_RX_POWER = 154, 186
#: SFF-8636 lower memory: bytes of which each has two lanes, four levels a lane.
_SFF_LANE_FLAGS = {"rx power": (9, 10), "tx bias": (11, 12), "tx power": (13, 14)}
_SFF_RX_POWER, _SFF_TX_POWER = 34, 50
_SFF_LANES = 4
_CONTROL = re.compile(r"[^\x20-\x7e]")


@dataclass(frozen=True, slots=True)
class _Half:
    """One half page, addressed by the byte numbers of the standard."""

    data: bytes
    base: int

    def byte(self, at: int) -> int:
        return self.data[at - self.base]

    def word(self, at: int) -> int:
        return int.from_bytes(self.data[at - self.base : at - self.base + 2], "big")

    def temperature_c(self, at: int) -> float:
        raw = self.word(at)
        return (raw - 0x10000 if raw & 0x8000 else raw) / 256

    def text(self, at: int, length: int) -> str:
        raw = self.data[at - self.base : at - self.base + length]
        return _CONTROL.sub("", raw.decode("ascii", errors="ignore")).strip()

    def powers_mw(self, at: int, lanes: int) -> tuple[float, ...]:
        return tuple(round(self.word(at + 2 * lane) * 1e-4, 4) for lane in range(lanes))


def parse_module(read: Callable[[int], bytes]) -> ModuleInfo:
    """Read a module; `read(page)` gives the upper half of a page, `read(LOWER)` the lower memory.

    Raises NotSupported for other kinds of module, ParseError, and what `read` raises.
    """
    lower = _half(read(LOWER), 0)
    kind = lower.byte(0)
    if kind in SFF8636_KINDS:
        return _sff8636(SFF8636_KINDS[kind], lower, _half(read(0), _HALF_B))
    if kind in CMIS_KINDS:
        return _cmis(CMIS_KINDS[kind], lower, read)
    raise NotSupported(f"a module of kind {kind:#04x} is not understood")


def _half(data: bytes, base: int) -> _Half:
    if len(data) < _HALF_B:
        raise ParseError(f"module memory of {len(data)} bytes, not {_HALF_B}")
    return _Half(data[:_HALF_B], base)


def _sff8636(kind: str, lower: _Half, upper: _Half) -> ModuleInfo:
    copper = upper.byte(147) >> 4 >= 0xA
    named = ModuleInfo(
        kind=f"{kind} {'copper' if copper else 'optical'}",
        vendor=upper.text(148, 16),
        part_number=upper.text(168, 16),
        serial=upper.text(196, 16),
    )
    if copper or lower.byte(2) & 1:  # copper has no sensors; bit 0: its readings are not ready
        return named
    return replace(
        named,
        temperature_c=lower.temperature_c(22),
        rx_power_mw=lower.powers_mw(_SFF_RX_POWER, _SFF_LANES),
        tx_power_mw=lower.powers_mw(_SFF_TX_POWER, _SFF_LANES),
        alarms=tuple(_sff_alarms(lower)),
    )


def _sff_alarms(lower: _Half) -> Iterator[str]:
    for at, name in ((6, "temperature"), (7, "voltage")):
        yield from (f"{name} {level}" for i, level in enumerate(_LEVELS) if lower.byte(at) >> 7 - i & 1)
    for name, bytes_at in _SFF_LANE_FLAGS.items():
        for lane in range(_SFF_LANES):
            bits = lower.byte(bytes_at[lane // 2]) >> (0 if lane % 2 else 4) & 0xF
            yield from (
                f"{name} {level} lane {lane + 1}" for i, level in enumerate(_LEVELS) if bits >> 3 - i & 1
            )
    for lane in range(_SFF_LANES):
        if lower.byte(3) >> lane & 1:
            yield f"rx loss of signal lane {lane + 1}"
        if lower.byte(4) >> lane & 1:
            yield f"tx fault lane {lane + 1}"


def _cmis(kind: str, lower: _Half, read: Callable[[int], bytes]) -> ModuleInfo:
    upper = _half(read(0), _HALF_B)
    flat = bool(lower.byte(2) >> 7)  # one page only: a passive cable
    copper = flat or upper.byte(212) >= 0x0A
    named = ModuleInfo(
        kind=f"{kind} {'copper' if copper else 'optical'}",
        vendor=upper.text(129, 16),
        part_number=upper.text(148, 16),
        serial=upper.text(166, 16),
    )
    if flat:
        return named
    temperature_c = lower.temperature_c(14)
    alarms = [name for i, name in enumerate(_CMIS_MODULE_FLAGS) if lower.byte(9) >> i & 1]
    if copper:
        return replace(named, temperature_c=temperature_c or None, alarms=tuple(alarms))
    lanes = [lane for lane in range(_CMIS_LANES) if not upper.byte(210) >> lane & 1]
    page = _half(read(0x11), _HALF_B)
    rx, tx = (page.powers_mw(at, _CMIS_LANES) for at in (_CMIS_RX_POWER, _CMIS_TX_POWER))
    return replace(
        named,
        temperature_c=temperature_c,
        rx_power_mw=tuple(rx[lane] for lane in lanes),
        tx_power_mw=tuple(tx[lane] for lane in lanes),
        alarms=(*alarms, *_cmis_lane_alarms(page, lanes)),
    )


_CMIS_MODULE_FLAGS = tuple(f"{name} {level}" for name in ("temperature", "voltage") for level in _LEVELS)


def _cmis_lane_alarms(page: _Half, lanes: list[int]) -> Iterator[str]:
    for name, first in _CMIS_LANE_FLAGS.items():
        for i, level in enumerate(_LEVELS):
            yield from (
                f"{name} {level} lane {lane + 1}" for lane in lanes if page.byte(first + i) >> lane & 1
            )
    for name, at in _CMIS_LANE_FAULTS.items():
        yield from (f"{name} lane {lane + 1}" for lane in lanes if page.byte(at) >> lane & 1)
