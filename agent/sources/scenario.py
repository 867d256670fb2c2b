"""Scenario files: what changes on a captured node, and when. Pure: a file becomes steps and edits.

A path is `nvml.gpus.3.thermal.margin_c`, `nvml.system`, `net.eth2.link.operstate`, or a file such as
`sys/class/infiniband/mlx5_0/ports/1/state` (every path with a slash).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agent.sources.documents import one_problem, read_yaml

_PathText = Annotated[str, Field(min_length=1, max_length=1000)]
_KmsgText = Annotated[str, Field(pattern=r"^[0-7];[^\n]+$", max_length=4096)]
_Seconds = Annotated[float, Field(ge=0, le=1e7, allow_inf_nan=False)]


class StepModel(BaseModel):
    """One step as it is written."""

    model_config = ConfigDict(extra="forbid", strict=True)

    at_s: _Seconds
    say: Annotated[str, Field(max_length=500)] | None = None
    set: dict[_PathText, Any] = Field(default_factory=dict)
    ramp_s: _Seconds = 0.0
    rate: dict[_PathText, Annotated[float, Field(ge=-1e15, le=1e15)]] = Field(default_factory=dict)
    reset: list[_PathText] = Field(default_factory=list)
    unset: list[_PathText] = Field(default_factory=list)
    files: dict[_PathText, Annotated[str, Field(max_length=1 << 20)] | None] = Field(default_factory=dict)
    kmsg: list[_KmsgText] = Field(default_factory=list)
    engine: dict[str, Literal["kill", "hang", "resume"]] = Field(default_factory=dict)


class ScenarioModel(BaseModel):
    """A scenario file as it is written."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: Annotated[str, Field(min_length=1, max_length=100)]
    description: Annotated[str, Field(max_length=4000)] = ""
    steps: Annotated[list[StepModel], Field(max_length=10_000)]


class Change(StrEnum):
    """What an edit does to a value."""

    SET = "set"
    RAMP = "ramp"
    RATE = "rate"
    RESET = "reset"


@dataclass(frozen=True, slots=True)
class Edit:
    """One change of one path; `key` is where it is written, for error messages."""

    at_s: float
    path: str
    change: Change
    value: Any
    ramp_s: float
    key: str


@dataclass(frozen=True, slots=True)
class KmsgLine:
    """One kernel log line that appears at a time."""

    at_s: float
    level: int
    text: str


@dataclass(frozen=True, slots=True)
class EngineStep:
    """What happens to an engine's process: kill, hang or resume (the embedded engine obeys)."""

    at_s: float
    engine: str
    action: str


@dataclass(frozen=True, slots=True)
class Step:
    """What happens at one time."""

    at_s: float
    say: str | None
    edits: tuple[Edit, ...]
    kmsg: tuple[KmsgLine, ...]
    engine: tuple[EngineStep, ...]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario, its steps in order of time."""

    name: str
    description: str
    steps: tuple[Step, ...]
    where: str = ""

    @property
    def edits(self) -> tuple[Edit, ...]:
        """All edits in order of time."""
        return tuple(edit for step in self.steps for edit in step.edits)


NO_SCENARIO = Scenario("none", "", ())


def load_scenario(path: Path) -> Scenario:
    """Read a scenario file; whether its paths exist is told by Timeline. Raises ConfigError."""
    data = read_yaml(path)
    try:
        model = ScenarioModel.model_validate(data)
    except ValidationError as error:
        raise one_problem(error, data, str(path)) from error
    steps = [_step(i, step) for i, step in enumerate(model.steps)]
    steps.sort(key=lambda step: step.at_s)  # stable: steps of one time stay in the order of the file
    return Scenario(model.name, model.description, tuple(steps), str(path))


def _step(index: int, model: StepModel) -> Step:
    def edit(section: str, path: str, change: Change, value: Any = None) -> Edit:
        return Edit(model.at_s, path, change, value, model.ramp_s, f"steps.{index}.{section}.{path}")

    setting = Change.RAMP if model.ramp_s else Change.SET
    edits = [edit("reset", path, Change.RESET) for path in [*model.reset, *model.unset]]
    edits += [edit("set", path, setting, value) for path, value in model.set.items()]
    edits += [edit("files", path, Change.SET, text) for path, text in model.files.items()]
    edits += [edit("rate", path, Change.RATE, value) for path, value in model.rate.items()]
    return Step(
        at_s=model.at_s,
        say=model.say,
        edits=tuple(edits),
        kmsg=tuple(KmsgLine(model.at_s, int(line[0]), line[2:]) for line in model.kmsg),
        engine=tuple(EngineStep(model.at_s, name, action) for name, action in model.engine.items()),
    )
