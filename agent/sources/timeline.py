"""Timeline: a captured node's values at any moment of a scenario. Pure; all is validated when it is built.

Values are kept in units that are read as one: NVML's system part, one GPU, one interface, one file, one entry
of host.json, one Redfish document.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from agent.errors import ConfigError
from agent.sources.documents import one_problem
from agent.sources.fs import is_plain_path
from agent.sources.node_folder import NodeFolder
from agent.sources.node_model import GPU, NETDEV, SYSTEM, is_refused
from agent.sources.node_model_host import FILE, HOST_PARTS, REDFISH, REFUSED, plain_redfish_path
from agent.sources.overlay import PathProblem, merged, plain_copy, touches
from agent.sources.scenario import Change, Edit, Scenario

Unit = tuple[str, ...]
Keys = tuple[str, ...]
SYSTEM_UNIT: Unit = ("nvml", "system")
#: Value of a folder's or a link's unit that is there; None when it is gone.
THERE = True


@dataclass(frozen=True, slots=True)
class _Moving:
    """A value on its way: a ramp to `target` over `ramp_s`, or growth of `per_s`."""

    at_s: float
    start: int | float
    target: int | float = 0
    ramp_s: float = 0.0
    per_s: float | None = None

    def value(self, elapsed_s: float) -> int | float:
        past_s = elapsed_s - self.at_s
        if self.per_s is not None:
            moved = self.start + self.per_s * past_s
        else:
            moved = self.start + (self.target - self.start) * min(1.0, past_s / self.ramp_s)
        whole = isinstance(self.start, int) and (self.per_s is not None or isinstance(self.target, int))
        return int(moved // 1) if whole else moved


class Timeline:
    """Captured values with a scenario over them."""

    def __init__(self, folder: NodeFolder, scenario: Scenario) -> None:
        """Check every edit against the capture. Raises ConfigError naming the scenario file and the key."""
        self._base = base_units(folder)
        self._netdevs = sorted(folder.net or {}, key=len, reverse=True)
        self._edits: dict[Unit, list[tuple[Edit, Keys]]] = {}
        for edit in scenario.edits:
            try:
                unit, keys = self.locate(edit.path)
                keys += edit.below
                self._edits.setdefault(unit, []).append((edit, keys))
                self._validate(unit)
            except PathProblem as cause:
                raise ConfigError(f"{edit.key}: {cause}", where=scenario.where) from cause

    def edited_files(self) -> list[str]:
        """Paths of files and folders that the scenario changes at some time."""
        return [unit[1] for unit in self._edits if unit[0] == "files"]

    def value(self, unit: Unit, elapsed_s: float) -> Any:
        """A private copy of a unit's value, `elapsed_s` seconds into the scenario; None when it is gone."""
        return plain_copy(self._fold(unit, elapsed_s))

    def part(self, unit: Unit, elapsed_s: float, key: str) -> Any:
        """A private copy of one part of a unit; the whole when that is gone or refused, None without it."""
        state = self._fold(unit, elapsed_s)
        return plain_copy(state.get(key) if isinstance(state, dict) and not is_refused(state) else state)

    def locate(self, path: str) -> tuple[Unit, Keys]:
        """The unit that a path is in, and the keys below it."""
        kind, colon, rest = path.partition(":")
        if colon and kind in HOST_PARTS:
            return (("host", kind) if kind == "clock" else ("host", kind, rest)), ()
        if colon and kind == "bmc":
            service, _, document = rest.partition(":")
            if ("bmc", service) not in self._base:
                raise PathProblem("there is no such Redfish service in this capture")
            return ("bmc", service, plain_redfish_path(document)) if document else ("bmc", service), ()
        if "/" in path:
            if not is_plain_path(path):
                raise PathProblem("is not a path under the root; write it without a leading slash")
            return ("files", path), ()
        parts = path.split(".")
        if parts[0] == "net":
            rest = path[len("net.") :]
            for netdev in self._netdevs:
                if rest == netdev or rest.startswith(f"{netdev}."):
                    keys = rest[len(netdev) + 1 :]
                    return ("net", netdev), tuple(keys.split(".")) if keys else ()
            raise PathProblem("there is no such interface in this capture")
        length = 2 if parts[:2] == list(SYSTEM_UNIT) else 3
        unit = tuple(parts[:length])
        if parts[0] != "nvml" or unit not in self._base:
            raise PathProblem(
                "there is no such path; use nvml.system, nvml.gpus.N, net.NAME, a file or KIND:NAME"
            )
        return unit, tuple(parts[length:])

    def _fold(self, unit: Unit, elapsed_s: float) -> Any:
        """The unit's value, not to be changed: where nothing was edited it is the captured one itself."""
        state = self._base.get(unit)
        moving: dict[Keys, _Moving] = {}
        for edit, keys in self._edits.get(unit, ()):
            if edit.at_s > elapsed_s:
                break
            if edit.change in (Change.RAMP, Change.RATE):
                state = _settle(state, moving, edit.at_s)
                moving[keys] = _start(edit, _get(state, keys))
                continue
            if edit.change is Change.MERGE:
                state = merged(_settle(state, moving, edit.at_s), edit.value)
                moving = {held: how for held, how in moving.items() if not touches(edit.value, held)}
                continue
            moving = {held: how for held, how in moving.items() if held[: len(keys)] != keys}
            value = self._captured(unit, keys) if edit.change is Change.RESET else edit.value
            state = _put(state, keys, value)
        return _settle(state, moving, elapsed_s)

    def _captured(self, unit: Unit, keys: Keys) -> Any:
        return _get(self._base.get(unit), keys)

    def _validate(self, unit: Unit) -> None:
        """Check the unit as its newest edit leaves it."""
        edit, keys = self._edits[unit][-1]
        if unit[0] == "files":
            _validate_file(edit, self._base.get(unit))
            self._fold(unit, edit.at_s)
            return
        if keys[:1] == ("ethtool",) and len(keys) == 2:
            _get(self._base[unit], keys)  # any name passes the schema, so a misspelt one would too
        data = self._fold(unit, edit.at_s + edit.ramp_s)
        if data is None and unit != SYSTEM_UNIT:  # the GPU, the interface or the entry is gone
            return
        if unit[0] == "bmc" and len(unit) == 2 and data is THERE:
            return
        try:
            _adapter(unit).validate_python(data)
        except ValidationError as error:
            raise PathProblem(one_problem(error, data, "").problem) from error


def _host_units(folder: NodeFolder) -> dict[Unit, Any]:
    """The captured entries of host.json and the documents of bmc.json."""
    units: dict[Unit, Any] = {}
    for part, entries in (folder.host or {}).items():
        if part == "clock":
            units["host", part] = entries
        elif entries is not None and not is_refused(entries):
            units.update({("host", part, name): entry for name, entry in entries.items()})
    for service, documents in (folder.bmc or {}).items():
        units["bmc", service] = documents if is_refused(documents) else THERE
        if not is_refused(documents):
            units.update({("bmc", service, plain_redfish_path(path)): d for path, d in documents.items()})
    return units


def base_units(folder: NodeFolder) -> dict[Unit, Any]:
    """The captured values by unit."""
    units: dict[Unit, Any] = {SYSTEM_UNIT: folder.nvml["system"]}
    units.update({("nvml", "gpus", str(i)): gpu for i, gpu in enumerate(folder.nvml["gpus"])})
    units.update({("net", name): netdev for name, netdev in (folder.net or {}).items()})
    for path in [*(folder.files or {}), *folder.links]:
        parents = path.split("/")[:-1]
        units.update({("files", "/".join(parents[: i + 1])): THERE for i in range(len(parents))})
    units.update({("files", path): THERE for path in folder.links})
    units.update({("files", path): text for path, text in (folder.files or {}).items()})
    return units | _host_units(folder)


def _adapter(unit: Unit) -> TypeAdapter[Any]:
    if unit == SYSTEM_UNIT:
        return SYSTEM
    if unit[0] == "host":
        return HOST_PARTS[unit[1]]
    if unit[0] == "bmc":
        return REDFISH if len(unit) == 3 else REFUSED
    return GPU if unit[0] == "nvml" else NETDEV


def _validate_file(edit: Edit, base: object) -> None:
    known = isinstance(edit.value, str | dict | None)
    if edit.change is Change.RAMP or (edit.change is Change.SET and not known):
        raise PathProblem("a file is set under `files`, to text, {hex: ...}, {error: NAME} or null")
    if edit.change is not Change.SET or edit.value is None:
        return
    if base is THERE:
        raise PathProblem("is a folder or a link in this capture; only null (gone) can be set")
    try:
        FILE.validate_python(edit.value)
    except ValidationError as error:
        raise PathProblem(one_problem(error, edit.value, "").problem) from error


def _start(edit: Edit, now: object) -> _Moving:
    """The movement that begins with an edit."""
    if isinstance(now, str):
        now = _number_in_file(now)
    if isinstance(now, bool) or not isinstance(now, int | float):
        raise PathProblem(f"only a number can move, and this is {_short(now)}")
    if edit.change is Change.RATE:
        return _Moving(edit.at_s, now, per_s=edit.value)
    if isinstance(edit.value, bool) or not isinstance(edit.value, int | float):
        raise PathProblem(f"ramp_s needs a number to move to, and this is {_short(edit.value)}")
    return _Moving(edit.at_s, now, target=edit.value, ramp_s=edit.ramp_s)


def _number_in_file(text: str) -> object:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else text


def _short(value: object) -> str:
    return repr(value)[:40]


def _settle(state: Any, moving: Mapping[Keys, _Moving], elapsed_s: float) -> Any:
    for keys, how in moving.items():
        value: int | float | str = how.value(elapsed_s)
        state = _put(state, keys, str(value) if not keys else value)  # without keys it is a file's text
    return state


def _get(value: Any, keys: Keys) -> Any:
    for i, key in enumerate(keys):
        if is_refused(value):
            where = ".".join(keys[:i]) or "the whole"
            raise PathProblem(f"{where} is refused ({value['error']}) at that time")
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif isinstance(value, list) and key.isascii() and key.isdecimal() and int(key) < len(value):
            value = value[int(key)]
        else:
            raise PathProblem(f"there is no {key!r} in this capture")
    return value


def _put(state: Any, keys: Keys, value: Any) -> Any:
    """The state with one value replaced; a new key is allowed here, the schema judges it afterwards.

    Only what lies on the way is copied, the rest is shared with the state.
    """
    if not keys:
        return value
    parent = _get(state, keys[:-1])
    if is_refused(parent) or not isinstance(parent, dict | list):
        _get(state, keys)
        raise PathProblem(f"there is no {keys[-1]!r} in this capture")
    if isinstance(parent, list):
        _get(state, keys)
    return _replaced(state, keys, value)


def _replaced(state: Any, keys: Keys, value: Any) -> Any:
    """A copy of the way to a value that is known to be there, with that value replaced."""
    inner = value if len(keys) == 1 else _replaced(_get(state, keys[:1]), keys[1:], value)
    if isinstance(state, list):
        place = int(keys[0])
        return [*state[:place], inner, *state[place + 1 :]]
    return {**state, keys[0]: inner}
