"""nic.firmware: has each NIC the firmware of its image, and do firmware and driver go together by the matrix?

Kernel: /sys/class/infiniband/DEVICE/{fw_ver,board_id}. The driver's version is /sys/module/mlx5_core/version,
which the driver of DOCA/OFED alone has, else ETHTOOL_GDRVINFO's, where a driver of the kernel itself reports
the kernel's release: no version of DOCA compares with that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from agent.checks import advice
from agent.checks.nic_versions import compared
from agent.checks.ports import INFINIBAND, judge_ports, no_ports, subject_of
from agent.checks.registry import Limits, check
from agent.checks.shared_tree import reading_once
from agent.errors import DeviceAbsent, ParseError, SourceError
from agent.model import Basis, Finding, ServingClass, Verdict
from agent.node_profile import NicPair, NicPort, NodeProfile
from agent.sources import Sources

_BURN = advice.play(
    "firmware",
    "Drain the node and run site.yml --tags firmware: it burns the image of the profile and loads it.",
)
_NEWER = advice.play(
    "firmware",
    "Correct the profile, or go back: site.yml --tags firmware -e firmware_allow_downgrade=true.",
)
_DRIVER = advice.play(
    "kernel", "Install the driver version that the matrix names for this firmware, and reboot."
)
_ROW = advice.person("Add a row for this card (its PSID, or `*`) to fabric.nic.firmware in the profile.")
_INBOX = advice.person(
    "Install the driver of DOCA, or leave driver_min and driver_max out of the row for the kernel's driver."
)
_SAME = advice.play(
    "firmware", "Name one image for this PSID in fabric.nic.images and run site.yml --tags firmware."
)
_MATRIX = Basis.profile("fabric.nic.firmware")
_PSID = re.compile(r"[A-Z0-9_]{6,32}")
_OSRELEASE = "proc/sys/kernel/osrelease"


@dataclass(frozen=True, slots=True)
class _Card:
    """What a port's card runs; `inbox` is a driver that is part of the kernel."""

    firmware: str
    board_id: str
    driver: str
    inbox: bool

    def words(self) -> str:
        """Firmware and driver in words."""
        kind = "the kernel's own driver" if self.inbox else "driver"
        return f"{self.board_id} has firmware {self.firmware} with {kind} {self.driver}"


@check(
    "nic.firmware",
    title="NIC firmware and driver",
    source="/sys/class/infiniband/DEVICE/{fw_ver,board_id}; /sys/module/mlx5_core/version; ETHTOOL_GDRVINFO",
    serving_class=ServingClass.SOFT,
    network=True,
    period_s=60.0,
    fail_for_s=60.0,
    skip=no_ports,
    action=_BURN,
)
def nic_firmware(sources: Sources, profile: NodeProfile, _limits: Limits) -> Iterator[Finding]:
    """Firmware and driver of each card must be in one row of the matrix, and equal on cards of one kind."""
    sources = reading_once(sources)
    newest = _newest_by_board(sources, profile)
    yield from judge_ports(
        profile, lambda port: _judge(port, _card(sources, port), profile, newest), absent="see nic.present"
    )


def _card(sources: Sources, port: NicPort) -> _Card:
    base = f"{INFINIBAND}/{port.device}"
    firmware = _word(sources, f"{base}/fw_ver")
    compared(firmware)  # proven to be a version before anything rests on it
    board_id = _word(sources, f"{base}/board_id")
    if _PSID.fullmatch(board_id) is None:
        raise ParseError(f"/{base}/board_id reads {board_id[:40]!r}, not a PSID like MT_0000000838")
    version, inbox = _driver_version(sources, port)
    return _Card(firmware, board_id, version, inbox)


def _driver_version(sources: Sources, port: NicPort) -> tuple[str, bool]:
    """The driver's version, and whether it is the kernel's own."""
    try:
        return _word(sources, "sys/module/mlx5_core/version"), False
    except DeviceAbsent:
        release = _word(sources, _OSRELEASE)
    if port.netdev is None:
        return release, True
    version = sources.net.driver(port.netdev).version
    if not version:
        raise ParseError(f"the driver of {port.netdev} tells no version")
    return version, version == release


def _judge(port: NicPort, card: _Card, profile: NodeProfile, newest: dict[str, str]) -> Finding:
    matrix, subject = profile.fabric.nic.firmware, subject_of(port)
    problem = _against_image(subject, card, profile)
    if problem is not None:
        return problem
    row = _row(matrix, card.board_id)
    if row is not None:
        problem = _against(subject, card, row)
        if problem is not None:
            return problem
    top = newest.get(card.board_id, card.firmware)
    if compared(card.firmware) < compared(top):
        summary = f"firmware is {card.firmware}, another {card.board_id} of this node has {top}"
        alike = Basis.standard("cards of one kind run one firmware")
        return Finding(subject, Verdict.WARN, summary, card.firmware, top, "", _SAME, basis=alike)
    if row is None and matrix:
        summary = f"{card.words()}: no row of the matrix is about this card"
        return Finding(subject, Verdict.WARN, summary, card.board_id, "a row", "", _ROW, basis=_MATRIX)
    note = "" if matrix else "; the profile has no matrix to compare it with"
    want = row.firmware_min if row is not None else None
    return Finding(subject, Verdict.PASS, f"{card.words()}{note}", card.firmware, want, basis=_MATRIX)


def _against_image(subject: str, card: _Card, profile: NodeProfile) -> Finding | None:
    """Another version than that of the image that the profile names for this card."""
    for number, image in enumerate(profile.fabric.nic.images):
        have, want = compared(card.firmware), compared(image.version)
        if image.board_id != card.board_id or have == want or (have > want and image.match == "least"):
            continue
        action = _NEWER if have > want else _BURN
        summary = f"{card.words()}: the profile asks for {image.version}"
        basis = Basis.profile(f"fabric.nic.images.{number}.version")
        return Finding(subject, Verdict.FAIL, summary, card.firmware, image.version, "", action, basis=basis)
    return None


def _row(matrix: list[NicPair], board_id: str) -> NicPair | None:
    """The row about a card: its own, else that of every card."""
    own = [row for row in matrix if row.board_id == board_id]
    return next(iter(own or [row for row in matrix if row.board_id == "*"]), None)


def _against(subject: str, card: _Card, row: NicPair) -> Finding | None:
    if compared(card.firmware) < compared(row.firmware_min):
        summary = f"{card.words()}: firmware must be {row.firmware_min} or newer"
        return Finding(
            subject, Verdict.FAIL, summary, card.firmware, row.firmware_min, "", _BURN, basis=_MATRIX
        )
    if row.driver_min is None and row.driver_max is None:
        return None
    if card.inbox:
        summary = f"{card.words()}: the matrix names driver versions and a kernel release compares with none"
        want = row.driver_min or f"up to {row.driver_max}"
        return Finding(subject, Verdict.WARN, summary, card.driver, want, "", _INBOX, basis=_MATRIX)
    if row.driver_min is not None and compared(card.driver) < compared(row.driver_min):
        summary = f"{card.words()}: that firmware needs driver {row.driver_min} or newer"
        return Finding(
            subject, Verdict.FAIL, summary, card.driver, row.driver_min, "", _DRIVER, basis=_MATRIX
        )
    if row.driver_max is not None and compared(card.driver) >= compared(row.driver_max):
        summary = f"{card.words()}: driver {row.driver_max} and newer want a newer firmware"
        want = f"below {row.driver_max}"
        return Finding(subject, Verdict.FAIL, summary, card.driver, want, "", _BURN, basis=_MATRIX)
    return None


def _newest_by_board(sources: Sources, profile: NodeProfile) -> dict[str, str]:
    """The newest firmware that any data port's card of each kind runs."""
    newest: dict[str, str] = {}
    for port in profile.fabric.ports:
        try:
            card = _card(sources, port)
        except SourceError:
            continue  # that port's own finding says so
        known = newest.get(card.board_id)
        if known is None or compared(card.firmware) > compared(known):
            newest[card.board_id] = card.firmware
    return newest


def _word(sources: Sources, path: str) -> str:
    text = sources.tree.text(path)
    if not text or len(text) > 64 or not text.isprintable():
        raise ParseError(f"/{path} reads {text[:40]!r}, not one word")
    return text
