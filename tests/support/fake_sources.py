"""In-memory Sources for tests of checks: a dict in the shape of a node folder, with a clock that tests move.

    {"nvml": {"system": {...}, "gpus": [{"identity": {...}, "thermal": {...}, ...}]}, "net": {...},
     "files": {path: text, or {"hex": "..."} for bytes}, "links": {path: target}, "kmsg": [lines],
     "engines": {name: {...}}, "host": {"units": {}, "disks": {}, "mounts": {}, "clock": {}, "reach": {}},
     "bmc": {name: {path: document}}, "faults": [{part, place, check, wall_s, boot_id, summary}],
     "launches": {engine: {"flags"|"memory"|"checkpoint": {"summary": "...", "pending": "", "facts": {},
                  "problems": [{severity, where, text, remedy}]}}}}

`{"error": "NOT_SUPPORTED"}` in the place of a value, group, file, interface part or source is a refusal.
Every read is noted in `reads`, so that a test can refuse each value that a check has read, one after another.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fake_groups import observation

from agent.bmc_profile import RedfishEndpoint
from agent.errors import DeviceAbsent, NotSupported, ParseError, SourceUnavailable
from agent.model import EnginePhase, EngineStatus
from agent.sources import (
    CanaryReport,
    CanaryVerdict,
    DcbInfo,
    DriverInfo,
    EngineObservation,
    KmsgRecord,
    LinkInfo,
    ModuleInfo,
    PauseInfo,
    RingInfo,
    Sources,
)
from agent.sources.checklist_runs import ChecklistRun, RunEnd
from agent.sources.fault_history import PartFault
from agent.sources.gpu_reading import GpuIdentity, GpuReading, NvmlGroup, NvmlRefusal, SystemReading
from agent.sources.group_reading import GroupObservation
from agent.sources.host_reading import ClockSync, DiskSpace, MountAnswer, Reach, UnitState
from agent.sources.launch_reading import LaunchReport, Problem, Severity

START_MONO_S = 5000.0
#: Fields of an engine's observation that a test gives as they are.
_ENGINE_NUMBERS = (
    "tokens_total",
    "requests_running",
    "requests_waiting",
    "kv_cache_used_ratio",
    "prefix_queries_total",
    "prefix_hits_total",
    "preemptions_total",
    "first_token_sum_s",
    "first_token_count",
    "between_tokens_sum_s",
    "between_tokens_count",
)
_KMSG = re.compile(r"(\d+),(\d+),(\d+),[^;]*;(.*)")


def refusal_of(value: Any) -> NvmlRefusal | None:
    """The refusal that `{"error": NAME}` stands for, None for any other value."""
    if isinstance(value, dict) and set(value) == {"error"}:
        return NvmlRefusal(str(value["error"]))
    return None


def _unshared(value: Any) -> Any:
    """A copy in which no two places hold one list: an alias of a case file gives it to many."""
    if isinstance(value, dict):
        return {key: _unshared(item) for key, item in value.items()}
    return [_unshared(item) for item in value] if isinstance(value, list) else value


def _given(value: Any, what: str) -> Any:
    refused = refusal_of(value)
    if refused is None:
        return value
    if refused.name == "ABSENT":
        raise DeviceAbsent(f"{what} is not there")
    raise refused.error(what)


@dataclass
class FakeClock:
    now_s: float = START_MONO_S

    def mono_s(self) -> float:
        return self.now_s

    def wall_s(self) -> float:
        return 1_700_000_000.0 + self.now_s

    def boot_id(self) -> str:
        return "11111111-2222-3333-4444-555555555555"


class _NotedValues(dict):  # type: ignore[type-arg]
    """Values of one NVML group that note which of them a check asks for."""

    def __init__(self, values: Mapping[str, Any], prefix: str, reads: set[str]) -> None:
        super().__init__(values)
        self._prefix, self._reads = prefix, reads

    def get(self, key: str, default: Any = None) -> Any:
        self._reads.add(f"{self._prefix}.{key}")
        return super().get(key, default)


@dataclass
class FakeNvml:
    node: dict[str, Any]
    clock: FakeClock
    reads: set[str]
    #: How long ago the readings were taken: what a source that serves old values looks like.
    stale_s: float = 0.0

    def system(self) -> SystemReading:
        nvml = _given(self.node["nvml"], "nvml")
        self.reads.add("nvml.system")
        return SystemReading(**_given(nvml["system"], "nvml.system"))

    def expect(self, uuids: Sequence[str], group: NvmlGroup) -> None:
        pass

    def inventory(self) -> Sequence[GpuIdentity]:
        nvml = _given(self.node["nvml"], "nvml")
        self.reads.add("nvml.gpus")
        return [GpuIdentity(**gpu["identity"]) for gpu in _given(nvml["gpus"], "nvml.gpus")]

    def read(self, uuid: str, group: NvmlGroup) -> GpuReading:
        for index, gpu in enumerate(_given(self.node["nvml"], "nvml")["gpus"]):
            if gpu["identity"].get("uuid") == uuid:
                values = _given(gpu.get(group.value, {}), f"nvml.gpus.{index}.{group.value}")
                values = {key: refusal_of(value) or value for key, value in values.items()}
                noted = _NotedValues(values, f"nvml.gpus.{index}.{group.value}", self.reads)
                return GpuReading(uuid, group, self.clock.now_s - self.stale_s, noted)
        raise DeviceAbsent(f"no GPU {uuid}")


@dataclass
class FakeTree:
    node: dict[str, Any]
    reads: set[str]

    def text(self, path: str) -> str:
        self.reads.add(f"files:{path}")
        if path not in self.node["files"]:
            raise DeviceAbsent(f"/{path} is not there")
        return str(_given(self.node["files"][path], f"/{path}")).strip()

    def data(self, path: str) -> bytes:
        self.reads.add(f"files:{path}")
        if path not in self.node["files"]:
            raise DeviceAbsent(f"/{path} is not there")
        value = _given(self.node["files"][path], f"/{path}")
        return bytes.fromhex(value["hex"]) if isinstance(value, dict) else str(value).encode()

    def integer(self, path: str) -> int:
        text = self.text(path)
        try:
            return int(text, 16) if text.lower().startswith("0x") else int(text)
        except ValueError:
            raise ParseError(f"/{path} reads {text!r}, not a number") from None

    def names(self, path: str) -> list[str]:
        prefix = f"{path}/"
        if path in self.node["files"]:
            _given(self.node["files"][path], f"/{path}")
        known = (*self.node["files"], *self.node["links"])
        found = {name[len(prefix) :].split("/")[0] for name in known if name.startswith(prefix)}
        if not found:
            raise DeviceAbsent(f"/{path} is not there")
        return sorted(found)

    def exists(self, path: str) -> bool:
        return any(name == path or name.startswith(f"{path}/") for name in self.node["files"])

    def link_target(self, path: str) -> str:
        self.reads.add(f"links:{path}")
        if path not in self.node["links"]:
            raise DeviceAbsent(f"/{path} is not there")
        return str(_given(self.node["links"][path], f"/{path}"))


@dataclass
class FakeNet:
    node: dict[str, Any]
    reads: set[str]

    def _part(self, netdev: str, part: str) -> Any:
        self.reads.add(f"net.{netdev}.{part}")
        if netdev not in self.node["net"]:
            raise DeviceAbsent(f"no interface {netdev}")
        parts = self.node["net"][netdev]
        if part not in parts:
            raise NotSupported(f"{netdev} has no {part}")
        return _given(parts[part], f"{netdev} {part}")

    def link(self, netdev: str) -> LinkInfo:
        return LinkInfo(name=netdev, **self._part(netdev, "link"))

    def ethtool_stats(self, netdev: str) -> Mapping[str, int]:
        return dict(self._part(netdev, "ethtool"))

    def dcb(self, netdev: str) -> DcbInfo:
        part = self._part(netdev, "dcb")
        dscp = {int(key): value for key, value in part["dscp_to_priority"].items()}
        return DcbInfo(tuple(part["pfc_on"]), part["trust"], dscp, part["host_managed"])

    def driver(self, netdev: str) -> DriverInfo:
        return DriverInfo(**self._part(netdev, "driver"))

    def pause(self, netdev: str) -> PauseInfo:
        return PauseInfo(**self._part(netdev, "pause"))

    def ring(self, netdev: str) -> RingInfo:
        return RingInfo(**self._part(netdev, "ring"))

    def module(self, netdev: str) -> ModuleInfo:
        part = self._part(netdev, "module")
        lists = {key: tuple(value) for key, value in part.items() if isinstance(value, list)}
        return ModuleInfo(**{**part, **lists})


@dataclass
class FakeHost:
    node: dict[str, Any]
    reads: set[str]

    def _part(self, kind: str, name: str) -> dict[str, Any]:
        self.reads.add(f"host.{kind}.{name}")
        known = self.node["host"].get(kind, {})
        if name not in known:
            raise SourceUnavailable(f"nothing is known of {name} here")
        return dict(_given(known[name], name))

    def unit(self, name: str) -> UnitState:
        known = self.node["host"].get("units", {})
        missing = {"load_state": "not-found", "active_state": "inactive", "sub_state": "dead", "restarts": 0}
        return UnitState(name=name, **(self._part("units", name) if name in known else missing))

    def disk(self, path: str) -> DiskSpace:
        return DiskSpace(**self._part("disks", path))

    def mount(self, path: str, marker: str | None = None) -> MountAnswer:
        return MountAnswer(**self._part("mounts", path))

    def clock_sync(self) -> ClockSync:
        self.reads.add("host.clock")
        return ClockSync(**_given(self.node["host"].get("clock", {"error": "UNAVAILABLE"}), "the clock"))

    def reach(self, host: str, port: int) -> Reach:
        return Reach(**self._part("reach", f"{host}:{port}"))


@dataclass
class FakeBmc:
    node: dict[str, Any]
    reads: set[str]

    def get(self, name: str, endpoint: RedfishEndpoint, path: str) -> Mapping[str, Any]:
        self.reads.add(f"bmc.{name}.{path}")
        service = _given(self.node["bmc"].get(name, {"error": "UNAVAILABLE"}), f"BMC {name}")
        if path not in service:
            raise DeviceAbsent(f"{path} is not there")
        return dict(_given(service[path], path))


@dataclass
class FakeHistory:
    node: dict[str, Any]

    def faults(self, since_wall_s: float) -> Sequence[PartFault]:
        found = [PartFault(**fault) for fault in _given(self.node["faults"], "the journal")]
        return [fault for fault in found if fault.wall_s >= since_wall_s]


@dataclass
class FakeRuns:
    node: dict[str, Any]
    reads: set[str]

    def runs(self, checklist: str) -> Sequence[ChecklistRun]:
        """`checklists: {runs: {NAME: [{run_id, end, summary, parts}]}, parts: {}}`, newest first."""
        self.reads.add("checklists.runs")
        told = _given(_given(self.node["checklists"], "the records").get("runs", {}), "the records")
        return [
            ChecklistRun(**{**run, "end": RunEnd(run["end"])})
            for run in _given(told.get(checklist, []), checklist)
        ]

    def parts_now(self) -> Mapping[str, str]:
        parts: dict[str, str] = _given(self.node["checklists"].get("parts", {}), "the hardware")
        return parts


@dataclass
class FakeLaunches:
    node: dict[str, Any]
    reads: set[str]

    def _report(self, engine: str, part: str) -> LaunchReport:
        self.reads.add(f"launches.{engine}.{part}")
        if engine not in self.node["launches"]:
            raise SourceUnavailable(f"the launch of {engine} is not made on this machine")
        parts = _given(self.node["launches"][engine], f"the launch of {engine}")
        given = _given(parts.get(part, {"error": "UNAVAILABLE"}), f"{part} of {engine}")
        problems = tuple(
            Problem(**{**problem, "severity": Severity(problem["severity"])})
            for problem in given.get("problems", ())
        )
        rest = {"summary": given["summary"], "pending": given.get("pending", "")}
        return LaunchReport(problems=problems, facts=given.get("facts", {}), **rest)

    def flags(self, engine: str) -> LaunchReport:
        return self._report(engine, "flags")

    def memory(self, engine: str) -> LaunchReport:
        return self._report(engine, "memory")

    def checkpoint(self, engine: str) -> LaunchReport:
        return self._report(engine, "checkpoint")


@dataclass
class FakeGroups:
    node: dict[str, Any]
    clock: FakeClock
    reads: set[str]

    def observe(self, engine: str) -> GroupObservation:
        self.reads.add(f"groups.{engine}")
        if engine not in self.node["groups"]:
            raise SourceUnavailable(f"the group of {engine} has not been looked at yet")
        given = _given(self.node["groups"][engine], f"group of {engine}")
        for at, peer in enumerate(given.get("peers", ())):
            self.reads.add(f"groups.{engine}.peers.{at}")
            self.reads.update({f"groups.{engine}.peers.{at}.status"} if "status" in peer else ())
        return observation(given, self.clock.now_s)


@dataclass
class FakeKmsg:
    node: dict[str, Any]
    cleared_s: float = -1.0
    #: How long after boot the log begins.
    since_s: float = 0.0

    def complete_since_mono_s(self) -> float:
        return self.since_s

    def records(self) -> Sequence[KmsgRecord]:
        lines = _given(self.node["kmsg"], "/dev/kmsg")
        records = [self._record(line) for line in lines]
        return [record for record in records if record.mono_s > self.cleared_s]

    def clear(self, up_to_mono_s: float) -> None:
        self.cleared_s = up_to_mono_s

    @staticmethod
    def _record(line: str) -> KmsgRecord:
        match = _KMSG.fullmatch(line)
        assert match is not None, f"not a kmsg line: {line}"
        prefix, seq, us, text = match.groups()
        return KmsgRecord(int(seq), int(us) / 1e6, int(prefix) & 7, text)


@dataclass
class FakeEngines:
    node: dict[str, Any]
    clock: FakeClock

    def observe(self, engine: str) -> EngineObservation:
        """Times in the dict are ages in seconds: `canary: {verdict: ok, age_s: 2}`."""
        if engine not in self.node["engines"]:
            raise SourceUnavailable(f"engine {engine} has not been observed yet")
        seen = _given(self.node["engines"][engine], f"engine {engine}")
        status = EngineStatus(
            engine, EnginePhase(seen["phase"]), self.clock.now_s - 100, seen.get("reason", ""), 4242
        )
        canary = None
        if report := seen.get("canary"):
            ended_s = self.clock.now_s - report["age_s"]
            verdict = CanaryVerdict(report["verdict"])
            canary = CanaryReport(verdict, ended_s, report.get("latency_s", 0.2), report.get("reason", ""))
        health = seen.get("health") or {}
        health_s = self.clock.now_s - health["age_s"] if "age_s" in health else None
        numbers = {key: seen[key] for key in _ENGINE_NUMBERS if key in seen}
        pids = tuple(seen.get("pids", ()))
        answered = canary if canary is not None and canary.verdict is CanaryVerdict.OK else None
        return EngineObservation(
            status,
            health.get("ok"),
            health_s,
            canary,
            answered=answered,
            pids=pids,
            looked=seen.get("looked", True),
            **numbers,
        )


@dataclass
class FakeNode:
    """A node that tests change: `sources` reads it as it is at that moment."""

    data: dict[str, Any]
    clock: FakeClock = field(default_factory=FakeClock)
    reads: set[str] = field(default_factory=set)
    #: The data is used as it is, not copied: for tests that run thousands of nodes and change none in place.
    shared: bool = False

    def __post_init__(self) -> None:
        empty: dict[str, Any] = {"net": {}, "files": {}, "links": {}, "kmsg": [], "engines": {}}
        self.data = (
            empty
            | {"host": {}, "bmc": {}, "faults": [], "launches": {}, "groups": {}, "checklists": {}}
            | (self.data if self.shared else copy.deepcopy(self.data))
        )
        self.nvml = FakeNvml(self.data, self.clock, self.reads)
        self.kmsg = FakeKmsg(self.data)
        self.sources = Sources(
            clock=self.clock,
            tree=FakeTree(self.data, self.reads),
            nvml=self.nvml,
            net=FakeNet(self.data, self.reads),
            kmsg=self.kmsg,
            engines=FakeEngines(self.data, self.clock),
            host=FakeHost(self.data, self.reads),
            bmc=FakeBmc(self.data, self.reads),
            history=FakeHistory(self.data),
            checklists=FakeRuns(self.data, self.reads),
            launches=FakeLaunches(self.data, self.reads),
            groups=FakeGroups(self.data, self.clock, self.reads),
            simulated=True,
        )

    def set(self, path: str, value: Any) -> None:
        """Set `nvml.gpus.3.thermal.margin_c`, `files:sys/...` or `links:sys/...` (where None removes it).

        None for a folder removes all in it, and the link of that name.
        """
        value = _unshared(value)
        for mapping in ("files", "links"):
            if path.startswith(f"{mapping}:"):
                name = path.removeprefix(f"{mapping}:")
                if value is None and name not in self.data[mapping]:
                    self._remove_folder(name)
                elif value is None:
                    del self.data[mapping][name]
                else:
                    self.data[mapping][name] = value
                return
        *parents, last = path.split(".")
        at: Any = self.data
        for key in parents:
            at = at[int(key)] if isinstance(at, list) else at[key]
        if isinstance(at, list):
            at[int(last)] = value
        else:
            at[last] = value

    def _remove_folder(self, name: str) -> None:
        for mapping in ("files", "links"):
            for path in [p for p in self.data[mapping] if p == name or p.startswith(f"{name}/")]:
                del self.data[mapping][path]

    def remove(self, path: str) -> None:
        """Remove a list item or key."""
        *parents, last = path.split(".")
        at: Any = self.data
        for key in parents:
            at = at[int(key)] if isinstance(at, list) else at[key]
        del at[int(last) if isinstance(at, list) else last]
