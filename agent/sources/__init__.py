"""Sources: the only code that reads hardware, behind one `Sources` bundle of small protocols.

Live readers, replay of a capture and test fakes all implement these protocols. Every method either returns
what was read just now or raises a SourceError; none returns a default for something it could not read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from agent.model import EngineStatus
from agent.sources.bmc_reading import Bmc, NoBmc
from agent.sources.checklist_runs import ChecklistRuns, NoRuns
from agent.sources.counters import CounterBook
from agent.sources.fault_history import FaultHistory, NoHistory
from agent.sources.gpu_reading import GpuIdentity, GpuReading, NvmlGroup, SystemReading
from agent.sources.group_reading import Groups, NoGroups
from agent.sources.host_reading import Host, NoHost
from agent.sources.launch_reading import LaunchEvidence, NoLaunchEvidence
from agent.sources.series import SeriesBook
from agent.sources.workload import NoWorkloads, Workloads


class Clock(Protocol):
    """Time; the monotonic clock is CLOCK_BOOTTIME seconds on a live node."""

    def mono_s(self) -> float:
        """Monotonic seconds."""

    def wall_s(self) -> float:
        """Seconds since the epoch."""

    def boot_id(self) -> str:
        """The kernel's boot id (/proc/sys/kernel/random/boot_id)."""


class Tree(Protocol):
    """sysfs, procfs and /etc under one root; paths are relative (`sys/class/infiniband`)."""

    def text(self, path: str) -> str:
        """The file's text, stripped. Raises DeviceAbsent (not there), SourceUnavailable (unreadable)."""

    def data(self, path: str) -> bytes:
        """The file's bytes as they are (PCI config space). Raises DeviceAbsent, SourceUnavailable."""

    def integer(self, path: str) -> int:
        """The file's text as a decimal or 0x number. Raises ParseError besides."""

    def names(self, path: str) -> list[str]:
        """Names in a directory, sorted. Raises DeviceAbsent if it is not there."""

    def exists(self, path: str) -> bool:
        """Whether the path exists."""

    def link_target(self, path: str) -> str:
        """What a symbolic link points to, as it is written. Raises DeviceAbsent."""


class Nvml(Protocol):
    """GPU readings; each call has its own deadline."""

    def system(self) -> SystemReading:
        """Driver and library versions and the device count."""

    def inventory(self) -> Sequence[GpuIdentity]:
        """All GPUs of NVML in PCI bus order; a lost one has `error` set and may lack its uuid."""

    def read(self, uuid: str, group: NvmlGroup) -> GpuReading:
        """One group of one GPU. Raises DeviceAbsent, DeviceLost, SourceTimeout, SourceUnavailable."""

    def expect(self, uuids: Sequence[str], group: NvmlGroup) -> None:
        """Say that this group of these GPUs is about to be read: a source may read all in one go."""


@dataclass(frozen=True, slots=True)
class LinkInfo:
    """A network interface (RTM_GETLINK). carrier_down_count counts since the interface was made."""

    name: str
    operstate: str  # "up", "down", "dormant", ... as in IF_OPER_*
    carrier: bool
    mtu_bytes: int
    carrier_down_count: int | None


@dataclass(frozen=True, slots=True)
class DcbInfo:
    """Data Center Bridging state of an interface (DCBNL IEEE 802.1Qaz).

    `pfc_on` has eight booleans by priority; `trust` is derived from the APP table (`dscp` if any DSCP entry
    exists); `dscp_to_priority` is the APP table's DSCP selector. `host_managed` is False when firmware or
    lldpad owns DCBX.
    """

    pfc_on: tuple[bool, ...]
    trust: str
    dscp_to_priority: Mapping[int, int]
    host_managed: bool = True


@dataclass(frozen=True, slots=True)
class DriverInfo:
    """What drives an interface (ETHTOOL_GDRVINFO)."""

    driver: str
    version: str
    firmware: str
    bus_info: str


@dataclass(frozen=True, slots=True)
class PauseInfo:
    """Global pause of an interface (ETHTOOL_GPAUSEPARAM): must be off where PFC is on."""

    autonegotiated: bool
    rx: bool
    tx: bool


@dataclass(frozen=True, slots=True)
class RingInfo:
    """Entries of an interface's rings, now and at most (ETHTOOL_GRINGPARAM)."""

    rx: int
    tx: int
    rx_max: int
    tx_max: int


@dataclass(frozen=True, slots=True)
class ModuleInfo:
    """The plugged transceiver or cable (ETHTOOL_MODULE_EEPROM_GET, SFF-8636, CMIS); None = not reported."""

    kind: str
    vendor: str
    part_number: str
    serial: str
    temperature_c: float | None = None
    rx_power_mw: tuple[float, ...] = ()
    tx_power_mw: tuple[float, ...] = ()
    alarms: tuple[str, ...] = ()


class Net(Protocol):
    """Network interfaces over netlink and ethtool."""

    def link(self, netdev: str) -> LinkInfo:
        """State of one interface. Raises DeviceAbsent if there is none of that name."""

    def ethtool_stats(self, netdev: str) -> Mapping[str, int]:
        """Driver statistics by name (ETHTOOL_GSTATS). Raises DeviceAbsent, NotSupported."""

    def dcb(self, netdev: str) -> DcbInfo:
        """DCB state (RTM_GETDCB). Raises DeviceAbsent, NotSupported."""

    def driver(self, netdev: str) -> DriverInfo:
        """Driver and firmware. Raises DeviceAbsent, NotSupported."""

    def pause(self, netdev: str) -> PauseInfo:
        """Global pause. Raises DeviceAbsent, NotSupported."""

    def ring(self, netdev: str) -> RingInfo:
        """Ring sizes. Raises DeviceAbsent, NotSupported."""

    def module(self, netdev: str) -> ModuleInfo:
        """The plugged module. Raises DeviceAbsent (none plugged), NotSupported."""


@dataclass(frozen=True, slots=True)
class KmsgRecord:
    """One kernel log record (Documentation/ABI/testing/dev-kmsg)."""

    seq: int
    mono_s: float
    level: int
    text: str


class Kmsg(Protocol):
    """The kernel log of this boot."""

    def records(self) -> Sequence[KmsgRecord]:
        """The records since boot that matter to checks (NVRM, mlx5, PCIe), oldest first, minus cleared ones.

        Raises SourceUnavailable when the log cannot be read or its follower has died.
        """

    def clear(self, up_to_mono_s: float) -> None:
        """Forget records up to a time: an operator has dealt with them."""

    def complete_since_mono_s(self) -> float:
        """Since when no record is missing; 0.0 = since boot. Later: the ring was full before it was read."""


class CanaryVerdict(StrEnum):
    """What a canary completion showed."""

    OK = "ok"
    MOVING = "moving"  # none was sent: the token counters move by themselves
    ODD = "odd"  # answered, with a text that looks like garbage
    BUSY = "busy"  # no answer in time, but token counters moved: the engine lives
    DEAD = "dead"  # no answer and no token progress
    WRONG = "wrong"  # answered, but aborted, empty or not the expected text


@dataclass(frozen=True, slots=True)
class CanaryReport:
    """One canary: when it ended, how long it took, what it showed."""

    verdict: CanaryVerdict
    ended_mono_s: float
    latency_s: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class EngineObservation:
    """What is known of one engine from its supervisor and its HTTP interface."""

    status: EngineStatus
    health_ok: bool | None = None
    health_mono_s: float | None = None
    canary: CanaryReport | None = None
    tokens_total: float | None = None
    tokens_moved_mono_s: float | None = None
    requests_running: float | None = None
    requests_waiting: float | None = None
    kv_cache_used_ratio: float | None = None
    #: Lifetime tokens asked of the prefix cache and found there (vllm:prefix_cache_queries, _hits).
    prefix_queries_total: float | None = None
    prefix_hits_total: float | None = None
    preemptions_total: float | None = None
    #: The newest canary that was answered, also while none is sent for the engine works.
    answered: CanaryReport | None = None
    #: Lifetime sums and counts of the time to the first token and between tokens.
    first_token_sum_s: float | None = None
    first_token_count: float | None = None
    between_tokens_sum_s: float | None = None
    between_tokens_count: float | None = None
    #: The engine's processes as its supervisor knows them, the first is its main one.
    pids: tuple[int, ...] = ()
    #: False while a restarted agent has yet to look whether an engine of its predecessor runs.
    looked: bool = True


class Engines(Protocol):
    """What the agent knows of its engines; filled by the engine monitor."""

    def observe(self, engine: str) -> EngineObservation:
        """The newest observation. Raises SourceUnavailable when nothing has been observed yet."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Everything that a check may read."""

    clock: Clock
    tree: Tree
    nvml: Nvml
    net: Net
    kmsg: Kmsg
    engines: Engines
    host: Host = field(default_factory=NoHost)
    bmc: Bmc = field(default_factory=NoBmc)
    history: FaultHistory = field(default_factory=NoHistory)
    checklists: ChecklistRuns = field(default_factory=NoRuns)
    launches: LaunchEvidence = field(default_factory=NoLaunchEvidence)
    groups: Groups = field(default_factory=NoGroups)
    #: For measured tests alone; no check starts anything.
    workloads: Workloads = field(default_factory=NoWorkloads)
    simulated: bool = False
    counters: CounterBook = field(default_factory=CounterBook)
    series: SeriesBook = field(default_factory=SeriesBook)
