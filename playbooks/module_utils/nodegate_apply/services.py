"""Units of systemd that must be active now and at every boot, or inactive now and at every boot.

systemctl show (LoadState, ActiveState, UnitFileState) of all units in one call; org.freedesktop.systemd1(5).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable

from .host import Host, HostError
from .setting import Setting
from .shared_look import SharedLook

_RUNS = frozenset({"active", "reloading", "refreshing"})
_RESTS = frozenset({"inactive", "failed"})
#: UnitFileState of a unit that nothing starts at boot although it could be enabled.
_OFF = frozenset({"disabled", "masked", "masked-runtime", "enabled-runtime"})
_ON = frozenset({"enabled", "enabled-runtime"})
#: A start ends in systemd's own time (90 s by default), a stop likewise.
_START_S = 240.0
#: Services that keep the clock, in the order in which one that is installed is taken.
TIME_SERVICES = (
    "chrony.service",
    "chronyd.service",
    "systemd-timesyncd.service",
    "ntpsec.service",
    "ntp.service",
    "ntpd.service",
    "openntpd.service",
)


@dataclasses.dataclass(frozen=True)
class Unit:
    """One unit as systemctl show has it."""

    name: str
    load: str
    active: str
    file: str

    @property
    def runs(self) -> bool:
        """Whether it does its work."""
        return self.active in _RUNS

    @property
    def missing(self) -> bool:
        """Whether there is no such unit."""
        return self.load == "not-found"

    def seen(self, want: str) -> str:
        """`active` or `inactive` if it is so now and at boot, or what is different."""
        if want == "active":
            at_boot = f", {self.file} at boot" if self.file in _OFF else ""
            return ("active" if self.runs else self.active) + at_boot
        at_boot = f", {self.file} at boot" if self.file in _ON else ""
        return ("inactive" if self.active in _RESTS else self.active) + at_boot


class Units:
    """The units that a role looks at."""

    def __init__(self, host: Host, names: Iterable[str]) -> None:
        """Look at these, all at once, when the first is asked for."""
        self._host = host
        self.names = list(dict.fromkeys(names))
        self._look = SharedLook(self._fetch)

    def get(self, name: str, reader: str) -> Unit:
        """One unit, for one reader. Raises HostError."""
        return self._look.get(reader)[name]

    def forget(self) -> None:
        """Something has changed units."""
        self._look.forget()

    def _fetch(self) -> dict[str, Unit]:
        wanted = "LoadState,ActiveState,UnitFileState"
        text = self._host.must(["systemctl", "show", f"--property={wanted}", "--", *self.names])
        blocks = [block for block in text.split("\n\n") if block.strip()]
        if len(blocks) != len(self.names):
            raise HostError(
                f"systemctl show: told of {len(blocks)} units, asked for {len(self.names)};"
                " run systemctl show by hand and see what it says"
            )
        return {name: _unit(name, block) for name, block in zip(self.names, blocks, strict=True)}

    def change(self, *argv: str) -> None:
        """Run systemctl. Raises HostError."""
        try:
            self._host.must(["systemctl", *argv], timeout_s=_START_S)
        finally:
            self.forget()


def _unit(name: str, block: str) -> Unit:
    found = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
    return Unit(
        name, found.get("LoadState", ""), found.get("ActiveState", ""), found.get("UnitFileState", "")
    )


def unit_setting(
    units: Units,
    name: str,
    want: str,
    field: str,
    *,
    coming: Callable[[], bool] = lambda: False,
    remedy: str = "",
) -> Setting:
    """A unit that is active (and starts at boot) or inactive (and does not).

    `coming`: whether a unit that is missing is about to be installed. `remedy`: what to do about one.
    """

    def read() -> str | None:
        unit = units.get(name, f"{field} {name}")
        if unit.missing:
            if want == "inactive":
                return "inactive"
            if coming():
                return None
            what = remedy or "install its package, or correct the profile"
            raise HostError(f"there is no such unit on this node; {what}")
        return unit.seen(want)

    def write() -> None:
        units.forget()
        unit = units.get(name, f"{field} {name} write")
        make_active(units, unit) if want == "active" else make_inactive(units, unit)

    return Setting(f"service {name}", field, want, read, write, advice=f"read journalctl -u {name}")


def make_active(units: Units, unit: Unit) -> None:
    """Start it, and have it started at boot. Raises HostError."""
    if unit.file.startswith("masked"):
        units.change("unmask", unit.name)
    if unit.file in _OFF:
        units.change("enable", unit.name)
    if not unit.runs:
        units.change("start", unit.name)


def make_inactive(units: Units, unit: Unit) -> None:
    """Stop it, and have it started no more. Raises HostError."""
    if unit.file in _ON:
        units.change("disable", unit.name)
    if unit.active not in _RESTS:
        units.change("stop", unit.name)


def time_setting(units: Units, field: str) -> Setting:
    """Some service that keeps the clock runs, now and at boot. `units` holds TIME_SERVICES."""

    def found(reader: str) -> list[Unit]:
        # An alias (chronyd.service of chrony.service) tells the same of the same service.
        return [
            unit
            for name in TIME_SERVICES
            if not (unit := units.get(name, f"{reader} {name}")).missing
            and not unit.file.startswith("masked")
        ]

    def read() -> str:
        there = found(field)
        if not there:
            raise HostError(
                "no time service is installed on this node; install chrony or systemd-timesyncd,"
                " or write `host: {time_sync: false}` into the profile"
            )
        states = [unit.seen("active") for unit in there]
        return "active" if "active" in states else f"{there[0].name} {states[0]}"

    def write() -> None:
        units.forget()
        make_active(units, found(f"{field} write")[0])

    return Setting("time service", field, "active", read, write, advice="read systemctl status of it")
