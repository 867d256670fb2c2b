"""ib.port: has a subnet manager taken an InfiniBand port into its fabric?

Kernel: /sys/class/infiniband/DEVICE/ports/N/{state,phys_state,lid,sm_lid}. Link, rate and width of the port
are nic.port's, on InfiniBand as on Ethernet.
"""

from __future__ import annotations

from collections.abc import Iterator

from agent.checks import advice
from agent.checks.nic import ACTIVE, LINK_UP, numbered
from agent.checks.ports import judge_ports, not_ib, port_path, subject_of
from agent.checks.registry import Limits, check
from agent.errors import ParseError, SourceUnavailable
from agent.model import Basis, Finding, ServingClass, Verdict
from agent.node_profile import NicPort, NodeProfile
from agent.sources import Sources

_MANAGER = advice.person(
    "Look for the subnet manager of this fabric (sminfo): start it, or ask who runs it on the switch."
)
#: Unicast LIDs; 0 is none, 0xC000 and up are multicast and permissive (IBTA, LID space).
_LIDS = range(1, 0xC000)
_BASIS = Basis.profile("fabric.ib.subnet_manager")


def _no_manager(profile: NodeProfile) -> str | None:
    asked = profile.fabric.ib.subnet_manager
    return not_ib(profile) or (None if asked else "the profile asks for no subnet manager")


@check(
    "ib.port",
    title="Subnet manager and LID",
    source="/sys/class/infiniband/DEVICE/ports/N/{state,phys_state,lid,sm_lid}",
    serving_class=ServingClass.HARD,
    network=True,
    period_s=10.0,
    fail_for_s=60.0,
    triggers=("net.link",),
    skip=_no_manager,
    action=_MANAGER,
)
def ib_port(sources: Sources, profile: NodeProfile, _limits: Limits) -> Iterator[Finding]:
    """A subnet manager must be known, and must have given each port its LID."""
    yield from judge_ports(profile, lambda port: _judge(sources, port), absent="see nic.present")


def _judge(sources: Sources, port: NicPort) -> Finding:
    path = port_path(port)
    state, state_name = numbered(sources, f"{path}/state")
    phys, phys_name = numbered(sources, f"{path}/phys_state")
    lid, manager = (_lid(sources, f"{path}/{name}") for name in ("lid", "sm_lid"))
    if phys != LINK_UP:
        raise SourceUnavailable(f"the link is {phys_name}: see nic.port")
    if state != ACTIVE:
        summary = f"the link is up and the port stays {state_name}: no subnet manager has taken it"
        return _failed(port, summary, state_name, "ACTIVE")
    if manager not in _LIDS:
        return _failed(port, f"no subnet manager is known (sm_lid {manager})", manager, "a LID")
    if lid not in _LIDS:
        return _failed(port, f"the subnet manager gave no LID (lid {lid})", lid, "a LID")
    summary = f"LID {lid}, subnet manager at LID {manager}"
    return Finding(subject_of(port), Verdict.PASS, summary, lid, "a LID", basis=_BASIS)


def _lid(sources: Sources, path: str) -> int:
    value = sources.tree.integer(path)
    if not 0 <= value <= 0xFFFF:
        raise ParseError(f"/{path} reads {value}, not a LID")
    return value


def _failed(port: NicPort, summary: str, seen: int | str, want: str) -> Finding:
    return Finding(subject_of(port), Verdict.FAIL, summary, seen, want, action=_MANAGER, basis=_BASIS)
