"""driver.fabric_manager, driver.persistenced, driver.imex: do the driver's own services run?

systemd: ActiveState, SubState and NRestarts of nvidia-fabricmanager, nvlsm (Blackwell), nvidia-persistenced
and nvidia-imex. A dead fabric manager shows on no GPU: links stay up and routes stay as they were, but
no failed link is handled and no new CUDA context comes up (NVIDIA/NVSentinel#883, #889: dead for 20 days).
While serving that degrades: what serves goes on, and nvlink.fabric, nvlink.links and xid see what breaks.
A profile that lists a unit as inactive under host.services (a guest whose host runs it) leaves it out.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from agent.checks import advice
from agent.checks.gpus import no_gpus
from agent.checks.nvlink_fabric import no_fabric
from agent.checks.registry import Limits, check, unknown
from agent.errors import BaselineOnly, SourceError
from agent.model import Action, Basis, Finding, ServingClass, Verdict
from agent.node_profile import NodeProfile
from agent.sources import Sources
from agent.sources.host_reading import UnitState

FABRIC_MANAGER = "nvidia-fabricmanager.service"
SUBNET_MANAGER = "nvlsm.service"
PERSISTENCED = "nvidia-persistenced.service"
IMEX = "nvidia-imex.service"
#: systemd's ActiveState while a service does its work.
_AT_WORK = ("active", "reloading")


class ServiceLimits(Limits):
    """Tolerances of a service of the driver."""

    max_restarts: int = Field(2, description="Restarts within restart_window_s that are no failure yet", ge=0)
    restart_window_s: float = Field(3600.0, description="Seconds over which restarts are counted", gt=0)


def _left_out(profile: NodeProfile, unit: str) -> str | None:
    """The skip reason of a unit that the profile wants inactive."""
    if profile.host.services.get(unit) == "inactive":
        return f"the profile says that {unit} is inactive here (host.services)"
    return None


def _no_fabric_manager(profile: NodeProfile) -> str | None:
    return no_fabric(profile) or _left_out(profile, FABRIC_MANAGER)


def _no_persistenced(profile: NodeProfile) -> str | None:
    unwanted = None if profile.gpus.persistence else "the profile does not ask for persistence"
    return no_gpus(profile) or unwanted or _left_out(profile, PERSISTENCED)


def _no_imex(profile: NodeProfile) -> str | None:
    alone = None if profile.nvlink.imex else "the node is in no multi-node NVLink domain (nvlink.imex)"
    return no_gpus(profile) or alone or _left_out(profile, IMEX)


#: The key that settles it in a guest; without systemd host.services cannot be read either.
_ELSEWHERE = "Where the hypervisor runs it, write `{}: inactive` under host.services."
_FM_ELSEWHERE = _ELSEWHERE.format(FABRIC_MANAGER)
_START_FM = advice.play(
    "gpu", f"Start it: systemctl enable --now {FABRIC_MANAGER}; its log says why it stopped. {_FM_ELSEWHERE}"
)
_START_IMEX = advice.play(
    "gpu", f"Start it: systemctl enable --now {IMEX}; compare /etc/nvidia-imex/nodes_config.cfg."
)
_START_PERSISTENCED = advice.play("gpu", f"Start it: systemctl enable --now {PERSISTENCED}.")


@check(
    "driver.fabric_manager",
    title="Fabric manager",
    source=f"systemd: {FABRIC_MANAGER}, and {SUBNET_MANAGER} where it is installed",
    serving_class=ServingClass.SOFT,
    limits=ServiceLimits,
    period_s=10.0,
    fail_for_s=30.0,
    skip=_no_fabric_manager,
    action=_START_FM,
)
def fabric_manager(sources: Sources, profile: NodeProfile, limits: ServiceLimits) -> Iterator[Finding]:
    """Behind NVSwitches the fabric manager must run, with its subnet manager where one is installed."""
    del profile
    basis, package = Basis.profile("nvlink.fabric"), "nvidia-fabricmanager of the driver's version"
    try:
        manager = _judge(sources, sources.host.unit(FABRIC_MANAGER), limits, basis, _START_FM, package)
        subnet = sources.host.unit(SUBNET_MANAGER)
        if manager.verdict is Verdict.PASS and subnet.load_state != "not-found":
            repair = advice.play("gpu", f"Start it: systemctl enable --now {SUBNET_MANAGER}.")
            manager = _judge(sources, subnet, limits, basis, repair, "nvlsm")
        yield manager
    except SourceError as cause:
        yield unknown("node", cause)


@check(
    "driver.persistenced",
    title="Persistence daemon",
    source=f"systemd: {PERSISTENCED}",
    serving_class=ServingClass.INFO,
    limits=ServiceLimits,
    period_s=30.0,
    fail_for_s=30.0,
    # It never fails either: gpu.persistence reads from the GPU itself what matters.
    unknown_blocks_admission=False,
    skip=_no_persistenced,
    action=_START_PERSISTENCED,
)
def persistenced(sources: Sources, profile: NodeProfile, limits: ServiceLimits) -> Iterator[Finding]:
    """Where the driver's state must persist, its daemon should run: the mode without it is deprecated."""
    del profile
    try:
        unit, basis = sources.host.unit(PERSISTENCED), Basis.profile("gpus.persistence")
        # Never more than a warning: gpu.persistence reads whether the state does persist.
        yield _judge(
            sources, unit, limits, basis, _START_PERSISTENCED, "nvidia-persistenced", bad=Verdict.WARN
        )
    except SourceError as cause:
        yield unknown("node", cause)


@check(
    "driver.imex",
    title="IMEX service",
    source=f"systemd: {IMEX}",
    serving_class=ServingClass.SOFT,
    limits=ServiceLimits,
    period_s=10.0,
    fail_for_s=30.0,
    skip=_no_imex,
    action=_START_IMEX,
)
def imex(sources: Sources, profile: NodeProfile, limits: ServiceLimits) -> Iterator[Finding]:
    """In a multi-node NVLink domain the service that exports GPU memory to the other nodes must run."""
    del profile
    try:
        basis = Basis.profile("nvlink.imex")
        yield _judge(sources, sources.host.unit(IMEX), limits, basis, _START_IMEX, "nvidia-imex")
    except SourceError as cause:
        yield unknown("node", cause)


def _judge(
    sources: Sources,
    unit: UnitState,
    limits: ServiceLimits,
    basis: Basis,
    repair: Action,
    package: str,
    bad: Verdict = Verdict.FAIL,
) -> Finding:
    """One unit: installed, at work, and not starting again and again."""
    if unit.load_state in ("not-found", "masked"):
        install = advice.play(
            "gpu",
            f"Install {package}, then: systemctl enable --now {unit.name}. {_ELSEWHERE.format(unit.name)}",
        )
        unmask = advice.play("gpu", f"Run systemctl unmask {unit.name}, then systemctl enable --now.")
        absent = unit.load_state == "not-found"
        text = f"{unit.name} is not installed" if absent else f"{unit.name} is masked"
        action = install if absent else unmask
        return Finding("node", bad, text, unit.load_state, "active", action=action, basis=basis)
    recent = _recent_restarts(sources, unit, limits)
    often = f", {unit.restarts} restarts so far" if unit.restarts else ""
    state = f"{unit.active_state} ({unit.sub_state})"
    if unit.active_state not in _AT_WORK:
        waits = unit.active_state == "activating" and unit.sub_state != "auto-restart"
        action = advice.person(f"Wait for it to start; if it does not: journalctl -u {unit.name}.")
        text = f"{unit.name} is {state}{often}"
        return Finding("node", bad, text, state, "active", action=action if waits else repair, basis=basis)
    if recent:
        minutes = limits.restart_window_s / 60
        text = f"{unit.name} was restarted {recent} times in {minutes:.0f} min"
        verdict = bad if recent > limits.max_restarts else Verdict.WARN
        log = advice.person(f"Read why it ends: journalctl -u {unit.name}.")
        limit = Basis.limit("max_restarts")
        return Finding("node", verdict, text, recent, limits.max_restarts, "restarts", log, basis=limit)
    return Finding("node", Verdict.PASS, f"{unit.name} is {state}{often}", state, "active", basis=basis)


def _recent_restarts(sources: Sources, unit: UnitState, limits: ServiceLimits) -> int:
    """Restarts by systemd within the window; the count before the first look is history, not news."""
    try:
        name = f"unit/{unit.name}/restarts"
        now_s = sources.clock.mono_s()
        return sources.counters.delta(name, unit.restarts, now_s, limits.restart_window_s).delta
    except BaselineOnly:
        return 0
