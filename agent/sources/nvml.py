"""The live NVML source: nvidia-ml-py in a killable child process, with a deadline for every call.

nvml_child.py is the process, nvml_keeper.py keeps one running, nvml_roster.py knows who the GPUs are.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from agent.errors import DeviceAbsent, DeviceLost, ParseError
from agent.sources import Nvml
from agent.sources.gpu_reading import (
    GROUP_FIELDS,
    GpuIdentity,
    GpuReading,
    NvmlGroup,
    NvmlRefusal,
    SystemReading,
)
from agent.sources.nvml_answers import gpu_identity, refusals, system_reading, typed_values
from agent.sources.nvml_keeper import NODE, Fault, NvmlKeeper
from agent.sources.nvml_pipe import Reaper, reap
from agent.sources.nvml_roster import Roster

#: -P: a file of the working directory must not shadow a module of this privileged process.
CHILD_ARGV = (sys.executable, "-P", "-m", "agent.sources.nvml_child")


def boottime_s() -> float:
    """CLOCK_BOOTTIME, the clock of all readings."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class NvmlProcess(Nvml):
    """NVML of this machine; safe to use from many threads."""

    def __init__(
        self,
        *,
        deadline_s: float = 2.0,
        start_deadline_s: float = 20.0,
        library: str | None = None,
        env: Mapping[str, str] | None = None,
        argv: Sequence[str] = CHILD_ARGV,
        reaper: Reaper = reap,
        mono_s: Callable[[], float] = boottime_s,
    ) -> None:
        """Start nothing yet: the first call does.

        `deadline_s` is for each call (about one GPU, or the node), `start_deadline_s` for the start with
        nvmlInit, which takes seconds where nothing keeps the driver's state. `library` is loaded instead of
        libnvidia-ml.so.1; `env` is added to the environment. `argv`, `reaper` and `mono_s` are for tests.
        """
        self._mono_s = mono_s
        self._keeper = NvmlKeeper(
            tuple(argv),
            {**os.environ, **(env or {})},
            library,
            (deadline_s, start_deadline_s),
            reaper,
            mono_s,
        )
        self._roster_lock = threading.Lock()
        self._roster = Roster()

    def system(self) -> SystemReading:
        """Driver and library versions and the device count."""
        try:
            return system_reading(self._keeper.ask(NODE, "system", "the system", {}))
        except Fault as fault:
            raise fault.error from None
        except ParseError:
            self._keeper.distrust()
            raise

    def inventory(self) -> Sequence[GpuIdentity]:
        """Every GPU in PCI bus order; a lost, hung or left-out one has `error` and what was known of it."""
        count = self.system().device_count
        seen = [self._identify(index, count) for index in range(count)]
        with self._roster_lock:
            return self._roster.merge(seen)

    def read(self, uuid: str, group: NvmlGroup) -> GpuReading:
        """One group of values of one GPU."""
        asked_s = self._mono_s()
        gpu = self._known(uuid)
        args = {"uuid": uuid, "pci_bus_id": gpu.pci_bus_id, "group": str(group)}
        try:
            answer = self._keeper.ask(uuid, "read", f"{group} of {uuid}", args)
            values = typed_values(group, GROUP_FIELDS[group], answer)
        except Fault as fault:
            if fault.name == "NOT_FOUND":
                text = f"{uuid} was at {gpu.pci_bus_id} and NVML no longer finds it there"
                raise DeviceLost(text) from None
            raise fault.error from None
        except ParseError:
            self._keeper.distrust()
            raise
        self._keeper.heard(refusals(values))
        return GpuReading(uuid, group, asked_s, values)

    def close(self) -> None:
        """End the child; a call in progress and all later ones fail."""
        self._keeper.close()

    def _identify(self, index: int, count: int) -> GpuIdentity:
        """Who has this NVML index; with an error what was known of it before, if anything."""
        with self._roster_lock:
            before = self._roster.at(index, count)
        name = before.uuid if before and before.uuid else f"GPU {index}"
        try:
            return gpu_identity(
                index, self._keeper.ask(name, "identity", f"the identity of {name}", {"index": index})
            )
        except Fault as fault:
            return replace(before or GpuIdentity(index=index, uuid=None), error=fault.name)
        except ParseError:
            self._keeper.distrust()
            raise

    def _known(self, uuid: str) -> GpuIdentity:
        """The GPU with this UUID, asking NVML who is there if it has not been seen yet."""
        with self._roster_lock:
            gpu = self._roster.get(uuid)
        if gpu is not None:
            return gpu
        gpus = self.inventory()
        with self._roster_lock:
            gpu = self._roster.get(uuid)
        if gpu is not None:
            return gpu
        nameless = next((other for other in gpus if other.uuid is None), None)
        if nameless is None:
            raise DeviceAbsent(f"NVML has no GPU {uuid}")
        error = nameless.error or "UNKNOWN"
        raise NvmlRefusal(error).error(f"GPU {nameless.index}, which may be {uuid}")
