"""Bring the BMC's firmware to what the profile asks for: plan, prove the files, write, activate.

With any doubt nothing is written. A step that fails ends the run, which says what has been done and what not;
the next run reads first and goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from agent.bmc_profile import Bmc
from agent.errors import AgentError
from agent.provision.firmware_activate import STRENGTH, Action, Acts, activate, find_action
from agent.provision.firmware_inventory import read_inventory
from agent.provision.firmware_plan import Plan, State, Step, place_of, plan
from agent.provision.firmware_push import (
    ImageRefused,
    check_takes,
    follow_running,
    push,
    update_service,
    verify_file,
)
from agent.provision.redfish_words import TaskFailed, TaskLate, TaskLost, Uncertain

#: A look while the BMC may be away, and how long versions may take to show after a task has ended.
_LOOK_S, _POLL_S = 20.0, 5.0


@dataclass(frozen=True, slots=True)
class Options:
    """What a run may do, where images lie, and who is told of progress."""

    beside: Path
    check: bool = False
    allow_reset: bool = False
    allow_downgrade: bool = False
    tell: Callable[[str], None] = print


@dataclass(slots=True)
class Outcome:
    """What a run found and did; `problems` are lines for a person, and mean failure."""

    changed: bool = False
    drift: list[dict[str, Any]] = field(default_factory=list)
    before: dict[str, str] = field(default_factory=dict)
    after: dict[str, str] = field(default_factory=dict)
    pending: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    reboot_required: bool = False
    activated: bool = False
    notes: list[str] = field(default_factory=list)

    def result(self) -> dict[str, Any]:
        """As Ansible takes it."""
        return {
            "changed": self.changed,
            "diff": {"before": _lines(self.before), "after": _lines(self.after)},
            "drift": self.drift,
            "pending": self.pending,
            "reboot_required": self.reboot_required,
            "activated": self.activated,
            "msg": "; ".join(self.problems or self.notes) or "firmware is as the profile asks",
        }


def run(bmc: Acts, wanted: Bmc, options: Options) -> Outcome:
    """Do it all; what fails is in the outcome's problems."""
    outcome = Outcome()
    if not wanted.images and not wanted.firmware:
        return outcome
    try:
        job = _Run(bmc, wanted, options, outcome)
        first = job.plan()
        _tell_plan(outcome, first)
        if not outcome.problems and first.due:
            job.apply(first)
    except AgentError as cause:
        outcome.problems.append(str(cause))
    return outcome


def _tell_plan(outcome: Outcome, found: Plan) -> None:
    outcome.problems += [f"{problem}" for problem in found.problems]
    for step in found.steps:
        outcome.drift += step.drift()
    outcome.before = {each["name"]: each["before"] for each in outcome.drift}
    outcome.after = {each["name"]: each["after"] for each in outcome.drift}


def _lines(versions: Mapping[str, str]) -> str:
    return "".join(f"{id_}: {version}\n" for id_, version in versions.items())


@dataclass(slots=True)
class _Run:
    bmc: Acts
    wanted: Bmc
    options: Options
    outcome: Outcome
    done: list[str] = field(default_factory=list)

    def plan(self, names: Iterable[str] | None = None, patience_s: float | None = None) -> Plan:
        """What is to be done now, for all images or some."""
        every = self.wanted.images
        images = every if names is None else {name: every[name] for name in names}
        least = self.wanted.firmware if names is None else {}
        patterns = [*least, *(pattern for image in images.values() for pattern in image.versions)]
        inventory = read_inventory(self.bmc, patterns, patience_s=patience_s)
        return plan(images, inventory, least=least, allow_downgrade=self.options.allow_downgrade)

    def apply(self, first: Plan) -> None:
        """Everything that can refuse is asked before the first byte is sent; then place by place."""
        paths, service, actions = self._prove(first)
        if self.options.check:
            self._foretell(first)
            return
        left = [step.name for step in first.due]
        try:
            for _place, group in groupby(first.due, key=lambda step: place_of(step.image)):
                steps = list(group)
                for step in steps:
                    if step.state is State.UPDATE:
                        self._write(step, paths[step.name], service)
                waiting = self._waiting(steps)
                if waiting and not self.options.allow_reset:
                    self._tell_pending(waiting, held=[name for name in left if name not in _names(steps)])
                    return
                if waiting:
                    self._make_run(steps, waiting, actions)
                self.done += [f"{name} runs" for name in _names(steps)]
                left = [name for name in left if name not in _names(steps)]
        except AgentError as cause:
            done = f"done: {', '.join(self.done)}" if self.done else "nothing was changed before"
            raise ImageRefused(f"{cause}; {done}; not done: {', '.join(left)}") from None

    def _foretell(self, first: Plan) -> None:
        """What a run would do: without leave to reset, what comes after the first wait is held back."""
        if self.options.allow_reset:
            self.outcome.changed = True
        for _place, group in groupby(first.due, key=lambda step: place_of(step.image)):
            steps = list(group)
            self.outcome.changed |= any(step.state is State.UPDATE for step in steps)
            if any(step.image.activation != "none" for step in steps) and not self.options.allow_reset:
                break
        self._tell_pending([step for step in first.due if step.state is State.PENDING])

    def _prove(self, found: Plan) -> tuple[dict[str, Path], dict[str, Any], dict[str, Action]]:
        updates = [step for step in found.due if step.state is State.UPDATE]
        paths = {step.name: verify_file(step.name, step.image, self.options.beside) for step in updates}
        service = update_service(self.bmc) if updates else {}
        for step in updates:
            check_takes(service, step.name, step.image, paths[step.name])
        kinds = (
            {step.image.activation for step in found.due} - {"none"} if self.options.allow_reset else set()
        )
        return paths, service, {kind: find_action(self.bmc, kind) for kind in sorted(kinds)}

    def _write(self, step: Step, path: Path, service: Mapping[str, Any]) -> None:
        """Send one image; if its task or answer is lost, what the BMC has then decides."""
        self.outcome.changed = True
        if self._is_written_meanwhile(step):
            self.done.append(f"{step.name} written")
            return
        verify_file(step.name, step.image, self.options.beside)
        try:
            push(self.bmc, service, step, path, self.options.tell)
        except (TaskLost, Uncertain) as cause:
            self.options.tell(f"{step.name}: {cause}")
            # Nothing was being written before, so what is written now is this image.
            followed = follow_running(self.bmc, step, self.options.tell)
            if not followed and any(each.state is State.UPDATE for each in self._look([step.name])):
                raise ImageRefused(f"bmc.images.{step.name}: {cause}") from None
        self.done.append(f"{step.name} written")

    def _is_written_meanwhile(self, step: Step) -> bool:
        """Whether an update that a run before this one has started, and that still went on, has done it."""
        try:
            followed = follow_running(self.bmc, step, self.options.tell)
        except TaskLate:
            raise
        except TaskFailed as cause:
            self.options.tell(f"{step.name}: the update before this one: {cause}")
            return False
        return followed and not any(each.state is State.UPDATE for each in self._look([step.name]))

    def _waiting(self, steps: list[Step]) -> list[Step]:
        """Steps that are written and do not run yet; those without an activation must run by themselves."""
        names = _names(steps)
        end_s = self.bmc.mono_s() + max(
            (step.image.back_within_s for step in steps if step.image.activation == "none"), default=0.0
        )
        while True:
            due = self._look(names)
            alone = [step for step in due if step.image.activation == "none"]
            if not alone:
                return due
            if self.bmc.mono_s() >= end_s:
                raise ImageRefused(f"{_still(alone)} although the BMC calls the update complete")
            self.bmc.sleep(_POLL_S)

    def _look(self, names: list[str], patience_s: float | None = None) -> list[Step]:
        """Steps of those names that are not done. Raises ImageRefused for what is wrong now."""
        found = self.plan(names, patience_s)
        if found.problems:
            raise ImageRefused("; ".join(found.problems))
        return list(found.due)

    def _make_run(self, steps: list[Step], waiting: list[Step], actions: Mapping[str, Action]) -> None:
        """Activate; what an earlier run's task called written may be another part by now: then write it."""
        try:
            self._activate(waiting, actions)
        except ImageRefused as cause:
            stale = [step for step in steps if step.state is State.PENDING]
            if not stale:
                raise
            self.options.tell(f"{cause}; nothing of this run is written yet: writing it now")
            service = update_service(self.bmc)
            for step in stale:
                path = verify_file(step.name, step.image, self.options.beside)
                check_takes(service, step.name, step.image, path)
                push(self.bmc, service, step, path, self.options.tell)
                self.done.append(f"{step.name} written")
            self._activate(stale, actions)

    def _activate(self, steps: list[Step], actions: Mapping[str, Action]) -> None:
        kind = min((step.image.activation for step in steps), key=STRENGTH.index)
        self.outcome.changed = self.outcome.activated = True
        names = _names(steps)

        def is_done() -> str | None:
            found = self.plan(names, _LOOK_S)
            if found.problems:
                return "; ".join(found.problems)
            return _still(found.due) if found.due else None

        within_s = max(step.image.back_within_s for step in steps)
        activate(self.bmc, actions[kind], within_s, is_done, self.options.tell)

    def _tell_pending(self, steps: list[Step], held: Iterable[str] = ()) -> None:
        self.outcome.pending += [f"{step.name} ({step.image.activation})" for step in steps]
        self.outcome.notes += [
            f"{step.name} is written and waits for {step.image.activation}" for step in steps
        ]
        later = [*held]
        if later:
            self.outcome.notes.append(f"until then held back: {', '.join(later)}")
        self.outcome.reboot_required = bool(steps)


def _names(steps: Iterable[Step]) -> list[str]:
    return [step.name for step in steps]


def _still(steps: Iterable[Step]) -> str:
    rows = [row for step in steps for row in step.rows if row.state is not State.CURRENT]
    words = [f"{row.id} still runs {row.have}, not {row.want}" for row in rows[:4]]
    more = f" and {len(rows) - 4} more" if len(rows) > 4 else ""
    return ", ".join(words) + more
