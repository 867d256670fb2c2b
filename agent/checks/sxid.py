"""sxid: what NVSwitches have reported in the kernel log since boot: each fault once, with its switch.

Source: /dev/kmsg, `nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up`. Further
lines of the same fault (`20034, Severity 1 Engine instance ...`, `20034, Data {...}`) are no faults of their
own. Records stay until reboot or until an operator clears them, so a fault does not heal by itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pydantic import Field

from agent.checks.kernel_log import NO_LOG, reach_note, shortened
from agent.checks.nvlink_fabric import no_fabric
from agent.checks.pci import normal_address
from agent.checks.registry import Limits, check, unknown
from agent.checks.sxid_table import NAMES, REBOOT, TABLE_VERSION, WORST_FIRST, SxidClass, action_of, class_of
from agent.errors import SourceError
from agent.model import Basis, Finding, ServingClass, Verdict
from agent.node_profile import NodeProfile
from agent.sources import KmsgRecord, Sources

_SXID = re.compile(
    r"\bSXid\s*\((?:PCI:)?"
    r"(?P<address>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?)[^)]*\)\s*:\s*"
    r"(?P<code>\d{1,6})\b(?P<rest>.*)",
    re.IGNORECASE,
)
_ANY_SXID = re.compile(r"\bSXid\b", re.IGNORECASE)
_NONFATAL = re.compile(r"\bnon[- ]?fatal\b", re.IGNORECASE)
_FATAL = re.compile(r"(?<!non)(?<!non-)(?<!non )\bfatal\b", re.IGNORECASE)
_SEVERITY = re.compile(r"\bSeverity (\d+)\b", re.IGNORECASE)
_DATA = re.compile(r"^[,\s]*Data\b", re.IGNORECASE)
_LINK = re.compile(r"\bLink (\d{1,3})\b", re.IGNORECASE)
#: Faults told by name before the rest is only counted.
_TOLD = 3


class SxidLimits(Limits):
    """Tolerances of sxid."""

    classes: dict[int, SxidClass] = Field(
        default_factory=dict,
        description="Class by code: always_fatal, fatal, nonfatal, info or ignore",
    )


@dataclass(slots=True)
class SxidFault:
    """One code of one switch, however many lines it wrote."""

    code: int
    address: str
    word: SxidClass | None = None
    links: tuple[str, ...] = ()
    times: int = 0

    def take(self, rest: str) -> None:
        """Take in one line; the worst word counts."""
        word = _word(rest)
        if word is not None and (self.word is None or WORST_FIRST.index(word) < WORST_FIRST.index(self.word)):
            self.word = word
        link = _LINK.search(rest)
        if link is not None and link[1] not in self.links:
            self.links = (*self.links, link[1])
        self.times += not (_SEVERITY.search(rest) or _DATA.search(rest))

    def described(self, sxid_class: SxidClass) -> str:
        """The fault in words."""
        name = f": {NAMES[self.code]}" if self.code in NAMES else ""
        links = f", link {' '.join(self.links[:4])}" if self.links else ""
        often = f", {self.times} times" if self.times > 1 else ""
        kind = f"{sxid_class.replace('_', ' ')}{name}"
        return f"SXid {self.code} ({kind}) of NVSwitch {self.address}{links}{often}"


def _word(rest: str) -> SxidClass | None:
    """Whether a line says fatal or not, None when it says neither."""
    if _FATAL.search(rest):
        return SxidClass.FATAL
    if _NONFATAL.search(rest):
        return SxidClass.NONFATAL
    severity = _SEVERITY.search(rest)
    if severity is None:
        return None
    return SxidClass.FATAL if int(severity[1]) > 0 else SxidClass.NONFATAL


def parse(records: Iterable[KmsgRecord]) -> tuple[list[SxidFault], list[str]]:
    """The faults in kernel log records, by switch and code, and the SXid lines that could not be read."""
    faults: dict[tuple[str, int], SxidFault] = {}
    garbled: list[str] = []
    for record in records:
        match = _SXID.search(record.text)
        if match is not None:
            address, code = normal_address(match["address"]), int(match["code"])
            faults.setdefault((address, code), SxidFault(code, address)).take(match["rest"])
        elif _ANY_SXID.search(record.text):
            garbled.append(record.text)
    return list(faults.values()), garbled


@check(
    "sxid",
    title="NVSwitch errors (SXid)",
    source=f"/dev/kmsg: `SXid`; SXid table {TABLE_VERSION}",
    serving_class=ServingClass.IMMEDIATE,
    limits=SxidLimits,
    period_s=5.0,
    clear_for_s=0.0,
    triggers=("kmsg.xid",),
    skip=no_fabric,
    action=REBOOT,
    if_unreadable=NO_LOG.format("sxid"),
)
def sxid(sources: Sources, profile: NodeProfile, limits: SxidLimits) -> Iterator[Finding]:
    """No NVSwitch may have reported a fatal error since boot."""
    del profile
    try:
        faults, garbled = parse(sources.kmsg.records())
    except SourceError as cause:
        yield unknown("node", cause)
        return
    yield _judge(faults, garbled, limits, reach_note(sources))


def _judge(faults: list[SxidFault], garbled: list[str], limits: SxidLimits, note: str) -> Finding:
    classes = [limits.classes.get(fault.code) or class_of(fault.code, fault.word) for fault in faults]
    found = [pair for pair in zip(classes, faults, strict=True) if pair[0] is not SxidClass.IGNORE]
    found.sort(key=lambda pair: WORST_FIRST.index(pair[0]))
    words = shortened([fault.described(sxid_class) for sxid_class, fault in found], _TOLD)
    if not found and not garbled:
        return Finding("node", Verdict.PASS, f"no SXid in the kernel log{note}", "none", "none")
    worst, first = found[0] if found else (SxidClass.INFO, None)
    if worst in (SxidClass.ALWAYS_FATAL, SxidClass.FATAL):
        return _finding(Verdict.FAIL, words, first, worst, limits, ServingClass.IMMEDIATE)
    if garbled:
        return Finding("node", Verdict.UNKNOWN, f"an SXid line cannot be read: {garbled[-1][:80]!r}")
    if worst is SxidClass.NONFATAL:
        return _finding(Verdict.WARN, words, first, worst, limits, ServingClass.SOFT)
    return Finding(
        "node", Verdict.PASS, f"only informational: {words}", first.code if first else None, "none"
    )


def _finding(
    verdict: Verdict,
    words: str,
    fault: SxidFault | None,
    sxid_class: SxidClass,
    limits: SxidLimits,
    serving_class: ServingClass,
) -> Finding:
    assert fault is not None
    changed = fault.code in limits.classes
    basis = Basis.limit("classes") if changed else Basis.standard(f"SXid table {TABLE_VERSION}")
    action = action_of(fault.code, sxid_class)
    return Finding("node", verdict, words, fault.code, "none", "SXid", action, serving_class, basis=basis)
