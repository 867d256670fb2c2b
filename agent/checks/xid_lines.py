"""Reading Xid lines of the kernel log, pure.

NVRM: Xid (PCI:0000:05:00): 79, pid=1234, name=python3, GPU has fallen off the bus.
NVRM: GPU 0000:05:00.0: GPU has fallen off the bus.          (no Xid at all)
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from agent.checks.pci import find_address, normal_address
from agent.checks.xid_table import HARMLESS_74_BITS, RECOVERY, TABLE, UNLISTED, Refine, XidClass, XidRule
from agent.model import Action
from agent.sources import KmsgRecord

OFF_BUS_CODE = 79
_XID = re.compile(
    r"NVRM:\s*Xid\s*\((?:PCI:)?"
    r"(?P<address>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?)[^)]*\): "
    r"(?P<code>\d{1,5})\b(?P<rest>.*)",
    re.IGNORECASE,
)
#: The lines of an NVSwitch, which sxid judges.
_SXID = re.compile(r"\bSXid\b", re.IGNORECASE)
_ANY_XID = re.compile(r"NVRM:\s*Xid", re.IGNORECASE)
_OFF_BUS = re.compile(r"fallen off the bus", re.IGNORECASE)
_REGISTERS = re.compile(r"link \d+\s*\((0x[0-9a-fA-F]+(?:,\s*0x[0-9a-fA-F]+){6})\)")
_FATAL = re.compile(r"(?<!non)(?<!non-)(?<!non )\bfatal\b", re.IGNORECASE)
_NONFATAL = re.compile(r"\bnon[- ]?fatal\b", re.IGNORECASE)
_RECOVERY = re.compile(r"\bto 0x([0-9a-fA-F]{1,8})\b")


@dataclass(frozen=True, slots=True)
class XidEvent:
    """One fault line; `address` is the normal PCI address, None when the line names none."""

    code: int
    address: str | None
    mono_s: float
    text: str

    @property
    def rule(self) -> XidRule:
        """The table's rule for the code."""
        return TABLE.get(self.code, UNLISTED)


def parse(records: Iterable[KmsgRecord]) -> tuple[list[XidEvent], list[str]]:
    """The faults in kernel log records, oldest first, and the Xid lines that could not be read."""
    events: list[XidEvent] = []
    garbled: list[str] = []
    for record in records:
        if _SXID.search(record.text):
            continue
        match = _XID.search(record.text)
        if match is not None:
            address = normal_address(match["address"])
            events.append(XidEvent(int(match["code"]), address, record.mono_s, match["rest"].strip(" ,")))
        elif _OFF_BUS.search(record.text):
            events.append(XidEvent(OFF_BUS_CODE, find_address(record.text), record.mono_s, record.text))
        elif _ANY_XID.search(record.text):
            garbled.append(record.text)
    return events, garbled


def judged(event: XidEvent) -> tuple[XidClass, Action]:
    """Class and action of one event; where its text decides and cannot be read, the worst is assumed."""
    rule = event.rule
    if rule.refine is Refine.NVLINK_REGISTERS and _only_harmless_bits(event.text):
        return XidClass.WATCH, rule.action
    if rule.refine is Refine.FATAL_WORD and _NONFATAL.search(event.text) and not _FATAL.search(event.text):
        return XidClass.WATCH, rule.action
    if rule.refine is Refine.RECOVERY_ACTION and (asked := recovery_of(event)) is not None:
        _, xid_class, action = RECOVERY.get(asked, ("", rule.xid_class, rule.action))
        return xid_class, action
    return rule.xid_class, rule.action


def recovery_of(event: XidEvent) -> int | None:
    """The recovery action that an Xid 154 changes to; None for another line, or one that names none."""
    if event.rule.refine is not Refine.RECOVERY_ACTION:
        return None
    match = _RECOVERY.search(event.text)
    return int(match[1], 16) if match else None


def named(event: XidEvent) -> str:
    """`Xid 79 (GPU has fallen off the bus)`, with the asked-for action where the line names one."""
    name = event.rule.name
    if (asked := recovery_of(event)) is not None:
        words = RECOVERY.get(asked)
        name = f"driver asks: {words[0]}" if words else f"unknown recovery action 0x{asked:x}"
    return f"Xid {event.code} ({name})"


def _only_harmless_bits(text: str) -> bool:
    """Whether the registers of an Xid 74 hold nothing but bits that may be ignored."""
    match = _REGISTERS.search(text)
    if match is None:
        return False
    registers = [int(part, 16) for part in match[1].split(",")]
    judged_bits = {at: registers[at] for at in HARMLESS_74_BITS}
    if not any(judged_bits.values()):
        return False
    return all(value & ~HARMLESS_74_BITS[at] == 0 for at, value in judged_bits.items())
