"""Scenario files: what changes on a captured node, and when. Pure: a file becomes steps and edits.


A path is `nvml.gpus.3.thermal.margin_c`, `nvml.system`, `net.eth2.link.operstate`, or a file such as
`sys/class/infiniband/mlx5_0/ports/1/state` (every path with a slash). Names with dots and slashes in them
have a kind before a colon: `units:nvidia-persistenced.service`, `disks:/`, `mounts:/models`, `clock:`,
`reach:10.0.0.2:29500`, `bmc:node`, `bmc:node:/redfish/v1/Systems/1`. A step has a section for each of those
kinds, whose values are laid over the captured ones, key by key; null = gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agent.sources.documents import one_problem, read_yaml
from agent.sources.node_model import is_refused

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
    files: dict[_PathText, Any] = Field(default_factory=dict)
    units: dict[_PathText, Any] = Field(default_factory=dict)
    disks: dict[_PathText, Any] = Field(default_factory=dict)
    mounts: dict[_PathText, Any] = Field(default_factory=dict)
    clock: dict[_PathText, Any] = Field(default_factory=dict)
    reach: dict[_PathText, Any] = Field(default_factory=dict)
    bmc: dict[_PathText, dict[_PathText, Any]] = Field(default_factory=dict)
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
    MERGE = "merge"
    RAMP = "ramp"
    RATE = "rate"
    RESET = "reset"


@dataclass(frozen=True, slots=True)
class Edit:
    """One change of one path, or of what `below` leads to in it; `key` is where it is written."""

    at_s: float
    path: str
    change: Change
    value: Any
    ramp_s: float
    key: str
    below: tuple[str, ...] = ()


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
    edits += _host_edits(index, model)
    edits += [edit("rate", path, Change.RATE, value) for path, value in model.rate.items()]
    return Step(
        at_s=model.at_s,
        say=model.say,
        edits=tuple(edits),
        kmsg=tuple(KmsgLine(model.at_s, int(line[0]), line[2:]) for line in model.kmsg),
        engine=tuple(EngineStep(model.at_s, name, action) for name, action in model.engine.items()),
    )


def _host_edits(index: int, model: StepModel) -> list[Edit]:
    """The edits of the sections that have paths of their own kind."""
    sections: list[tuple[str, str, Any]] = [
        (f"{kind}.{name}", f"{kind}:{name}", value)
        for kind in ("units", "disks", "mounts", "reach")
        for name, value in getattr(model, kind).items()
    ]
    if model.clock:
        sections.append(("clock", "clock:", model.clock))
    for service, documents in model.bmc.items():
        if is_refused(documents):
            sections.append((f"bmc.{service}", f"bmc:{service}", documents))
            continue
        sections += [(f"bmc.{service}.{path}", f"bmc:{service}:{path}", d) for path, d in documents.items()]
    return [
        edit
        for key, path, value in sections
        for edit in _laid_over(model, path, value, f"steps.{index}.{key}")
    ]


def _laid_over(model: StepModel, path: str, value: Any, key: str) -> Iterator[Edit]:
    """A value laid over the captured one; with ramp_s its numbers move there one by one."""
    if not isinstance(value, Mapping) or is_refused(value):
        yield Edit(model.at_s, path, Change.SET, value, 0.0, key)
        return
    if not model.ramp_s:
        yield Edit(model.at_s, path, Change.MERGE, value, 0.0, key)
        return
    moving, rest = _numbers(value)
    if rest:
        yield Edit(model.at_s, path, Change.MERGE, rest, 0.0, key)
    for below, number in moving.items():
        yield Edit(model.at_s, path, Change.RAMP, number, model.ramp_s, f"{key}.{'.'.join(below)}", below)


def _numbers(value: Mapping[Any, Any]) -> tuple[dict[tuple[str, ...], int | float], dict[Any, Any]]:
    """The numbers in a value by the keys that lead there, and the value without them."""
    moving: dict[tuple[str, ...], int | float] = {}
    rest: dict[Any, Any] = {}
    for key, item in value.items():
        if isinstance(item, Mapping) and not is_refused(item):
            inner, other = _numbers(item)
            moving |= {(str(key), *below): number for below, number in inner.items()}
            if other:
                rest[key] = other
        elif isinstance(item, int | float) and not isinstance(item, bool):
            moving[(str(key),)] = item
        else:
            rest[key] = item
    return moving, rest
