"""Bring the BIOS to what the profile asks for: resolve, check, stage with one PATCH, reset once, read again.

With any doubt nothing is written: a name or value that the BIOS does not have, an intent that no map knows, a
setting that waits and that nobody of us asked for. What a BMC takes in part is taken back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agent.bios.resolve import Resolution, asked_intents, resolve
from agent.bios.values import Value, same
from agent.bmc_profile import Bmc
from agent.checks.redfish_tree import said
from agent.errors import AgentError
from agent.provision.bios_plan import Plan, Step, make_plan, pending_of
from agent.provision.bios_reset import after_post, reset, wait_for_settings
from agent.provision.bios_state import Acts, State, read_again, read_registry, read_state
from agent.provision.redfish_words import Conflict, RedfishError, Refused, Uncertain

RESET_TIMEOUT_S = 1800.0
#: A BMC may take a moment to show what it has just been told.
_SHOWN_TRIES, _SHOWN_PAUSE_S = 5, 2.0


@dataclass(frozen=True, slots=True)
class Options:
    """What a run may do, and who is told of progress."""

    check: bool = False
    allow_reset: bool = False
    accept_pending: bool = False
    reset_type: str | None = None
    reset_timeout_s: float = RESET_TIMEOUT_S
    tell: Callable[[str], None] = lambda _line: None


@dataclass(slots=True)
class Outcome:
    """What a run found and did; `problems` are lines for a person, and mean failure."""

    changed: bool = False
    drift: list[dict[str, Any]] = field(default_factory=list)
    before: dict[str, str] = field(default_factory=dict)
    after: dict[str, str] = field(default_factory=dict)
    pending: list[str] = field(default_factory=list)
    reboot_required: bool = False
    activated: bool = False
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def result(self) -> dict[str, Any]:
        """As Ansible takes it."""
        found: dict[str, Any] = {
            "changed": self.changed,
            "diff": {"before": _lines(self.before), "after": _lines(self.after)},
            "drift": self.drift,
            "pending": self.pending,
            "reboot_required": self.reboot_required,
            "activated": self.activated,
            "msg": "; ".join(self.problems or self.notes) or "the BIOS is as the profile asks",
        }
        return found | ({"failed": True} if self.problems else {})


def asks_for_nothing(bmc: Bmc) -> bool:
    """Whether the profile leaves the BIOS alone."""
    return not (bmc.bios or bmc.bios_version or asked_intents(bmc))


def run(bmc: Acts, wanted: Bmc, options: Options) -> Outcome:
    """Do it all; what fails is in the outcome's problems."""
    outcome = Outcome()
    try:
        try:
            _settle(bmc, wanted, options, outcome)
        except Conflict:
            # Somebody else has written between our reading and our writing: look again, once.
            _clear(outcome)
            _settle(bmc, wanted, options, outcome)
    except AgentError as cause:
        outcome.problems.append(str(cause))
    return outcome


def _clear(outcome: Outcome) -> None:
    for each in (outcome.drift, outcome.before, outcome.after, outcome.pending, outcome.notes):
        each.clear()


def _settle(bmc: Acts, wanted: Bmc, options: Options, outcome: Outcome) -> None:
    state = read_state(bmc)
    if not state.current:
        where = f"{bmc.origin}{state.system_path}"
        raise RedfishError("shows no BIOS attributes", where=where, remedy="wait until POST is over")
    resolved = resolve(wanted, state.machine, state.current)
    plan = _plan(bmc, state, resolved)
    if plan.steps and state.in_post and not options.check:
        state = after_post(bmc, state, options.tell)
        resolved = resolve(wanted, state.machine, state.current)
        plan = _plan(bmc, state, resolved)
    _tell_version(wanted, state, outcome)
    _tell_plan(plan, outcome)
    outcome.problems += [str(fault) for fault in resolved.faults] + list(plan.problems)
    if plan.foreign and not options.accept_pending:
        outcome.problems.append(_foreign(bmc, plan.foreign))
    if outcome.problems:
        return
    _act(bmc, state, resolved, plan, options, outcome)


def _act(
    bmc: Acts, state: State, resolved: Resolution, plan: Plan, options: Options, outcome: Outcome
) -> None:
    to_stage, waits = plan.to_stage, bool(plan.waiting or plan.to_stage)
    outcome.changed = bool(to_stage) or (waits and options.allow_reset)
    outcome.pending = sorted({*plan.waiting, *to_stage, *plan.foreign})
    outcome.reboot_required = waits and not options.allow_reset
    if waits:
        outcome.notes.append(f"{len(plan.waiting) + len(to_stage)} BIOS settings wait for a reset")
    if options.check or not waits:
        return
    if to_stage:
        outcome.changed = False  # until it has been done
        _stage(bmc, state, to_stage)
        outcome.changed = True
    if not options.allow_reset:
        return

    def right(now: State) -> bool:
        return all(want.met(now.current.get(want.name)) for want in resolved.wants)

    if plan.waiting and not to_stage:
        _schedule(bmc, state, {step.name: step.value for step in plan.steps if step.waiting})
    outcome.reboot_required = True
    kind = reset(bmc, state, options.reset_type)
    outcome.changed = outcome.activated = True
    options.tell(f"{bmc.origin}: {kind} for {len(outcome.pending)} BIOS settings")
    now = wait_for_settings(bmc, state, right, options.reset_timeout_s, options.tell)
    outcome.reboot_required, outcome.pending = False, sorted(pending_of(now.current, now.staged))
    outcome.notes[-1:] = [f"{len(plan.steps)} BIOS settings changed and read again after a {kind}"]


def _plan(bmc: Acts, state: State, resolved: Resolution) -> Plan:
    """The registry is large: it is read only when something is to be changed."""
    pending = pending_of(state.current, state.staged)
    plan = make_plan(resolved.wants, state.current, pending, None)
    if plan.steps or plan.foreign:
        plan = make_plan(resolved.wants, state.current, pending, read_registry(bmc, state))
    return plan


def _stage(bmc: Acts, state: State, to_stage: Mapping[str, Value]) -> None:
    """One PATCH of all, then read: all of it is there, or what is there is taken back."""

    def settled(settings: Mapping[str, Any]) -> bool:
        shown = settings.get("Attributes")
        return isinstance(shown, Mapping) and not _missing(state.current, shown, to_stage)

    bmc.patch(state.settings_path, _body(state, to_stage), state.settings_etag, settled=settled)
    now = read_again(bmc, state.system_path)
    for _ in range(_SHOWN_TRIES - 1):
        if not _missing(now.current, now.staged, to_stage):
            return
        bmc.sleep(_SHOWN_PAUSE_S)
        now = read_again(bmc, state.system_path)
    missing = _missing(now.current, now.staged, to_stage)
    if not missing:
        return
    left = _take_back(bmc, state, now, [name for name in to_stage if name not in missing])
    end = f"; still staged: {', '.join(left)}" if left else "; nothing of it is left staged"
    raise RedfishError(
        f"the BMC took the change and did not stage {', '.join(missing)}{end}",
        where=f"{bmc.origin}{state.settings_path}",
        remedy="see the BMC's log; another setting may lock it",
    )


def _schedule(bmc: Acts, state: State, waiting: Mapping[str, Value]) -> None:
    """Have what was staged by others or long ago applied by the reset.

    Some BMCs (Dell) need a job for that, which a PATCH with an apply time makes; without one the settings
    wait for ever. Where the job is there already, the PATCH is refused.
    """
    if not state.takes_on_reset:
        return
    try:
        bmc.patch(state.settings_path, _body(state, waiting), state.settings_etag)
    except (Refused, Uncertain):
        return  # whether they are applied is read after the reset


def _missing(current: Mapping[str, Any], shown: Mapping[str, Any], wanted: Mapping[str, Value]) -> list[str]:
    """What is neither staged nor, on a BMC that applies at once, in force."""
    return [name for name, value in wanted.items() if not same(shown.get(name, current.get(name)), value)]


def _take_back(bmc: Acts, before: State, now: State, names: list[str]) -> list[str]:
    """Stage what was to come before; the names that are still otherwise."""
    old = {name: before.staged.get(name, before.current[name]) for name in names}
    if not old:
        return []
    try:
        bmc.patch(now.settings_path, _body(now, old), now.settings_etag)
        then = read_again(bmc, now.system_path)
        return _missing(then.current, then.staged, old)
    except AgentError:
        return names  # told as still staged, which is what a person has to know


def _body(state: State, attributes: Mapping[str, Value]) -> dict[str, Any]:
    body: dict[str, Any] = {"Attributes": dict(attributes)}
    if state.takes_on_reset:
        body["@Redfish.SettingsApplyTime"] = {"ApplyTime": "OnReset"}
    return body


def _tell_version(wanted: Bmc, state: State, outcome: Outcome) -> None:
    """The version is compared here and changed by the firmware role."""
    seen = state.system.get("BiosVersion")
    if wanted.bios_version is None or (isinstance(seen, str) and seen.strip() == wanted.bios_version):
        return
    step = Step("BiosVersion", "bmc.bios_version", seen, seen, wanted.bios_version)
    outcome.drift.append(step.drift())
    told = said(str(seen)) if seen else "not told"
    outcome.notes.append(f"BIOS version is {told}, expected {wanted.bios_version} (role firmware)")


def _tell_plan(plan: Plan, outcome: Outcome) -> None:
    for step in plan.steps:
        outcome.drift.append(step.drift())
        staged = "" if same(step.next, step.current) else f" (staged: {said(str(step.next))})"
        outcome.before[step.name] = f"{said(str(step.current))}{staged}"
        outcome.after[step.name] = (
            f"{step.value}{' (staged: ' + str(step.value) + ')' if step.waiting else ''}"
        )


def _foreign(bmc: Acts, foreign: Mapping[str, Any]) -> str:
    listed = ", ".join(f"{said(name)}={said(str(value))}" for name, value in list(foreign.items())[:6])
    more = f" and {len(foreign) - 6} more" if len(foreign) > 6 else ""
    remedy = "clear them on the BMC, write them into bmc.bios, or run with bios_accept_pending=true"
    told = "BIOS settings wait for the next reset that the profile does not ask for"
    return f"{bmc.origin}: {told}: {listed}{more}; {remedy}"


def _lines(values: Mapping[str, str]) -> str:
    return "".join(f"{name}: {value}\n" for name, value in sorted(values.items()))
