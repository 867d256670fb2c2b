"""What the runner's tests share: checks made on the spot, a clock that a test moves, small profiles."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from agent.checks.registry import Check, ClearedBy, Limits
from agent.model import NO_ACTION, Finding, Phase, Result, ServingClass, Snapshot, Verdict
from agent.node_profile import CheckOverride, Engine, Fabric, FabricKind, Gpus, Launch, NodeProfile, Nvlink
from agent.profile_loader import LoadedProfile
from agent.sources import Sources

BOOT = "boot-a"
ALL_PHASES = frozenset(Phase)


class HandClock:
    """A clock that stands still until it is moved."""

    def __init__(self, mono_s: float = 1000.0) -> None:
        self.now = mono_s

    def mono_s(self) -> float:
        return self.now

    def wall_s(self) -> float:
        return 1_700_000_000.0 + self.now

    def boot_id(self) -> str:
        return BOOT


class RealClock(HandClock):
    """Real time."""

    def mono_s(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def wall_s(self) -> float:
        return time.time()


def sources(clock: HandClock | None = None, *, simulated: bool = False) -> Sources:
    """A bundle whose only live part is the clock: the checks of these tests read nothing else."""
    nothing: Any = None
    return Sources(
        clock=clock or RealClock(),
        tree=nothing,
        nvml=nothing,
        net=nothing,
        kmsg=nothing,
        engines=nothing,
        simulated=simulated,
    )


def make_check(
    id_: str,
    run: Callable[..., Iterable[Finding]] = lambda *_: [Finding("node", Verdict.PASS, "fine")],
    **changes: Any,
) -> Check:
    """A check that is quick and hard, unless `changes` say otherwise."""
    base = Check(
        id=id_, title=id_, run=run, limits=Limits, phases=ALL_PHASES, period_s=10.0, deadline_s=5.0,
        serving_class=ServingClass.HARD, fail_for_s=0.0, clear_for_s=0.0, unknown_for_s=60.0,
        unknown_blocks_admission=True, sticky=False, clears=frozenset(), network=False, waivable=True,
        needs_interval_s=0.0, triggers=frozenset(), skip=None, action=NO_ACTION, source="a test",
    )  # fmt: skip
    if changes.get("sticky"):
        changes.setdefault("clears", frozenset({ClearedBy.REBOOT, ClearedBy.OPERATOR}))
    return replace(base, **changes)


def profile(
    engines: Mapping[str, Iterable[int]] | None = None,
    *,
    gpus: int = 8,
    rdma: bool = False,
    checks: Mapping[str, CheckOverride] | None = None,
    limits: Mapping[str, dict[str, Any]] | None = None,
) -> NodeProfile:
    """A profile with these engines (name -> GPU slots)."""
    chosen = {"glm": range(gpus)} if engines is None else engines
    return NodeProfile(
        node="n1",
        gpus=Gpus(count=gpus),
        nvlink=Nvlink(links_per_gpu=0),
        fabric=Fabric(kind=FabricKind.NONE),
        engines={
            name: Engine(gpus=list(slots), port=8000 + number, launch=Launch(rdma=rdma))
            for number, (name, slots) in enumerate(chosen.items())
        },
        checks=dict(checks or {}),
        limits=dict(limits or {}),
    )


def loaded(node_profile: NodeProfile | None = None, hash_: str = "0" * 64) -> LoadedProfile:
    """The profile as the loader hands it out."""
    return LoadedProfile(profile=node_profile or profile(), hash=hash_, layers=("test",), files=())


def result(
    check: str,
    subject: str,
    verdict: Verdict,
    *,
    raw: Verdict | None = None,
    cls: ServingClass = ServingClass.HARD,
    measured_mono_s: float = 1000.0,
    valid_for_s: float = 25.0,
    waived: bool = False,
) -> Result:
    """A result whose finding agrees with its last reading."""
    reading = verdict if raw is None else raw
    return Result(
        check=check,
        finding=Finding(subject, reading, f"{subject} reads {reading}"),
        verdict=verdict,
        raw_verdict=reading,
        serving_class=cls,
        measured_mono_s=measured_mono_s,
        first_seen_s=1_700_000_000.0,
        valid_for_s=valid_for_s,
        waived=waived,
    )


def snapshot(*results: Result, mono_s: float = 1000.0) -> Snapshot:
    """A snapshot of these results."""
    return Snapshot(
        "n1", "0" * 64, False, BOOT, mono_s, 1_700_000_000.0, {(r.check, r.subject): r for r in results}
    )


def wait_until(condition: Callable[[], bool], what: str, limit_s: float = 30.0) -> None:
    """Poll until something holds; fails with `what` if it does not in time."""
    deadline_s = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline_s:
            raise AssertionError(f"not within {limit_s} s: {what}")
        time.sleep(0.002)
