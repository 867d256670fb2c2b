"""The record of one run of a checklist: written after every step; reports and the daemon read it.

Times are seconds since the epoch (`_wall_s`); points of a curve are (seconds since the run began, value).
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from agent.model import Verdict

StepKind = Literal["check", "measure", "question", "gate"]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class Answer(_Strict):
    """What an operator said where no sensor exists."""

    text: str
    who: str
    at_wall_s: float


class Value(_Strict):
    """One measured figure of a step; `expected` says what it was held against, None where it is only told."""

    name: str
    subject: str
    value: float
    unit: str
    expected: str | None = None
    verdict: Verdict = Verdict.PASS


class StepFinding(_Strict):
    """One finding of a check, as the step saw it."""

    check: str
    subject: str
    verdict: Verdict
    observed: str = ""
    expected: str = ""
    unit: str = ""
    summary: str = ""
    hint: str = ""


class StepRecord(_Strict):
    """One step; `verdict` is None until it has ended."""

    id: str
    title: str
    kind: StepKind
    verdict: Verdict | None = None
    started_wall_s: float | None = None
    ended_wall_s: float | None = None
    attempts: int = 0
    summary: str = ""
    hint: str = ""
    findings: list[StepFinding] = Field(default_factory=list)
    values: list[Value] = Field(default_factory=list)
    answer: Answer | None = None


class Curve(_Strict):
    """One quantity of one subject over the run, recorded during one step."""

    step: str
    name: str
    subject: str
    unit: str
    points: list[tuple[float, float]] = Field(default_factory=list)


class RunRecord(_Strict):
    """One run. `verdict` is None while it goes on; `outcome`: what it did to maintenance, quarantine."""

    schema_version: Literal[1] = 1
    run_id: str
    checklist: str
    title: str
    node: str
    simulated: bool
    profile_hash: str
    boot_id: str
    #: Hash over UUIDs of GPUs and serial numbers of NICs and board: another part makes the run void.
    hardware: str
    #: The parts behind that hash, by place: what differs can be named (agent/checklist/hardware.py).
    parts: dict[str, str] = Field(default_factory=dict)
    #: SHA-256 over the checklist's definition: a record of other steps proves nothing.
    definition: str = ""
    #: Whose checklist it was: nodegate's, the site's (checklists_dir), or a file named on the command line.
    origin: Literal["shipped", "site", "file"] = "file"
    #: Numbers of the checklist that `--set` has lowered; such a run proves less than its name says.
    shortened: list[str] = Field(default_factory=list)
    who: str
    reason: str
    started_wall_s: float
    ended_wall_s: float | None = None
    resumed: int = 0
    verdict: Verdict | None = None
    outcome: list[str] = Field(default_factory=list)
    steps: list[StepRecord] = Field(default_factory=list)
    curves: list[Curve] = Field(default_factory=list)
