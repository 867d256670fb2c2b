"""Bring NIC firmware to what the profile asks for: look, verify the images, burn, reset if allowed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from .host import Host, HostError
from .nic_firmware import (
    FIELD,
    Card,
    Image,
    Tools,
    find_cards,
    firmware_settings,
    image_problem,
)
from .setting import Report, Setting, settle

#: A card that was reset answers again within this time.
BACK_WITHIN_S = 60.0


def apply_nic_firmware(
    host: Host,
    ports: Sequence[dict[str, Any]],
    images: Sequence[Image],
    *,
    check: bool = False,
    settled: bool = False,
    allow_downgrade: bool = False,
    allow_reset: bool = False,
    query_s: float = 60.0,
) -> dict[str, Any]:
    """Result as Ansible takes it; `needed` names the images that must be copied to the node first."""
    if not images:
        return {**Report().result(), "needed": [], "problems": [], "msg": "no NIC firmware is asked for"}
    try:
        tools = Tools(host, query_s=query_s)
        cards = find_cards(host, tools, ports)
    except HostError as cause:
        return {**Report().result(), "needed": [], "problems": [str(cause)], "msg": str(cause)}
    settings = firmware_settings(host, tools, cards, images, allow_downgrade=allow_downgrade)
    report = settle(settings, check=True, settled=settled)
    needed = _needed(cards, images, report)
    if not report.problems and not check and not any(image.path is None for image in needed):
        report = _burn(tools, settings, needed, report)
        if report.pending and allow_reset and not report.problems:
            report = _reset(tools, cards, settings, report)
    told = _told(report, cards, images)
    needs = [image.board_id for image in needed if image.path is None]
    return {**report.result(), "needed": needs, "problems": report.problems, "msg": told}


def _needed(cards: Sequence[Card], images: Sequence[Image], report: Report) -> list[Image]:
    """Images that some card has to get."""
    boards = {each["field"].rpartition(".")[2] for each in report.drift}
    return [image for image in images if image.board_id in boards and _fits(image, cards)]


def _fits(image: Image, cards: Sequence[Card]) -> bool:
    return any(card.seen.psid == image.board_id for card in cards)


def _burn(tools: Tools, settings: list[Setting], needed: list[Image], before: Report) -> Report:
    """Verify every image before the first card is touched, then burn card by card."""
    problems = [problem for image in needed if (problem := image_problem(tools, image))]
    if problems:
        before.problems += [f"{problem}; nothing was burned" for problem in problems]
        before.changed = False
        return before
    return settle(settings)


def _reset(tools: Tools, cards: Sequence[Card], settings: list[Setting], before: Report) -> Report:
    """Load what is burned; a reset that the card or platform refuses leaves it to a reboot."""
    waiting = {name.split(" ", 1)[0] for name in before.pending}
    for card in cards:
        if card.bdf not in waiting:
            continue
        try:
            tools.reset(card.bdf)
        except HostError as cause:
            card.problem = f"not reset, the next reboot loads it: {cause}"
        try:
            card.seen = _back(tools, card.bdf)
        except HostError as cause:
            before.problems.append(
                f"{card.bdf} (fabric.nic.images): does not answer after its reset: {cause}"
            )
            return before
    after = settle(settings, check=True)
    before.pending, before.records, before.changed = after.pending, after.records, True
    before.problems += after.problems
    before.problems += [
        f"{each['name']} ({each['field']}): reads {each['before']} after the reset, not {each['after']}"
        for each in after.drift
    ]
    return before


def _back(tools: Tools, bdf: str) -> Any:
    deadline = time.monotonic() + BACK_WITHIN_S
    while True:
        try:
            return tools.query(bdf)
        except HostError:
            if time.monotonic() >= deadline:
                raise
        time.sleep(1.0)


def _told(report: Report, cards: Sequence[Card], images: Sequence[Image]) -> str:
    """One line: what is wrong, else what waits, else that all is well; and what has no counterpart."""
    if report.problems:
        return "; ".join(report.problems)
    lines = [f"{each} waits for a reset or reboot" for each in report.pending]
    lines += [f"{card.bdf}: {card.problem}" for card in cards if card.problem]
    boards = {image.board_id for image in images}
    lines += [
        f"{card.bdf}: {FIELD} has no image for its PSID {card.seen.psid}, it has {card.seen.version}"
        for card in cards
        if card.seen.psid not in boards
    ]
    lines += [f"no card has the PSID {image.board_id}" for image in images if not _fits(image, cards)]
    return "; ".join(lines) or f"firmware of {len(cards)} cards is as the profile asks"
