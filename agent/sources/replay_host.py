"""ReplayHost and ReplayBmc: host.json and bmc.json of a capture, with a scenario's changes over them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from agent.bmc_profile import RedfishEndpoint
from agent.errors import DeviceAbsent, SourceUnavailable
from agent.sources.host_reading import ClockSync, DiskSpace, MountAnswer, Reach, UnitState
from agent.sources.node_folder import NodeFolder
from agent.sources.node_model import is_refused
from agent.sources.node_model_host import plain_redfish_path
from agent.sources.refusals import source_error


class Now(Protocol):
    """The value of one unit of the timeline at this moment; None for what is not there."""

    def __call__(self, *unit: str) -> Any:
        """Look it up."""


class ReplayHost:
    """The captured host; what was not captured is unavailable, never made up."""

    def __init__(self, folder: NodeFolder, now: Now, opened_mono_s: float) -> None:
        """Answer from the folder's host.json as the scenario has changed it until now."""
        self._captured = folder.host or {}
        self._now = now
        self._shift_s = opened_mono_s - folder.meta.captured_mono_s

    def unit(self, name: str) -> UnitState:
        """State of a systemd unit; one that is not in the capture's list does not exist."""
        values = self._entry("units", name)
        if values is None:
            return UnitState(name, "not-found", "inactive", "dead", 0)
        since_mono_s = values.get("since_mono_s")
        moved = None if since_mono_s is None else since_mono_s + self._shift_s
        return UnitState(name, **{**values, "since_mono_s": moved})

    def disk(self, path: str) -> DiskSpace:
        """Room on the file system of a path."""
        values = self._entry("disks", path)
        if values is None:
            raise SourceUnavailable(f"this capture does not tell of the file system of {path}")
        return DiskSpace(**values)

    def mount(self, path: str, marker: str | None = None) -> MountAnswer:
        """Whether the mounted file system answers."""
        values = self._entry("mounts", path)
        if values is None:
            raise SourceUnavailable(f"this capture does not tell of the mount at {path}")
        answer = MountAnswer(**values)
        if marker is not None and answer.answered and answer.marker is None:
            raise SourceUnavailable(f"this capture does not tell whether {path} holds {marker}")
        return answer

    def clock_sync(self) -> ClockSync:
        """Whether the clock is synchronised."""
        values = self._now("host", "clock")
        if values is None:
            raise SourceUnavailable("this capture does not tell of the clock (host.json)")
        if is_refused(values):
            raise source_error(values["error"], "the clock")
        return ClockSync(**values)

    def reach(self, host: str, port: int) -> Reach:
        """Whether a TCP port accepted a connection."""
        values = self._entry("reach", f"{host}:{port}")
        if values is None:
            raise SourceUnavailable(f"this capture does not tell of port {port} of {host}")
        return Reach(**values)

    def _entry(self, part: str, name: str) -> dict[str, Any] | None:
        """One entry of a part; None when the part has no such entry."""
        found: dict[str, Any] | None = self._now("host", part, name)
        if found is None:
            whole = self._captured.get(part)
            if whole is None:
                raise SourceUnavailable(f"this capture has no {part} (host.json)")
            if is_refused(whole):
                raise source_error(whole["error"], part)
        elif is_refused(found):
            raise source_error(found["error"], f"{part} {name}")
        return found


class ReplayBmc:
    """Redfish documents of the capture."""

    def __init__(self, folder: NodeFolder, now: Now) -> None:
        """Answer from the folder's bmc.json as the scenario has changed it until now."""
        self._captured = folder.bmc is not None
        self._now = now

    def get(self, name: str, endpoint: RedfishEndpoint, path: str) -> Mapping[str, Any]:
        """The JSON object at a path; the endpoint is not asked."""
        del endpoint
        if not self._captured:
            raise SourceUnavailable("this capture has no Redfish documents (bmc.json)")
        what = f"{path} of the Redfish service {name}"
        service = self._now("bmc", name)
        if service is None:
            raise SourceUnavailable(f"{what}: this capture has nothing of it")
        if is_refused(service):
            raise source_error(service["error"], what)
        document: dict[str, Any] | None = self._now("bmc", name, plain_redfish_path(path))
        if document is None:
            raise DeviceAbsent(f"{what} is not there")
        if is_refused(document):
            raise source_error(document["error"], what)
        return document
