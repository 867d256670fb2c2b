"""The live NVML source: nvidia-ml-py in a killable child process, with a deadline for every call.

nvml_child.py is the process, nvml_keeper.py keeps one running, nvml_roster.py knows who the GPUs are,
nvml_share.py lets checks that run at the same time share what they read.
"""

from __future__ import annotations

import copy
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from agent.errors import DeviceAbsent, DeviceLost, ParseError, SourceError
from agent.sources import Nvml
from agent.sources.gpu_reading import (
    GpuIdentity,
    GpuReading,
    NvmlGroup,
    NvmlRefusal,
    SystemReading,
)
from agent.sources.nvml_answers import gpu_identity, refusals, system_reading, typed_values
from agent.sources.nvml_ask import Answer, Ask, Fault, about_gpu, about_node
from agent.sources.nvml_keeper import NvmlKeeper
from agent.sources.nvml_peers import pair_rest, read_peers
from agent.sources.nvml_pipe import Reaper, reap
from agent.sources.nvml_roster import Roster
from agent.sources.nvml_share import SharedReads

#: -P: a file of the working directory must not shadow a module of this privileged process.
CHILD_ARGV = (sys.executable, "-P", "-m", "agent.sources.nvml_child")
#: Checks that read the same values within this time share one reading: those that run at the same beat, of
#: which the last comes to its turn when NVML has answered all others. Far below every check's period.
SHARE_S = 0.2

Key = tuple[str, NvmlGroup]
#: Keys of what is shared besides groups of values: the system and the inventory.
_SYSTEM, _INVENTORY = "system", "inventory"


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
        share_s: float = SHARE_S,
        library: str | None = None,
        env: Mapping[str, str] | None = None,
        argv: Sequence[str] = CHILD_ARGV,
        reaper: Reaper = reap,
        mono_s: Callable[[], float] = boottime_s,
    ) -> None:
        """Start nothing yet: the first call does.

        `deadline_s` is for each call (about one GPU, or the node), `start_deadline_s` for the start with
        nvmlInit, which takes seconds where nothing keeps the driver's state. What was read less than
        `share_s` ago is not read again. `library` is loaded instead of libnvidia-ml.so.1; `env` is added to
        the environment. `argv`, `reaper` and `mono_s` are for tests.
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
        self._shares = share_s > 0
        self._groups: SharedReads[Key] = SharedReads(share_s, mono_s)
        self._node: SharedReads[str] = SharedReads(share_s, mono_s)
        self._roster_lock = threading.Lock()
        self._roster = Roster()

    def system(self) -> SystemReading:
        """Driver and library versions and the device count."""
        reading: SystemReading = self._shared_of_node(_SYSTEM, self._read_system)
        return reading

    def inventory(self) -> Sequence[GpuIdentity]:
        """Every GPU in PCI bus order; a lost, hung or left-out one has `error` and what was known of it."""
        gpus: Sequence[GpuIdentity] = self._shared_of_node(_INVENTORY, self._read_inventory)
        return gpus

    def read(self, uuid: str, group: NvmlGroup) -> GpuReading:
        """One group of values of one GPU."""
        reading = self.read_many(uuid, [group])[group]
        if isinstance(reading, SourceError):
            raise reading
        return reading

    def read_many(self, uuid: str, groups: Sequence[NvmlGroup]) -> dict[NvmlGroup, GpuReading | SourceError]:
        """Some groups of values of one GPU in one go, each with the error that `read` would raise.

        It costs fewer switches between two processes than reading one by one; each has its own deadline.
        """
        answers = self._groups.get([(uuid, group) for group in groups], self._read_groups)
        return {group: _reading(uuid, group, answer) for (_, group), answer in answers.items()}

    def expect(self, uuids: Sequence[str], group: NvmlGroup) -> None:
        """Read the group of all these GPUs in one go; each `read` that follows shares its part.

        One by one each GPU would cost two switches between processes. Pairs of GPUs are asked one by one.
        """
        if self._shares and group is not NvmlGroup.PEERS:
            self._groups.get([(uuid, group) for uuid in uuids], self._read_groups)

    def fresh(self) -> None:
        """Hand out nothing that was read before now: something has happened that a new reading must show."""
        self._groups.drop()
        self._node.drop()

    def close(self) -> None:
        """End the child; a call in progress and all later ones fail."""
        self._keeper.close()

    def _shared_of_node(self, key: str, read: Callable[[], Answer]) -> Any:
        answer = self._node.get([key], lambda _: {key: read()})[key]
        if answer.error is not None:
            raise _own(answer.error)
        return answer.value

    def _read_system(self) -> Answer:
        answer = self._keeper.ask_many([about_node("system", "the system")])[0]
        if answer.error is not None:
            return answer
        try:
            return Answer(answer.at_s, system_reading(answer.value))
        except ParseError as error:
            self._keeper.distrust()
            return Answer(answer.at_s, error=error)

    def _read_inventory(self) -> Answer:
        system = self._read_system()
        if system.error is not None:
            return system
        count = system.value.device_count
        with self._roster_lock:
            before = [self._roster.at(index, count) for index in range(count)]
        answers = self._keeper.ask_many([_identity_ask(index, gpu) for index, gpu in enumerate(before)])
        try:
            seen = [_identity(index, *pair) for index, pair in enumerate(zip(before, answers, strict=True))]
        except ParseError as error:
            self._keeper.distrust()
            return Answer(system.at_s, error=error)
        except SourceError as error:
            return Answer(system.at_s, error=error)
        with self._roster_lock:
            return Answer(system.at_s, self._roster.merge(seen))

    def _read_groups(self, keys: Sequence[Key]) -> dict[Key, Answer]:
        """Values of some groups as typed mappings; asked together, save pairs of GPUs, which take long."""
        answers: dict[Key, Answer] = {}
        asks: dict[Key, Ask] = {}
        for uuid, group in keys:
            try:
                gpu = self._known(uuid)
            except SourceError as error:
                answers[uuid, group] = Answer(self._mono_s(), error=error)
                continue
            if group is not NvmlGroup.PEERS:
                args = {"uuid": uuid, "pci_bus_id": gpu.pci_bus_id, "group": str(group)}
                asks[uuid, group] = about_gpu(uuid, "read", f"{group} of {uuid}", args, group)
        for key, answer in zip(asks, self._keeper.ask_many(list(asks.values())), strict=True):
            answers[key] = self._typed(key, answer)
        for key in keys:
            if key not in answers:
                answers[key] = self._typed(key, self._read_peers(key[0]))
        return answers

    def _read_peers(self, uuid: str) -> Answer:
        at_s = self._mono_s()
        own = self._keeper.left_alone(Ask("pair", "", {}, (uuid,), (pair_rest(uuid),)))
        if own is not None:
            return Answer(at_s, error=own)
        try:
            return read_peers(self._known(uuid), self.inventory(), self._keeper.ask_many, at_s)
        except ParseError as error:
            self._keeper.distrust()
            return Answer(at_s, error=error)
        except SourceError as error:
            return Answer(at_s, error=error)

    def _typed(self, key: Key, answer: Answer) -> Answer:
        """The answer with its values checked, or with the SourceError that tells what failed."""
        uuid, group = key
        if isinstance(answer.error, Fault):
            return Answer(answer.at_s, error=self._not_there(uuid, answer.error))
        if answer.error is not None:
            return answer
        try:
            values = typed_values(group, answer.value)
        except ParseError as error:
            self._keeper.distrust()
            return Answer(answer.at_s, error=error)
        self._keeper.heard(refusals(values))
        return Answer(answer.at_s, values)

    def _not_there(self, uuid: str, fault: Fault) -> SourceError:
        if fault.name != "NOT_FOUND":
            return fault.error
        with self._roster_lock:
            gpu = self._roster.get(uuid)
        return DeviceLost(f"{uuid} was at {gpu.pci_bus_id if gpu else '?'} and NVML no longer finds it there")

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


def _reading(uuid: str, group: NvmlGroup, answer: Answer) -> GpuReading | SourceError:
    if answer.error is not None:
        return _own(answer.error)
    return GpuReading(uuid, group, answer.at_s, answer.value)


def _own(error: Fault | SourceError) -> SourceError:
    """An error of the caller's own: a raised one collects the traceback of whoever raises it."""
    return copy.copy(error.error if isinstance(error, Fault) else error)


def _identity_ask(index: int, before: GpuIdentity | None) -> Ask:
    name = before.uuid if before and before.uuid else f"GPU {index}"
    return about_gpu(name, "identity", f"the identity of {name}", {"index": index})


def _identity(index: int, before: GpuIdentity | None, answer: Answer) -> GpuIdentity:
    """Who has this NVML index; with an error what was known of it before, if anything."""
    if isinstance(answer.error, Fault):
        return replace(before or GpuIdentity(index=index, uuid=None), error=answer.error.name)
    if answer.error is not None:
        raise answer.error
    return gpu_identity(index, answer.value)
