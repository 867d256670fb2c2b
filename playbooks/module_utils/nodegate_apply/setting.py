"""Setting and settle(): one way to make anything so, for every role.

A setting is read, compared with what is wanted, written only if it differs, and read again. Some take effect
at the next boot: they have a staged value beside the current one. The same reading serves check mode and
diff, so that both tell what a run would do.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterable
from typing import Any

from .host import HostError

#: Most of a value that drift tells.
_DRIFT_CHARACTERS = 120


@dataclasses.dataclass
class Setting:
    """One thing that a profile asks for."""

    name: str  # as an operator calls it: "vm.swappiness", "mlx5_0 LINK_TYPE_P1"
    field: str  # the key of the profile: "host.sysctl.vm.swappiness"
    want: str  # what must be read, as text
    read: Callable[[], str | None]  # the current value; None = not there. Raises HostError
    write: Callable[[], None] | None = None  # makes it so; None = nothing that a role can change
    staged: Callable[[], str | None] | None = None  # what will be current after the next boot
    advice: str = ""  # what a person does when it cannot be made so
    secret: bool = False  # values are shown nowhere
    opaque: bool = False  # values are long and no one's concern: their size and hash are shown
    #: Whether a value read is the wanted one; unset = the same words.
    same: Callable[[str, str], bool] | None = None
    #: Written after all others have been, once, if any setting of that group was written (reload, restart).
    after: str | None = None
    #: Whether writing it would disturb an engine that serves; unset = it would not.
    disturbs: Callable[[], bool] | None = None

    def is_so(self, value: str | None) -> bool:
        """Whether a value that was read is what is wanted."""
        if value is None:
            return False
        return self.same(value, self.want) if self.same else value.split() == self.want.split()

    def shown(self, value: str | None) -> str:
        """A value as it may be shown."""
        if value is None:
            return "(not there)"
        if self.secret:
            return "(secret)"
        if self.opaque:
            digest = hashlib.sha256(value.encode()).hexdigest()
            return f"{len(value.splitlines())} lines, sha256 {digest[:12]}"
        return value.strip("\n")


@dataclasses.dataclass
class Look:
    """What was read of one setting."""

    current: str | None
    staged: str | None = None
    problem: str = ""


OK, PENDING, DRIFTED, UNREADABLE = "ok", "pending", "drifted", "unreadable"


def state_of(setting: Setting, look: Look) -> str:
    """ok; pending: made so, but the current value changes at the next boot; drifted; unreadable."""
    if look.problem:
        return UNREADABLE
    current = setting.is_so(look.current)
    if setting.staged is None:
        return OK if current else DRIFTED
    if not setting.is_so(look.staged):
        return DRIFTED
    return OK if current else PENDING


@dataclasses.dataclass
class Report:
    """What settle() found and did; `problems` are lines for a person, and mean failure."""

    changed: bool = False
    drift: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    pending: list[str] = dataclasses.field(default_factory=list)
    problems: list[str] = dataclasses.field(default_factory=list)
    before: str = ""
    after: str = ""
    records: list[dict[str, Any]] = dataclasses.field(default_factory=list)

    def result(self) -> dict[str, Any]:
        """As Ansible takes it."""
        return {
            "changed": self.changed,
            "diff": {"before": self.before, "after": self.after},
            "drift": self.drift,
            "pending": self.pending,
            "reboot_required": bool(self.pending),
        }


def settle(
    settings: Iterable[Setting],
    *,
    check: bool = False,
    settled: bool = False,
    groups: dict[str, Callable[[], None]] | None = None,
    free: Callable[[], None] | None = None,
) -> Report:
    """Make every setting so, or with `check` only tell what differs.

    `settled`: the node has been rebooted for it; what still waits for a reboot then is a failure. `groups`:
    what is run once after the settings of that group have been written. `free`: called before something is
    written that disturbs a node that serves; it raises HostError. Nothing is written when a setting cannot be
    read or cannot be changed: half a change is worse than none.
    """
    wanted = list(settings)
    report = Report()
    looks = [_look(setting) for setting in wanted]
    states = [state_of(setting, look) for setting, look in zip(wanted, looks, strict=True)]
    for setting, look, state in zip(wanted, looks, states, strict=True):
        _tell(report, setting, look, state, settled)
    drifted = [s for s, state in zip(wanted, states, strict=True) if state == DRIFTED]
    report.changed = bool(drifted)
    if not check and not report.problems and free is not None:
        _free(report, drifted, free)
    if not check and not report.problems and drifted:
        _write(report, drifted, groups or {})
        looks = _read_back(report, wanted, drifted, looks)
    report.pending = [
        f"{s.name} = {s.shown(s.want)}"
        for s, look in zip(wanted, looks, strict=True)
        if state_of(s, look) == PENDING
    ]
    report.records = [_record(s, look) for s, look in zip(wanted, looks, strict=True)]
    return report


def _free(report: Report, drifted: list[Setting], free: Callable[[], None]) -> None:
    setting = next((one for one in drifted if one.disturbs is not None and one.disturbs()), None)
    if setting is not None:
        try:
            free()
        except HostError as cause:
            report.problems.append(f"{setting.name} ({setting.field}): {cause}")


def _look(setting: Setting) -> Look:
    try:
        current = setting.read()
        return Look(current, setting.staged() if setting.staged else None)
    except HostError as cause:
        return Look(None, None, str(cause))


def _tell(report: Report, setting: Setting, look: Look, state: str, settled: bool) -> None:
    where = f"{setting.name} ({setting.field})"
    if state == UNREADABLE:
        report.problems.append(f"{where}: {look.problem}")
    elif state == PENDING and settled:
        report.problems.append(
            f"{where}: still {setting.shown(look.current)} after the reboot, {setting.shown(setting.want)} is"
            f" staged; {setting.advice or 'the device did not take it: power-cycle the node'}"
        )
    elif state == DRIFTED:
        if setting.write is None:
            report.problems.append(
                f"{where}: is {setting.shown(look.current)}, must be {setting.shown(setting.want)};"
                f" {setting.advice or 'change it by hand, or correct the profile'}"
            )
        seen = look.current if setting.staged is None or not setting.is_so(look.current) else look.staged
        before, after = setting.shown(seen), setting.shown(setting.want)
        told = {"before": _short(before), "after": _short(after)}
        report.drift.append({"name": setting.name, "field": setting.field, **told})
        report.before += _lines(setting.name, before)
        report.after += _lines(setting.name, after)


def _short(value: str) -> str:
    """A value on one line; the diff has all of it."""
    text = " ".join(value.split())
    return text if len(text) <= _DRIFT_CHARACTERS else text[:_DRIFT_CHARACTERS] + " ..."


def _lines(name: str, value: str) -> str:
    """`name: value`; a file's text stands below its name."""
    if "\n" in value:
        return f"{name}:\n" + "".join(f"  {line}\n" for line in value.splitlines())
    return f"{name}: {value}\n"


def _write(report: Report, drifted: list[Setting], groups: dict[str, Callable[[], None]]) -> None:
    """Write each; the first that fails ends it, and says what has been written before."""
    done: list[str] = []
    due: list[str] = []
    for setting in drifted:
        assert setting.write is not None
        try:
            setting.write()
        except HostError as cause:
            report.problems.append(f"{setting.name} ({setting.field}): {cause}{_so_far(done)}")
            break
        done.append(setting.name)
        if setting.after and setting.after not in due:
            due.append(setting.after)
    for name in due:
        try:
            groups[name]()
        except HostError as cause:
            report.problems.append(f"{name}: {cause}{_so_far(done)}")


def _so_far(done: list[str]) -> str:
    return f"; written before: {', '.join(done)}" if done else "; nothing was written"


def _read_back(
    report: Report, wanted: list[Setting], drifted: list[Setting], before: list[Look]
) -> list[Look]:
    """Read everything again: a write may have undone another setting."""
    looks = [_look(setting) for setting in wanted]
    if report.problems:
        return looks
    for setting, look, old in zip(wanted, looks, before, strict=True):
        state = state_of(setting, look)
        where = f"{setting.name} ({setting.field})"
        advice = setting.advice or "find what else sets it, then run again"
        if state == UNREADABLE:
            report.problems.append(f"{where}: cannot be read back: {look.problem}")
        elif state == DRIFTED:
            seen = look.staged if setting.staged and setting.is_so(look.current) else look.current
            was = setting.shown(old.current)
            how = "was set and reads" if setting in drifted else f"was {was} and reads"
            report.problems.append(
                f"{where}: {how} {setting.shown(seen)} afterwards,"
                f" not {setting.shown(setting.want)}; {advice}"
            )
    return looks


def _record(setting: Setting, look: Look) -> dict[str, Any]:
    """What is kept as evidence of this look."""
    return {
        "name": setting.name,
        "field": setting.field,
        "want": setting.shown(setting.want),
        "current": None if look.problem else setting.shown(look.current),
        "staged": None if setting.staged is None or look.problem else setting.shown(look.staged),
        "state": state_of(setting, look),
        "problem": look.problem,
    }
