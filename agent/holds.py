"""Holds: what an operator or a fatal fault has decided and a restart must not forget, as one small JSON file.

Every change is written to a new file, fsynced, renamed over the old one and the folder fsynced, so that
SIGKILL or a power cut leaves either the old or the new holds. A file that cannot be read or understood
reads as a maintenance hold: what it held is not known, so nothing may be let in.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Literal

from pydantic import ConfigDict, TypeAdapter, ValidationError

from agent.errors import AgentError, SourceUnavailable
from agent.model import Result, ResultKey, Snapshot

FILE_NAME = "holds.json"
_STRICT = ConfigDict(extra="forbid")
#: A holds file is a few kB; a longer one is not ours, and reading it must not fill the memory.
_MAX_BYTES = 1 << 20


class HoldsError(AgentError):
    """The holds file cannot be written."""


@dataclass(frozen=True)
class Hold:
    """One decision: why, by whom, when (seconds since the epoch) and in which boot."""

    __pydantic_config__ = _STRICT

    reason: str
    who: str
    since_wall_s: float
    boot_id: str


@dataclass(frozen=True)
class ForceOpen:
    """Break-glass for one engine, with its end on both clocks; the monotonic one decides."""

    __pydantic_config__ = _STRICT

    reason: str
    who: str
    since_wall_s: float
    boot_id: str
    until_wall_s: float
    until_mono_s: float


@dataclass(frozen=True)
class Waiver:
    """A check's verdict on one subject does not count until an end time (seconds since the epoch)."""

    __pydantic_config__ = _STRICT

    check: str
    subject: str
    reason: str
    who: str
    since_wall_s: float
    until_wall_s: float

    def active(self, wall_s: float) -> bool:
        """Whether it counts now, by the wall clock: one set back within its time makes it last longer."""
        return self.since_wall_s <= wall_s < self.until_wall_s


@dataclass(frozen=True)
class LogCleared:
    """Up to when the kernel log of a boot has been dealt with: a restarted agent reads all of it again."""

    __pydantic_config__ = _STRICT

    boot_id: str
    up_to_mono_s: float


@dataclass(frozen=True)
class EngineHolds:
    """The holds of one engine's gate; quarantine, drain and force-open end with the boot they were set in."""

    __pydantic_config__ = _STRICT

    quarantine: Hold | None = None
    drain: Hold | None = None
    force_open: ForceOpen | None = None


@dataclass(frozen=True)
class Holds:
    """Everything that is held on a node."""

    __pydantic_config__ = _STRICT

    schema_version: Literal[1] = 1
    maintenance: Hold | None = None
    engines: Mapping[str, EngineHolds] = field(default_factory=dict)
    waivers: tuple[Waiver, ...] = ()
    log_cleared: LogCleared | None = None

    def of_engine(self, engine: str) -> EngineHolds:
        """The holds of one engine."""
        return self.engines.get(engine, EngineHolds())

    def with_engine(self, engine: str, holds: EngineHolds) -> Holds:
        """A copy with other holds of one engine."""
        return replace(self, engines={**self.engines, engine: holds})

    def with_waiver(self, waiver: Waiver, wall_s: float) -> Holds:
        """A copy with one waiver set or replaced, and the ended ones dropped."""
        key = (waiver.check, waiver.subject)
        kept = (w for w in self.waivers if w.active(wall_s) and (w.check, w.subject) != key)
        return replace(self, waivers=tuple(w for w in (*kept, waiver) if w.active(wall_s)))

    def for_boot(self, boot_id: str) -> Holds:
        """What is left of the holds in this boot: only maintenance and waivers outlive a reboot."""
        cleared = self.log_cleared
        return replace(
            self,
            engines={name: _of_boot(holds, boot_id) for name, holds in self.engines.items()},
            log_cleared=cleared if cleared is not None and cleared.boot_id == boot_id else None,
        )


_ADAPTER = TypeAdapter(Holds)


def _of_boot(holds: EngineHolds, boot_id: str) -> EngineHolds:
    """The holds of one engine that were set in this boot."""
    return EngineHolds(
        quarantine=holds.quarantine if holds.quarantine and holds.quarantine.boot_id == boot_id else None,
        drain=holds.drain if holds.drain and holds.drain.boot_id == boot_id else None,
        force_open=holds.force_open if holds.force_open and holds.force_open.boot_id == boot_id else None,
    )


class HoldStore:
    """The holds file of a state folder."""

    def __init__(self, state_dir: Path) -> None:
        """Use `holds.json` in a folder that exists."""
        self.path = state_dir / FILE_NAME

    def load(self, boot_id: str) -> Holds:
        """The holds that count in this boot; never raises: what cannot be read is a maintenance hold."""
        try:
            return self._read().for_boot(boot_id)
        except SourceUnavailable as problem:
            return self._unreadable(str(problem), boot_id)

    def waivers(self) -> tuple[Waiver, ...]:
        """The waivers in the file, ended ones too. Raises SourceUnavailable with what is wrong with it."""
        try:
            return self._read().waivers
        except SourceUnavailable as problem:
            raise SourceUnavailable(f"{self.path} cannot be read ({problem})") from problem

    def _read(self) -> Holds:
        """The file; Holds() for none. Raises SourceUnavailable."""
        try:
            with self.path.open("rb") as file:
                raw = file.read(_MAX_BYTES + 1)
        except FileNotFoundError:
            return Holds()
        except OSError as cause:
            raise SourceUnavailable(f"{cause.strerror or cause}") from cause
        if len(raw) > _MAX_BYTES:
            raise SourceUnavailable(f"longer than {_MAX_BYTES} bytes")
        try:
            return _ADAPTER.validate_json(raw)
        except ValidationError as cause:
            first = cause.errors()[0]
            at = ".".join(str(part) for part in first["loc"])
            raise SourceUnavailable(f"{at}: {first['msg']}" if at else first["msg"]) from cause

    def _unreadable(self, problem: str, boot_id: str) -> Holds:
        """Fail closed: nobody knows what the file held."""
        reason = (
            f"{self.path} cannot be read ({problem}), so what was held is not known; "
            "check the node, then run `nodegate maintenance exit`"
        )
        return Holds(maintenance=Hold(reason, "nodegate", 0.0, boot_id))

    def save(self, holds: Holds) -> None:
        """Replace the file as a whole, on disk before this returns. Raises HoldsError."""
        draft = self.path.with_name(f".{FILE_NAME}.new")
        try:
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(_ADAPTER.dump_json(holds, indent=2) + b"\n")
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self.path)
            _fsync_folder(self.path.parent)
        except OSError as cause:
            raise HoldsError(
                f"{self.path} cannot be written: {cause.strerror or cause}; free space or fix permissions"
            ) from cause


def _fsync_folder(folder: Path) -> None:
    """Make a rename in the folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def apply_waivers(
    snapshot: Snapshot, waivers: Iterable[Waiver], unwaivable: frozenset[str], wall_s: float
) -> Snapshot:
    """The snapshot with the results that active waivers cover marked as waived, and all others as not."""
    covered = {(w.check, w.subject) for w in waivers if w.active(wall_s) and w.check not in unwaivable}
    changed: dict[ResultKey, Result] = {
        key: replace(result, waived=key in covered)
        for key, result in snapshot.results.items()
        if result.waived != (key in covered)
    }
    return replace(snapshot, results={**snapshot.results, **changed}) if changed else snapshot


def as_json(holds: Holds) -> dict[str, object]:
    """Maintenance and waivers for /status; each engine's holds are with its gate."""
    return {
        "maintenance": asdict(holds.maintenance) if holds.maintenance else None,
        "waivers": [asdict(waiver) for waiver in holds.waivers],
    }
