"""Read a checklist from its file: what it names must be there, and every fault has file and line."""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from agent.checklist.measure import Measure, measures
from agent.checklist.model import (
    KINDS,
    Checklist,
    CheckStep,
    GateStep,
    Head,
    MeasureStep,
    QuestionStep,
    Step,
)
from agent.checklist.record import StepKind
from agent.checks.registry import Check, load_all
from agent.errors import ConfigError
from agent.model import Phase
from agent.profile_loader import LoadedProfile
from agent.profile_schema import validate_tree
from agent.profile_tree import Items, Mark, Table, find, mark_of, without
from agent.profile_tree import Path as TreePath
from agent.profile_yaml import read_layer, shown_path

#: The checklists that come with nodegate.
SHIPPED = Path(__file__).parents[1] / "checklists"
#: More steps than any checklist has.
MOST_STEPS = 200


def shipped_names() -> list[str]:
    """Names of the checklists that come with nodegate."""
    return sorted(path.stem for path in SHIPPED.glob("*.yaml"))


def available(own: Path | None) -> dict[str, Path]:
    """Checklists by name: the shipped ones, and those of a site's folder, which go before them."""
    found = {name: SHIPPED / f"{name}.yaml" for name in shipped_names()}
    if own is None:
        return found
    try:
        found |= {path.stem: path for path in sorted(own.glob("*.yaml"))} if own.is_dir() else {}
    except OSError as cause:
        reason = cause.strerror or str(cause)
        raise ConfigError(f"cannot be read: {reason}", where=str(own)) from cause
    return found


def own_of(loaded: LoadedProfile) -> Path | None:
    """The site's folder of checklists, None without one."""
    folder = loaded.profile.checklists_dir
    return None if folder is None else Path(folder)


def origin_of(name: str, own: Path | None) -> Literal["shipped", "site"]:
    """Whose checklist a name means. Raises ConfigError."""
    path = available(own).get(name)
    return "shipped" if path is not None and path.parent == SHIPPED else "site"


def load_named(name: str, own: Path | None) -> Checklist:
    """The checklist of a name. Raises ConfigError."""
    known = available(own)
    if name not in known:
        near = difflib.get_close_matches(name, known, 1)
        remedy = f"did you mean {near[0]}?" if near else f"there are: {', '.join(sorted(known))}"
        raise ConfigError(f"no checklist is named {name!r}", remedy=remedy)
    return load_checklist(known[name])


def load_checklist(path: Path) -> Checklist:
    """Read one file. Raises ConfigError for the first fault, with file and line."""
    if not path.is_file():
        raise ConfigError("there is no checklist here", where=shown_path(path))
    root = read_layer(path, path.stem)
    head = _typed(Head, _head(root), ())
    assert isinstance(head, Head)
    if head.name != path.stem:
        raise _fault(root, ("name",), f"the file is named {path.stem}", "give both the same name")
    items = find(root, ("steps",))
    count = len(items.items) if isinstance(items, Items) else 0
    if not 0 < count <= MOST_STEPS:
        raise _fault(root, ("steps",), f"steps must be a list of 1 to {MOST_STEPS} steps", None)
    steps = tuple(_step(root, ("steps", str(i))) for i in range(count))
    _refuse_contradictions(root, steps)
    return Checklist(**head.model_dump(), steps=steps)


def _head(root: Table) -> Table:
    """The map without its steps."""
    head = without(root, ("steps",))
    assert isinstance(head, Table)
    return head


def _typed(model: type[BaseModel], root: Table, at: TreePath) -> BaseModel:
    """A part of the tree as its model. Raises ConfigError for its first fault."""
    typed = validate_tree(model, root, at=at)
    if typed.model is None:
        raise typed.faults[0]
    return typed.model


def _step(root: Table, at: TreePath) -> Step:
    """One step, with all that it names looked up."""
    node = find(root, at)
    kinds: list[StepKind] = [kind for kind in KINDS if isinstance(node, Table) and kind in node.entries]
    if len(kinds) != 1:
        raise _fault(
            root, at, "a step is one of check, measure, question and gate", "write one of these keys"
        )
    step = _typed(KINDS[kinds[0]], root, at)
    if isinstance(step, CheckStep):
        _refuse_unknown_checks(root, at, step, load_all())
    elif isinstance(step, MeasureStep):
        params = _params(root, at, step, measures())
        return step.model_copy(update={"params": params.model_dump(mode="json")})
    elif isinstance(step, QuestionStep):
        _refuse_no_answer(root, at, step)
    assert isinstance(step, Step)
    return step


def _refuse_unknown_checks(root: Table, at: TreePath, step: CheckStep, checks: Mapping[str, Check]) -> None:
    ids = [id_ for id_, check in checks.items() if step.via == "daemon" or Phase.MAINTENANCE in check.phases]
    for i, glob in enumerate(step.check):
        if not any(fnmatch.fnmatchcase(id_, glob) for id_ in ids):
            near = difflib.get_close_matches(glob, ids, 1)
            remedy = f"did you mean {near[0]}?" if near else "`nodegate check` lists them"
            raise _fault(root, (*at, "check", str(i)), f"no check matches {glob!r}", remedy)


def _params(root: Table, at: TreePath, step: MeasureStep, known: Mapping[str, Measure]) -> BaseModel:
    """The parameters of a measured test. Raises ConfigError for a test or parameter that is not there."""
    found = known.get(step.measure)
    if found is None:
        near = difflib.get_close_matches(step.measure, known, 1)
        remedy = f"did you mean {near[0]}?" if near else f"there are: {', '.join(sorted(known)) or 'none'}"
        raise _fault(root, (*at, "measure"), f"there is no measured test {step.measure!r}", remedy)
    return _typed(found.params, root, (*at, "params"))


def _refuse_no_answer(root: Table, at: TreePath, step: QuestionStep) -> None:
    if bool(step.choices) == (step.number is not None):
        raise _fault(root, at, "a question has either choices or a number", "write one of the two")
    words = [choice.answer for choice in step.choices]
    if len(set(words)) < len(words):
        raise _fault(root, (*at, "choices"), "two choices have the same answer", "keep one of the two")


def _refuse_contradictions(root: Table, steps: tuple[Step, ...]) -> None:
    """What each step alone cannot see."""
    seen: dict[str, Step] = {}
    gates = 0
    for i, step in enumerate(steps):
        at = ("steps", str(i))
        if step.id in seen:
            raise _fault(root, (*at, "id"), f"step {step.id} is there twice", "name one of them otherwise")
        gates += isinstance(step, GateStep)
        if gates > 1:
            raise _fault(root, at, "a second gate step", "keep one")
        if isinstance(step, QuestionStep) and step.stands_in_for is not None:
            before = steps[i - 1] if i else None
            if not isinstance(before, CheckStep) or before.id != step.stands_in_for:
                problem = f"the step before it is no check step {step.stands_in_for!r}"
                raise _fault(root, (*at, "stands_in_for"), problem, "put the question right after that step")
        seen[step.id] = step


def _fault(root: Table, path: TreePath, problem: str, remedy: str | None) -> ConfigError:
    mark: Mark = mark_of(root, path)
    return ConfigError(problem, where=mark.where, remedy=remedy)


def with_settings(checklist: Checklist, settings: Mapping[str, float]) -> tuple[Checklist, list[str]]:
    """The checklist with numbers set otherwise (`step.param`), and what that shortened.

    Raises ConfigError for a number that is not there or is raised: less can be proven, never more waited.
    """
    steps = {step.id: step for step in checklist.steps}
    shortened = []
    for key, value in settings.items():
        id_, _, name = key.partition(".")
        step = steps.get(id_)
        place: dict[str, Any] = (
            step.params
            if isinstance(step, MeasureStep)
            else step.gate.model_dump()
            if isinstance(step, GateStep)
            else {}
        )
        now = place.get(name)
        if step is None or isinstance(now, bool) or not isinstance(now, int | float):
            raise ConfigError(
                f"--set {key}: there is no such number", remedy="`checklist show NAME` lists them"
            )
        if not 0 <= value <= now:
            raise ConfigError(f"--set {key}={value:g}: only less than {now:g} can be set, and not below 0")
        if value < now:
            shortened.append(f"{key} {value:g} of {now:g}")
        place = {**place, name: type(now)(value)}
        changed = {"params": _checked(step, place)} if isinstance(step, MeasureStep) else {"gate": place}
        steps[id_] = type(step).model_validate({**step.model_dump(), **changed})
    return checklist.model_copy(
        update={"steps": tuple(steps[step.id] for step in checklist.steps)}
    ), shortened


def _checked(step: MeasureStep, params: dict[str, Any]) -> dict[str, Any]:
    try:
        return measures()[step.measure].params.model_validate(params).model_dump(mode="json")
    except ValueError as cause:
        raise ConfigError(f"--set {step.id}: {str(cause).splitlines()[-1].strip()}") from cause
