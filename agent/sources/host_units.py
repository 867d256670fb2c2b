"""What `systemctl show` says of a unit (systemctl(1)): parse its KEY=VALUE lines. Pure."""

from __future__ import annotations

from agent.errors import ParseError
from agent.sources.host_reading import UnitState

PROPERTIES = ("LoadState", "ActiveState", "SubState", "NRestarts", "ActiveEnterTimestampMonotonic")


def parse_unit(name: str, text: str, asleep_s: float) -> UnitState:
    """The state in the command's output; `asleep_s` is what CLOCK_BOOTTIME is ahead of systemd's clock.

    NRestarts is of services alone; the time is 0 for a unit that has never been active. Raises ParseError.
    """
    values = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    for key in ("LoadState", "ActiveState", "SubState"):
        if not values.get(key):
            raise ParseError(f"systemctl show {name} says nothing of {key}")
    active_us = _number(name, values, "ActiveEnterTimestampMonotonic")
    return UnitState(
        name=name,
        load_state=values["LoadState"],
        active_state=values["ActiveState"],
        sub_state=values["SubState"],
        restarts=_number(name, values, "NRestarts"),
        since_mono_s=active_us / 1e6 + asleep_s if active_us else None,
    )


def _number(name: str, values: dict[str, str], key: str) -> int:
    text = values.get(key) or "0"
    if not (text.isascii() and text.isdigit() and len(text) <= 20):
        raise ParseError(f"systemctl show {name}: {key} is {text[:40]!r}, not a number")
    return int(text)
