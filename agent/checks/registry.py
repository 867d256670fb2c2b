"""The `@check` decorator, the registry, and helpers that every check shares."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ConfigDict

from agent.errors import BaselineOnly, SourceError
from agent.model import NO_ACTION, Action, Finding, Phase, ServingClass, Verdict

if TYPE_CHECKING:
    from agent.node_profile import NodeProfile
    from agent.sources import Sources


class Limits(BaseModel):
    """Tolerances of one check: defaults here, overridden under `limits: {check.id: {...}}` of a profile."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class ClearedBy(StrEnum):
    """What ends a sticky FAIL."""

    REBOOT = "reboot"  # state is keyed by boot id, so a reboot always does
    RESET = "reset"  # the check sees the reset itself and reports PASS for good (see its docstring)
    OPERATOR = "operator"  # `nodegate gate clear`


CheckFunction = Callable[["Sources", "NodeProfile", Any], Iterable[Finding]]
#: Says why a profile leaves a check out (-> one SKIP finding), or None when it applies.
SkipRule = Callable[["NodeProfile"], str | None]


@dataclass(frozen=True, slots=True)
class Check:
    """A check function with everything the runner, the gate and the documentation need to know of it.

    Times are seconds. `fail_for_s`: a FAIL must persist this long before it is confirmed while serving;
    `clear_for_s`: a PASS must persist this long to clear a confirmed FAIL; `unknown_for_s`: while serving the
    last confirmed verdict is kept this long when evidence goes missing. `sticky`: a confirmed FAIL stays
    until one of `clears` ends it. `needs_interval_s`: judges counter deltas, so one-shot passes
    sample twice.
    `network`: while serving gates only engines whose plan uses RDMA. `triggers`: events that run it at once.
    """

    id: str
    title: str
    run: CheckFunction
    limits: type[Limits]
    phases: frozenset[Phase]
    period_s: float
    deadline_s: float
    serving_class: ServingClass
    fail_for_s: float
    clear_for_s: float
    unknown_for_s: float
    unknown_blocks_admission: bool
    sticky: bool
    clears: frozenset[ClearedBy]
    network: bool
    waivable: bool
    needs_interval_s: float
    triggers: frozenset[str]
    skip: SkipRule | None
    action: Action
    source: str
    #: What to do where the evidence cannot be had, naming the key of the profile that settles it.
    if_unreadable: str = ""
    #: A launch fails without it: it counts when a crashed engine is brought back, whatever its class.
    needed_to_start: bool = False


REGISTRY: dict[str, Check] = {}
_WAIT = Action(hint="Wait for the next sample: growth is judged from two.")
F = TypeVar("F", bound=CheckFunction)


def check(
    id: str,
    *,
    title: str,
    source: str,
    serving_class: ServingClass,
    limits: type[Limits] = Limits,
    phases: Iterable[Phase] = (Phase.ADMISSION, Phase.SERVING, Phase.MAINTENANCE),
    period_s: float = 10.0,
    deadline_s: float = 5.0,
    fail_for_s: float = 0.0,
    clear_for_s: float = 10.0,
    unknown_for_s: float = 60.0,
    unknown_blocks_admission: bool = True,
    sticky: bool = False,
    clears: Iterable[ClearedBy] = (ClearedBy.REBOOT, ClearedBy.OPERATOR),
    network: bool = False,
    waivable: bool = True,
    needs_interval_s: float = 0.0,
    triggers: Iterable[str] = (),
    skip: SkipRule | None = None,
    action: Action = NO_ACTION,
    if_unreadable: str = "",
    needed_to_start: bool = False,
) -> Callable[[F], F]:
    """Register a check function; `source` names the kernel file or NVML call that it judges."""

    def register(function: F) -> F:
        if id in REGISTRY:
            raise ValueError(f"two checks are named {id}")
        REGISTRY[id] = Check(
            id=id,
            title=title,
            run=function,
            limits=limits,
            phases=frozenset(phases),
            period_s=period_s,
            deadline_s=deadline_s,
            serving_class=serving_class,
            fail_for_s=fail_for_s,
            clear_for_s=clear_for_s,
            unknown_for_s=unknown_for_s,
            unknown_blocks_admission=unknown_blocks_admission,
            sticky=sticky,
            clears=frozenset(clears) if sticky else frozenset(),
            network=network,
            waivable=waivable,
            needs_interval_s=needs_interval_s,
            triggers=frozenset(triggers),
            skip=skip,
            action=action,
            source=source,
            if_unreadable=if_unreadable,
            needed_to_start=needed_to_start,
        )
        return function

    return register


def load_all() -> dict[str, Check]:
    """Import every module of agent.checks and return the registry, in order of id."""
    _import_all()
    return dict(sorted(REGISTRY.items()))


@cache
def _import_all() -> None:
    import agent.checks as package

    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"agent.checks.{module.name}")


def unknown(subject: str, cause: SourceError) -> Finding:
    """The UNKNOWN finding for one subject whose source failed; the others of the check go on."""
    if isinstance(cause, BaselineOnly):
        text = "baseline taken, a second sample is needed"
        return Finding(subject, Verdict.UNKNOWN, text, action=_WAIT)
    return Finding(subject, Verdict.UNKNOWN, str(cause))


def each(subjects: Iterable[tuple[str, Any]], judge: Callable[[str, Any], Finding]) -> Iterator[Finding]:
    """Judge (subject, item) pairs one by one; a source error makes only that subject UNKNOWN."""
    for subject, item in subjects:
        try:
            yield judge(subject, item)
        except SourceError as cause:
            yield unknown(subject, cause)
