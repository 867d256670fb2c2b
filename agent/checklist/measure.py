"""Measured tests: what a step of kind `measure` runs; each registers itself by name with its parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from agent.checklist.record import StepFinding, Value
from agent.model import Verdict

if TYPE_CHECKING:
    from agent.profile_loader import LoadedProfile
    from agent.sources import Sources


@dataclass(frozen=True)
class MeasureContext:
    """What a measured test is given. All times are seconds."""

    sources: Sources
    profile: LoadedProfile
    #: The test must have ended by then, by `sources.clock.mono_s()`.
    until_mono_s: float
    #: One line of progress for the person who waits.
    say: Callable[[str], None]
    #: Keep one point of a curve: quantity, subject, unit, value.
    keep: Callable[[str, str, str, float], None]
    #: Whether the operator has called the run off; asked at least every second.
    cancelled: Callable[[], bool]


@dataclass(frozen=True)
class MeasureOutcome:
    """What came of it. UNKNOWN says what could not be measured, never PASS without a measurement."""

    verdict: Verdict
    summary: str
    values: tuple[Value, ...] = ()
    findings: tuple[StepFinding, ...] = ()
    hint: str = ""


Run = Callable[[MeasureContext, Any], MeasureOutcome]


@dataclass(frozen=True)
class Measure:
    """A measured test: its parameters and how it runs."""

    name: str
    title: str
    params: type[BaseModel]
    run: Run


_MEASURES: dict[str, Measure] = {}


def measure(name: str, title: str, params: type[BaseModel]) -> Callable[[Run], Run]:
    """Register a measured test under a name that checklists use."""

    def register(run: Run) -> Run:
        assert name not in _MEASURES, f"measured test {name} is there twice"
        _MEASURES[name] = Measure(name, title, params, run)
        return run

    return register


def measures() -> Mapping[str, Measure]:
    """Every measured test by name; imports the modules that register them."""
    import agent.checklist.gate_answers
    import agent.measure  # noqa: F401

    return _MEASURES
