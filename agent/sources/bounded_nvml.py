"""NVML for one pass over everything, with a time that all of it may take together."""

from __future__ import annotations

import time
from collections.abc import Sequence

from agent.errors import SourceTimeout
from agent.sources import Nvml
from agent.sources.gpu_reading import GpuIdentity, GpuReading, NvmlGroup, SystemReading


class BoundedNvml:
    """NVML for one pass: after so many seconds in all it answers that there is no time left."""

    def __init__(self, nvml: Nvml, seconds: float) -> None:
        """Begin to count now."""
        self._nvml = nvml
        self._seconds = seconds
        self._until_s = time.monotonic() + seconds

    def _in_time(self) -> Nvml:
        if time.monotonic() > self._until_s:
            raise SourceTimeout(f"NVML took more than {self._seconds:g} s in all")
        return self._nvml

    def system(self) -> SystemReading:
        """Raises SourceTimeout when the time is up, else what NVML raises."""
        return self._in_time().system()

    def inventory(self) -> Sequence[GpuIdentity]:
        """Raises SourceTimeout when the time is up, else what NVML raises."""
        return self._in_time().inventory()

    def read(self, uuid: str, group: NvmlGroup) -> GpuReading:
        """Raises SourceTimeout when the time is up, else what NVML raises."""
        return self._in_time().read(uuid, group)

    def expect(self, uuids: Sequence[str], group: NvmlGroup) -> None:
        """Raises SourceTimeout when the time is up."""
        self._in_time().expect(uuids, group)
