"""What a fleet command needs of each host's profile, remembered for as long as its layers do not change.

To merge and validate a profile costs some milliseconds; for a thousand that is longer than asking them all.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import agent
from agent import __version__
from agent.errors import ConfigError

if TYPE_CHECKING:
    from agent.node_profile import NodeProfile
    from agent.profile_tree import Table

FORMAT = 1
#: Files of the package that a profile's meaning depends on, besides the layers of the site.
_MEANING = ("profiles/*.yaml", "launch/presets/*.yaml", "*.py", "launch/*.py")


@dataclass(frozen=True)
class EngineFacts:
    """One engine of a host's profile; `members`: nodes of its group by rank, empty without a group."""

    name: str
    rank: int = 0
    members: tuple[str, ...] = ()


@dataclass(frozen=True)
class ProfileFacts:
    """Of one host's profile; `fault` says why there is nothing else."""

    node: str = ""
    api_host: str = ""
    api_port: int = 9470
    mode: str = ""
    hash: str = ""
    engines: tuple[EngineFacts, ...] = ()
    fault: str = ""


class FactsStore:
    """Facts of the hosts of one folder of profiles; a file of the user's cache remembers them."""

    def __init__(self, folder: Path, cache: Path | None = None) -> None:
        """Read what is remembered; what cannot be read is worked out anew."""
        self.folder = folder
        name = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]
        self._file = (cache or cache_folder()) / f"profiles-{name}.json"
        self._meaning = _meaning()
        self._known = self._read()
        self._changed = False
        self._layers: dict[Path, Table] = {}

    def facts(self, host: str, groups: Sequence[str]) -> ProfileFacts:
        """The facts of a host; `groups` lowest first."""
        from agent.provision.layers import layer_files

        try:
            layers = layer_files(self.folder, host, groups)
        except ConfigError as fault:
            return ProfileFacts(fault=str(fault))
        state = [[str(file), status.st_mtime_ns, status.st_size] for file, status in layers]
        known = self._known.get(host)
        if known is None or known["state"] != state:
            known = {"state": state, "facts": asdict(self._worked_out([file for file, _ in layers]))}
            self._known[host], self._changed = known, True
        return _from_plain(known["facts"])

    def _worked_out(self, layers: Sequence[Path]) -> ProfileFacts:
        from agent.profile_loader import load_profile

        try:
            loaded = load_profile(layers[-1], overlays=layers[:-1], read=self._layer)
        except ConfigError as fault:
            return ProfileFacts(fault=str(fault))
        return facts_of(loaded.profile, loaded.hash)

    def _layer(self, file: Path, name: str) -> Table:
        """A layer that more than one host has is read once."""
        from agent.profile_yaml import read_layer

        if file not in self._layers:
            self._layers[file] = read_layer(file, name)
        return self._layers[file]

    def save(self) -> None:
        """Remember; a cache that cannot be written costs time, nothing else."""
        if not self._changed:
            return
        beside = self._file.with_suffix(f".{os.getpid()}")
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            beside.write_text(json.dumps({"meaning": self._meaning, "hosts": self._known}))
            beside.replace(self._file)
        except OSError:
            beside.unlink(missing_ok=True)
        self._changed = False

    def _read(self) -> dict[str, Any]:
        try:
            found = json.loads(self._file.read_text())
        except (OSError, ValueError):
            return {}
        if not isinstance(found, dict) or found.get("meaning") != self._meaning:
            return {}
        hosts = found.get("hosts")
        return hosts if isinstance(hosts, dict) and all(map(_whole, hosts.values())) else {}


def cache_folder() -> Path:
    """The user's own cache of fleet commands."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "nodegate" / "fleet"


def _meaning() -> list[Any]:
    """What says that the same layers still mean the same: release and files of this package."""
    package = Path(agent.__file__).parent
    files = sorted(file for pattern in _MEANING for file in package.glob(pattern))
    found = ((file, file.stat()) for file in files)
    states = "".join(f"{file}{status.st_mtime_ns}{status.st_size}" for file, status in found)
    return [FORMAT, __version__, hashlib.sha256(states.encode()).hexdigest()]


def facts_of(profile: NodeProfile, profile_hash: str) -> ProfileFacts:
    """Of a profile."""
    engines = tuple(
        EngineFacts(name)
        if engine.group is None
        else EngineFacts(name, engine.group.rank, tuple(member.node for member in engine.group.members))
        for name, engine in profile.engines.items()
    )
    api = profile.api
    return ProfileFacts(profile.node or "", api.host, api.port, profile.mode.value, profile_hash, engines)


def _whole(entry: Any) -> bool:
    """Whether an entry of the file is one of ours."""
    if not isinstance(entry, dict) or not isinstance(entry.get("state"), list):
        return False
    try:
        _from_plain(entry["facts"])
    except (KeyError, TypeError):
        return False
    return True


def _from_plain(data: Mapping[str, Any]) -> ProfileFacts:
    engines = tuple(EngineFacts(one["name"], one["rank"], tuple(one["members"])) for one in data["engines"])
    return ProfileFacts(**{**data, "engines": engines})
