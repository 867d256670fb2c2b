"""SIGHUP: another profile, validated whole; a bad one is refused in one line and the old one stays."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from agent.daemon_parts import Parts
from agent.errors import AgentError
from agent.launch.evidence import LiveLaunches
from agent.log_events import Event, about
from agent.node_profile import Engine, NodeProfile
from agent.operator_desk import Given, MaintenanceOrder, OrderRefused
from agent.profile_loader import LoadedProfile

log = logging.getLogger("nodegate.daemon")


async def reload_profile(parts: Parts, load_again: Callable[[], LoadedProfile]) -> bool:
    """Read the profile again and put it in force, or say why not; whether it is in force now."""
    old = parts.loaded
    try:
        new = await asyncio.to_thread(load_again)
        refusal = needs_restart(old.profile, new.profile)
        if refusal is None:
            parts.runner.replace_profile(new)
    except AgentError as cause:
        refusal = str(cause)
    if refusal is not None:
        parts.problem = f"the new profile is refused, the old one stays in force: {refusal}"
        log.error("%s", parts.problem, extra=about(Event.PROFILE_REFUSED))
        parts.publish()
        return False
    if isinstance(launches := parts.given.sources.launches, LiveLaunches):
        launches.take_profile(new.profile)
    parts.take_profile(new)
    parts.gates.replace_profile(new.profile)
    for controller in parts.controllers.values():
        controller.replace_profile(new)
    for member in parts.members.values():
        member.replace_profile(new.profile)
    said = about(Event.PROFILE_CHANGED, old=old.hash, new=new.hash)
    log.info("profile %s is in force (was %s)", new.hash[:16], old.hash[:16], extra=said)
    parts.journal.record_mark("profile", f"{new.hash} in place of {old.hash}", boot_id=parts.boot_id)
    if hardware(old.profile) != hardware(new.profile):
        await _hold(parts)
    parts.gates.evaluate()
    return True


def needs_restart(old: NodeProfile, new: NodeProfile) -> str | None:
    """What cannot change under a running agent, in one line; None if all of the change can be taken in."""
    for name in ("node", "mode", "api"):
        if getattr(old, name) != getattr(new, name):
            return f"{name} has changed; restart the agent for that"
    if old.engines.keys() != new.engines.keys():
        return "the set of engines has changed; restart the agent for that"
    for name, engine in old.engines.items():
        if _place(engine) != _place(new.engines[name]):
            return f"engines.{name}: gpus, host, group or a port has changed; restart the agent for that"
    if _pair_ports(old) != _pair_ports(new):
        return "the agent_check_port of a pair has changed; restart the agent for that"
    return None


def hardware(profile: NodeProfile) -> tuple[object, ...]:
    """What the profile says of the identity of GPUs and NICs."""
    ports = [(port.device, port.port, port.pci_bus_id) for port in profile.fabric.ports]
    return profile.gpus.pins, profile.gpus.count, ports


def _place(engine: Engine) -> tuple[object, ...]:
    return engine.gpus, engine.host, engine.port, engine.agent_check_port, engine.group


def _pair_ports(profile: NodeProfile) -> dict[str, int]:
    return {name: pair.agent_check_port for name, pair in profile.pairs.items() if pair.agent_check_port}


async def _hold(parts: Parts) -> None:
    """Other hardware is to be looked at by a person before it serves."""
    given = Given("the new profile names other GPUs or NICs", "nodegate")
    try:
        await parts.desk.maintenance(MaintenanceOrder.ENTER, given)
    except OrderRefused as refused:
        log.warning("maintenance: %s", refused)
