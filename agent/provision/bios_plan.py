"""What has to be done so that the BIOS is as the profile asks. Pure: wants, what there is, registry -> plan.

Settings wait between PATCH and reset, so each attribute has two values: the one that the machine runs with
and the one that it will have. A plan with a problem is not begun.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent.bios.resolve import Want
from agent.bios.values import Value, same
from agent.checks.redfish_tree import said
from agent.provision.bios_registry import Registry


@dataclass(frozen=True, slots=True)
class Step:
    """One attribute that is not as wanted; `waiting` = it is staged already."""

    name: str
    field: str
    current: Any
    next: Any
    value: Value
    waiting: bool = False
    follows: bool = False

    def drift(self) -> dict[str, Any]:
        """As a report shows it."""
        return {
            "field": self.field, "name": self.name, "before": self.current, "after": self.value,
            "pending": self.waiting,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Plan:
    """What to stage, what waits for a reset, what waits that nobody asked for, and what forbids it all."""

    steps: tuple[Step, ...] = ()
    foreign: Mapping[str, Any] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    @property
    def to_stage(self) -> dict[str, Value]:
        """The body of the PATCH."""
        return {step.name: step.value for step in self.steps if not step.waiting and not step.follows}

    @property
    def waiting(self) -> list[str]:
        """Attributes of ours that a reset will make right."""
        return [step.name for step in self.steps if step.waiting]


def pending_of(current: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """What a reset would change: settings objects show only that, or all attributes."""
    return {
        name: value
        for name, value in settings.items()
        if name in current and value is not None and not same(current[name], value)
    }


def make_plan(
    wants: Sequence[Want], current: Mapping[str, Any], pending: Mapping[str, Any], registry: Registry | None
) -> Plan:
    """Compare each want with both values, and with what the registry allows."""
    problems: list[str] = []
    chosen: dict[str, Value] = {}
    for want in wants:
        value, problem = _value(want, current, registry)
        if problem:
            problems.append(f"{want.field}: {problem}")
        elif value is not None:
            chosen[want.name] = value
    then = {**current, **pending, **chosen}
    steps: list[Step] = []
    for want in wants:
        if want.name not in chosen:
            continue
        step = _step(want, chosen[want.name], current, pending)
        if step is None:
            problems += _undone(want, chosen[want.name], registry, then)
            continue
        step, problem = _allowed(step, registry, current, then) if not step.waiting else (step, "")
        steps.append(step)
        if problem:
            problems.append(f"{want.field}: {problem}")
    if steps and all(step.follows for step in steps):
        problems += [_stuck(step) for step in steps]
    ours = {want.name for want in wants}
    foreign = {name: value for name, value in pending.items() if name not in ours}
    return Plan(tuple(steps), _not_implied(foreign, registry, then), tuple(problems))


def _value(want: Want, current: Mapping[str, Any], registry: Registry | None) -> tuple[Value | None, str]:
    """What to write for a want; the value that it has already if that is a right one."""
    seen = current[want.name]
    if want.met(seen) and isinstance(seen, str | int):
        return seen, ""
    if registry is None:
        return _as_seen(want.values[0], seen), ""
    if want.name not in registry.attributes:
        return None, f"the BIOS's registry does not know {want.name}, though it shows it; it cannot be set"
    return registry.value_to_write(want.name, want.values, seen)


def _as_seen(value: Value, seen: Any) -> Value:
    """Without a registry: in the type that the attribute has now."""
    if isinstance(seen, bool):
        return {"true": True, "false": False}.get(str(value).lower(), value)
    if isinstance(seen, str):
        return str(value)
    if isinstance(seen, int) and str(value).lstrip("-").isdigit():
        return int(value)
    return value


def _step(want: Want, value: Value, current: Mapping[str, Any], pending: Mapping[str, Any]) -> Step | None:
    """None if the attribute is right and stays so."""
    seen = current[want.name]
    coming = pending.get(want.name, seen)
    if want.met(seen) and want.met(coming):
        return None
    return Step(want.name, want.field, seen, coming, value, want.met(coming), want.follows)


def _allowed(
    step: Step, registry: Registry | None, now: Mapping[str, Any], then: Mapping[str, Any]
) -> tuple[Step, str]:
    """The step, as one that follows if the BIOS sees to it by itself; and why it cannot be done."""
    if registry is None or step.name not in registry.attributes or step.follows:
        return step, ""
    implied = registry.implied(step.name, then)
    lock = registry.lock(step.name, now, then)
    if implied is not None and not same(implied.value, step.value):
        words = f"{step.name} becomes {said(str(implied.value))} while {implied.words(then)}"
        return step, f"{words}, but {step.value} is asked for"
    if lock and implied is not None:
        return Step(step.name, step.field, step.current, step.next, step.value, False, True), ""
    return step, lock


def _undone(want: Want, value: Value, registry: Registry | None, then: Mapping[str, Any]) -> list[str]:
    """An attribute that is right, and that another setting of ours would make wrong."""
    implied = registry.implied(want.name, then) if registry is not None else None
    if implied is None or want.met(implied.value):
        return []
    words = f"{want.name} becomes {said(str(implied.value))} while {implied.words(then)}"
    return [f"{want.field}: {words}, but {value} is asked for"]


def _not_implied(
    foreign: Mapping[str, Any], registry: Registry | None, then: Mapping[str, Any]
) -> dict[str, Any]:
    """Without what the BIOS changes by itself because of a setting of ours, and what nobody can set."""
    if registry is None:
        return dict(foreign)
    found = {}
    for name, value in foreign.items():
        known, implied = registry.attributes.get(name), registry.implied(name, then)
        if implied is not None and same(implied.value, value):
            continue
        if known is not None and known.read_only and not any(d.target == name for d in registry.dependencies):
            continue
        found[name] = value
    return found


def _stuck(step: Step) -> str:
    """Nothing is left to set, and what the BIOS should have seen to by itself is not so."""
    words = f"{step.name} is {said(str(step.current))}, expected {step.value}"
    return f"{step.field}: {words}: the BIOS's own profile did not set it; write it under bmc.bios"
