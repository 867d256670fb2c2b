"""Replay: a node folder and a scenario as Sources. Everything that comes out of here is SIMULATED.

A read that would hang on a real node (`{"error": "TIMEOUT"}`) raises SourceTimeout at once: what follows is
the same and nobody need wait for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agent.errors import DeviceAbsent, SourceUnavailable
from agent.sources import (
    Clock,
    DcbInfo,
    DriverInfo,
    KmsgRecord,
    LinkInfo,
    ModuleInfo,
    PauseInfo,
    RingInfo,
    Sources,
)
from agent.sources.clock import ReplayClock
from agent.sources.engine import EngineBoard
from agent.sources.gpu_reading import GpuIdentity, GpuReading, NvmlGroup, NvmlRefusal, SystemReading
from agent.sources.kmsg_records import KmsgLog, event_kinds
from agent.sources.net_events import EVENT_LINK
from agent.sources.node_folder import load_node_folder
from agent.sources.node_model import is_refused
from agent.sources.redfish import RedfishClient
from agent.sources.refusals import source_error
from agent.sources.replay_host import ReplayBmc, ReplayHost
from agent.sources.replay_live import live_host, live_tree
from agent.sources.replay_stage import Stage
from agent.sources.replay_tree import ReplayTree
from agent.sources.scenario import NO_SCENARIO, EngineStep, Step, load_scenario
from agent.sources.timeline import SYSTEM_UNIT
from agent.sources.workload import ReplayWorkloads


class ReplayNvml:
    """GPU readings of the capture."""

    def __init__(self, stage: Stage) -> None:
        """Answer from `stage`."""
        self._stage = stage

    def _identities(self) -> list[GpuIdentity]:
        return [GpuIdentity(**gpu["identity"]) for gpu in self._stage.captured().nvml["gpus"]]

    def system(self) -> SystemReading:
        """Driver and library versions and the device count, less GPUs that the scenario has taken away."""
        values = self._system_values()
        places = range(len(self._identities()))
        gone = sum(self._stage.part("identity", "nvml", "gpus", str(i)) is None for i in places)
        return SystemReading(**{**values, "device_count": max(0, values["device_count"] - gone)})

    def expect(self, uuids: Sequence[str], group: NvmlGroup) -> None:
        """Nothing is gained by reading ahead here."""

    def inventory(self) -> Sequence[GpuIdentity]:
        """Every GPU in PCI bus order."""
        self._system_values()
        found = []
        for i, captured in enumerate(self._identities()):
            identity = self._stage.part("identity", "nvml", "gpus", str(i))
            if identity is None:
                continue
            if is_refused(identity):
                at = captured.pci_bus_id
                found.append(GpuIdentity(captured.index, captured.uuid, at, error=identity["error"]))
            else:
                found.append(GpuIdentity(**identity))
        return sorted(found, key=lambda identity: (identity.pci_bus_id or "~", identity.index))

    def read(self, uuid: str, group: NvmlGroup) -> GpuReading:
        """One group of values of one GPU."""
        self._system_values()
        uuids = [identity.uuid for identity in self._identities()]
        unit = ("nvml", "gpus", str(uuids.index(uuid)) if uuid in uuids else "")
        identity = self._stage.part("identity", *unit)
        if identity is None:
            raise DeviceAbsent(f"NVML has no GPU {uuid}")
        what = f"{group} of {uuid}"
        if is_refused(identity):
            raise NvmlRefusal(identity["error"]).error(what)
        if identity.get("error"):
            raise NvmlRefusal(identity["error"]).error(what)
        values = self._stage.part(group.value, *unit)
        if values is None:
            values = {"error": "MISSING"}
        if is_refused(values):
            raise NvmlRefusal(values["error"]).error(what)
        typed = {name: NvmlRefusal(v["error"]) if is_refused(v) else v for name, v in values.items()}
        return GpuReading(uuid, group, self._stage.clock.mono_s(), typed)

    def _system_values(self) -> dict[str, Any]:
        values: dict[str, Any] = self._stage.now(*SYSTEM_UNIT)
        if is_refused(values):
            raise NvmlRefusal(values["error"]).error("the system")
        return values


class ReplayNet:
    """Interfaces of the capture."""

    def __init__(self, stage: Stage) -> None:
        """Answer from `stage`."""
        self._stage = stage

    def link(self, netdev: str) -> LinkInfo:
        """State of one interface."""
        values = self._part(netdev, "link")
        return LinkInfo(netdev, **{"carrier_down_count": None, **values})

    def ethtool_stats(self, netdev: str) -> Mapping[str, int]:
        """Driver statistics by name."""
        stats: Mapping[str, int] = self._part(netdev, "ethtool")
        return stats

    def dcb(self, netdev: str) -> DcbInfo:
        """DCB state."""
        values = self._part(netdev, "dcb")
        return DcbInfo(
            pfc_on=tuple(values["pfc_on"]),
            trust=values["trust"],
            dscp_to_priority={int(dscp): priority for dscp, priority in values["dscp_to_priority"].items()},
            host_managed=values.get("host_managed", True),
        )

    def driver(self, netdev: str) -> DriverInfo:
        """Driver and firmware."""
        return DriverInfo(**self._part(netdev, "driver"))

    def pause(self, netdev: str) -> PauseInfo:
        """Global pause."""
        return PauseInfo(**self._part(netdev, "pause"))

    def ring(self, netdev: str) -> RingInfo:
        """Ring sizes."""
        return RingInfo(**self._part(netdev, "ring"))

    def module(self, netdev: str) -> ModuleInfo:
        """The plugged module."""
        values = self._part(netdev, "module")
        lists = {key: tuple(value) for key, value in values.items() if isinstance(value, list)}
        return ModuleInfo(**{**values, **lists})

    def _part(self, netdev: str, part: str) -> dict[str, Any]:
        if self._stage.folder.net is None:
            raise SourceUnavailable("this capture has no network interfaces (net.json)")
        found: dict[str, Any] | None = self._stage.part(part, "net", netdev)
        if found is None:
            raise DeviceAbsent(f"there is no network interface {netdev!r}")
        if is_refused(found):
            raise source_error(found["error"], f"{part} of {netdev}")
        return found


class ReplayKmsg:
    """The captured kernel log and the scenario's lines, at the times that fit this machine's clock."""

    def __init__(self, stage: Stage) -> None:
        """Answer from `stage`."""
        self._stage = stage
        self._log = KmsgLog()
        self._next_seq = 1
        shift_s = stage.opened_mono_s - stage.folder.meta.captured_mono_s
        for record in stage.folder.kmsg or ():
            mono_s = min(record.mono_s + shift_s, stage.opened_mono_s)
            self._log.add(KmsgRecord(record.seq, mono_s, record.level, record.text))
            self._next_seq = record.seq + 1
        self._pending = [line for step in stage.scenario.steps for line in step.kmsg]
        self._lock = threading.Lock()

    def records(self) -> Sequence[KmsgRecord]:
        """The records until now, oldest first."""
        if self._stage.folder.kmsg is None:
            raise SourceUnavailable("this capture has no kernel log (kmsg.txt)")
        started_mono_s = self._stage.started_mono_s or self._stage.opened_mono_s
        with self._lock:
            while self._pending and self._pending[0].at_s <= self._stage.elapsed_s():
                line = self._pending.pop(0)
                self._log.add(KmsgRecord(self._next_seq, started_mono_s + line.at_s, line.level, line.text))
                self._next_seq += 1
        return self._log.records()

    def clear(self, up_to_mono_s: float) -> None:
        """Forget records up to a time."""
        self._log.clear(up_to_mono_s)

    def complete_since_mono_s(self) -> float:
        """0.0: a capture holds only the records that matter, and does not say what it lacks."""
        return 0.0


class ReplaySources:
    """A replayed node; `on_event`, `on_say` and `on_engine` are called from a thread when a step is due."""

    def __init__(self, stage: Stage, on_event: Callable[[str], None] | None) -> None:
        """Build the bundle; nothing moves before start()."""
        self._stage = stage
        self._on_event = on_event or (lambda _kind: None)
        self.on_say: Callable[[str], None] | None = None
        self.on_engine: Callable[[EngineStep], None] | None = None
        self.folder = stage.folder
        self.scenario = stage.scenario
        self.engine_steps = tuple(action for step in stage.scenario.steps for action in step.engine)
        self._redfish = RedfishClient() if stage.folder.live.bmc else None
        self.sources = Sources(
            clock=stage.clock,
            tree=live_tree(ReplayTree(stage.folder, stage.timeline, stage.elapsed_s), stage.folder.live),
            nvml=ReplayNvml(stage),
            net=ReplayNet(stage),
            kmsg=ReplayKmsg(stage),
            engines=EngineBoard(on_event),
            host=live_host(ReplayHost(stage.folder, stage.now, stage.opened_mono_s), stage.folder.live),
            bmc=self._redfish or ReplayBmc(stage.folder, stage.now),
            workloads=ReplayWorkloads(stage.folder.measured),
            simulated=True,
        )
        self._due = list(stage.scenario.steps)
        self._tick_lock = threading.Lock()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the scenario's time."""
        if self._thread is not None:
            return
        self._stage.started_mono_s = self._stage.clock.mono_s()
        self._thread = threading.Thread(target=self._run, name="scenario", daemon=True)
        self._thread.start()

    @property
    def began_mono_s(self) -> float | None:
        """When the scenario's time began, None while it has not."""
        return self._stage.started_mono_s

    def follow(self, began_mono_s: float | None) -> None:
        """Be at the moment of another replay of the same node, whose scenario began then."""
        self._stage.started_mono_s = began_mono_s

    def close(self) -> None:
        """Stop the scenario's events; readings go on."""
        self._closing.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        if self._redfish is not None:
            self._redfish.close()

    def tick(self) -> float | None:
        """Announce every step that is due; seconds until the next one, None after the last."""
        with self._tick_lock:
            while self._due and self._due[0].at_s <= self._stage.elapsed_s():
                self._announce(self._due.pop(0))
            return self._due[0].at_s - self._stage.elapsed_s() if self._due else None

    def _run(self) -> None:
        wait_s = self.tick()
        while wait_s is not None and not self._closing.wait(max(0.0, wait_s)):
            wait_s = self.tick()

    def _announce(self, step: Step) -> None:
        if step.say and self.on_say:
            self.on_say(step.say)
        for action in step.engine:
            if self.on_engine:
                self.on_engine(action)
        for kind in self._events(step):
            self._on_event(kind)

    def _events(self, step: Step) -> list[str]:
        """What the live followers would send for the same changes, each kind once."""
        kinds = dict.fromkeys(kind for line in step.kmsg for kind in event_kinds(line.text))
        for edit in step.edits:
            unit, keys = self._stage.timeline.locate(edit.path)
            if unit[0] == "net" and keys[:1] in ((), ("link",)):
                kinds[EVENT_LINK] = None
        return list(kinds)


def replay_sources(
    node_dir: Path,
    scenario: Path | None,
    *,
    on_event: Callable[[str], None] | None = None,
    clock: Clock | None = None,
) -> ReplaySources:
    """Open a node folder, with a scenario file over it. Raises ConfigError for anything wrong in either."""
    folder = load_node_folder(node_dir)
    changes = NO_SCENARIO if scenario is None else load_scenario(scenario)
    stage = Stage(folder, changes, clock or ReplayClock(folder.meta.boot_id))
    return ReplaySources(stage, on_event)
