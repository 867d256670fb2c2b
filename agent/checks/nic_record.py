"""What root read of the NICs' NV configuration, as `nodegate-apply` leaves it in /run. Pure but for one read.

mlxconfig needs root, so the agent reads the record of the unit that runs it: at boot, when the role is
applied, and every quarter of an hour. One of another boot, an old or a garbled one proves nothing.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from agent.errors import ParseError, SourceUnavailable
from agent.sources import Sources

RECORD = "run/nodegate-apply/nic.json"
_BOOT_ID = "proc/sys/kernel/random/boot_id"
#: How far a record may lie ahead of this clock: both count from the boot.
_AHEAD_S = 5.0
_NAMED = re.compile(r"(?P<name>.*)\((?P<number>0x[0-9a-fA-F]+|\d+)\)")
NOT_LISTED = "(not listed"
_LONGEST = 160


@dataclass(frozen=True, slots=True)
class Read:
    """One setting of the record."""

    current: str | None
    staged: str | None
    problem: str


def nic_record(sources: Sources, max_age_s: float) -> dict[str, Read]:
    """Settings by name. Raises DeviceAbsent, SourceUnavailable (stale), ParseError."""
    text = sources.tree.text(RECORD)
    boot_id = sources.tree.text(_BOOT_ID)
    try:
        document = json.loads(text)
    except ValueError as cause:
        raise ParseError(f"/{RECORD} is no JSON") from cause
    if not isinstance(document, dict) or document.get("schema") != 1 or document.get("name") != "nic":
        raise ParseError(f"/{RECORD} is not what nodegate-apply leaves")
    if document.get("boot_id") != boot_id:
        raise SourceUnavailable(f"/{RECORD} is of another boot: see systemctl status nodegate-apply@nic")
    taken_mono_s = document.get("taken_mono_s")
    if not isinstance(taken_mono_s, int | float) or isinstance(taken_mono_s, bool):
        raise ParseError(f"/{RECORD} does not tell when it was taken")
    age_s = sources.clock.mono_s() - taken_mono_s
    if not -_AHEAD_S <= age_s <= max_age_s:
        raise SourceUnavailable(
            f"/{RECORD} is {age_s:.0f} s old, at most {max_age_s:.0f} s count:"
            " see systemctl status nodegate-apply-check@nic.timer"
        )
    return dict(_settings(document.get("settings")))


def _settings(found: Any) -> list[tuple[str, Read]]:
    if not isinstance(found, list):
        raise ParseError(f"/{RECORD} has no list of settings")
    return [_setting(one) for one in found]


def _setting(one: Any) -> tuple[str, Read]:
    if not isinstance(one, dict) or not isinstance(one.get("name"), str):
        raise ParseError(f"/{RECORD} has a setting without a name")
    values = [one.get(key) for key in ("current", "staged")]
    if any(value is not None and not isinstance(value, str) for value in values):
        raise ParseError(f"/{RECORD}: {one['name'][:40]} has a value that is no text")
    return one["name"], Read(values[0], values[1], " ".join(str(one.get("problem") or "").split())[:_LONGEST])


def same_value(seen: str, want: bool | int | str) -> bool:
    """Whether `ETH(2)` is ETH, `True(1)` is true and `0x10` is 16, as the role compares them."""
    match = _NAMED.fullmatch(seen.strip())
    name, number = (match["name"], match["number"]) if match else (seen.strip(), seen.strip())
    asked = str(want).strip()
    if asked.casefold() in (name.casefold(), name.lstrip("_").casefold()):
        return True
    value = {"true": 1, "false": 0}.get(asked.casefold(), _number(asked))
    return value is not None and value == _number(number)


def _number(text: str) -> int | None:
    try:
        return int(text, 16 if text.lower().startswith("0x") else 10)
    except ValueError:
        return None
