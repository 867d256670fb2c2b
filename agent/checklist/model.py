"""What a checklist is: ordered steps as data, each a check, a measured test, a question or the gate."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from agent.checklist.conditions import Condition
from agent.checklist.record import StepKind
from agent.model import Verdict

#: How a step or checklist is named, in files and on the command line.
NAME = r"^[a-z0-9][a-z0-9-]{0,62}$"
#: The longest that one step may take, in seconds: a day.
LONGEST_S = 86_400.0
#: What ends a step well; SKIP is a step that this node leaves out.
GOOD = frozenset({Verdict.PASS, Verdict.WARN, Verdict.SKIP})

Text = Annotated[str, Field(min_length=1, max_length=1000)]
Seconds = Annotated[float, Field(gt=0, le=LONGEST_S)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class _Step(_Strict):
    """What every step has."""

    id: str = Field(pattern=NAME, description="Name of the step, once in its checklist")
    title: str = Field(min_length=1, max_length=120, description="One line for people")
    why: Text = Field(description="What this step is for")
    timeout_s: Seconds = Field(description="Seconds after which it has not passed")
    on_fail: Text = Field(description="What to do when it fails")
    when: list[Condition] = Field(
        default_factory=list, description="What the profile must have; else the step is left out"
    )
    again_after_reboot: bool = Field(True, description="A resumed run does it again after a reboot")


class CheckStep(_Step):
    """Checks of this node, read anew."""

    check: list[str] = Field(min_length=1, description="Globs of ids of checks of phase maintenance")
    via: Literal["node", "daemon"] = Field(
        "node", description="Who reads: this command, or the daemon (what needs its rights or its history)"
    )
    needs_evidence: bool = Field(
        False, description="UNKNOWN counts also where the evidence may be out of reach for good"
    )


class MeasureStep(_Step):
    """A measured test."""

    measure: str = Field(description="Name of the measured test")
    params: dict[str, Any] = Field(default_factory=dict, description="Its parameters")


class Choice(_Strict):
    """One answer that can be given."""

    answer: str = Field(pattern=NAME, description="The word to answer with")
    means: Text = Field(description="What it means")
    verdict: Verdict = Field(description="What it makes of the step")


class Number(_Strict):
    """An answer that is a number; one outside of the limits fails."""

    unit: str = Field(description="Unit of the number")
    min: float | None = Field(None, description="Least number that passes")
    max: float | None = Field(None, description="Largest number that passes")


class QuestionStep(_Step):
    """Something that no sensor tells: an operator answers with name."""

    question: Text = Field(description="What is asked")
    choices: list[Choice] = Field(default_factory=list, description="The answers, unless a number is asked")
    number: Number | None = Field(None, description="The number that is asked")
    stands_in_for: str | None = Field(
        None, description="Asked only where this earlier step found no evidence (SKIP or UNKNOWN)"
    )
    again_after_reboot: bool = Field(False, description="A resumed run asks again after a reboot")


class GateWork(_Strict):
    """How the gate is opened again."""

    soak_s: float = Field(180.0, ge=0, le=LONGEST_S, description="Least seconds of the engines' soak")


class GateStep(_Step):
    """Ends maintenance and quarantine, then waits until the engines' gates are open."""

    gate: GateWork = Field(description="How the gate is opened")


Step = CheckStep | MeasureStep | QuestionStep | GateStep
#: The key that says of which kind a step is.
KINDS: dict[StepKind, type[Step]] = {
    "check": CheckStep,
    "measure": MeasureStep,
    "question": QuestionStep,
    "gate": GateStep,
}


class Head(_Strict):
    """A checklist without its steps."""

    name: str = Field(pattern=NAME, description="What it is called by")
    title: str = Field(min_length=1, max_length=120, description="One line for people")
    why: Text = Field(description="When to run it, and what it proves")
    covers: list[str] = Field(
        default_factory=list, description="Checklists whose every step it has: it counts as these, too"
    )
    needs: Literal["closed", "any"] = Field(
        "any", description="closed: no gate may be open while it runs, for it loads or stops what serves"
    )


class Checklist(Head):
    """A whole checklist."""

    steps: tuple[Step, ...]

    @property
    def gate(self) -> int | None:
        """Place of the gate step, None without one."""
        return next((i for i, step in enumerate(self.steps) if isinstance(step, GateStep)), None)

    @property
    def definition(self) -> str:
        """SHA-256 (hex) over all that it says, so that a record shows which steps it has gone through."""
        data = self.model_dump(mode="json")
        return hashlib.sha256(json.dumps(data, sort_keys=True).encode("ascii")).hexdigest()


def kind_of(step: Step) -> StepKind:
    """Of which kind a step is."""
    return next(kind for kind, model in KINDS.items() if isinstance(step, model))
