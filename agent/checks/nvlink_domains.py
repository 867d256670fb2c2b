"""NVLink domains of the profile: which GPU slots reach each other over NVLink."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent.node_profile import NodeProfile


def domains(profile: NodeProfile) -> list[list[int]]:
    """Slots by domain; one domain of all slots when the profile lists none."""
    return [list(each) for each in profile.nvlink.domains] or [list(range(profile.gpus.count))]


def domain_of(profile: NodeProfile, slot: int) -> list[int]:
    """The slots of a slot's domain, itself included; itself alone when no domain has it."""
    return next((each for each in domains(profile) if slot in each), [slot])


def engine_of_slot(profile: NodeProfile, slot: int) -> str | None:
    """The engine that owns a slot."""
    return next((name for name, engine in profile.engines.items() if slot in engine.gpus), None)
