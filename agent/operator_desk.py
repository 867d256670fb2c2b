"""Takes operators' orders on the main loop: which event each is, what must be on the disk before it counts.

An order that closes counts at once and is written then; one that opens is written first. Either way an
order that is answered with success is on the disk, in effect, and in the journal with who gave it and why.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from agent.errors import AgentError, IllegalTransition
from agent.gate_record import (
    Clear,
    Drain,
    EnterMaintenance,
    ExitMaintenance,
    GateEvent,
    OpenByForce,
    Restart,
    Resume,
)
from agent.gatekeeper import Gatekeeper
from agent.holds import ForceOpen, Hold, Holds, HoldsError, Waiver
from agent.log_events import Event, about
from agent.restart_rule import restart_refusal

log = logging.getLogger("nodegate.operator")
LONGEST_FORCE_S = 24 * 3600.0
LONGEST_WAIVER_S = 30 * 24 * 3600.0

#: Where, in the reason of a maintenance, begins why it has not ended.
_RUN = " [run "
NOTHING = "there was nothing to clear: no quarantine, no force-open, no fault, no crash"


class OrderRefused(AgentError):
    """An order that is not carried out; `status` is its HTTP code."""

    def __init__(self, text: str, status: int = 409) -> None:
        """One line."""
        super().__init__(text)
        self.status = status


class GateOrder(StrEnum):
    """What can be ordered of gates."""

    DRAIN = "drain"
    RESUME = "resume"
    CLEAR = "clear"
    FORCE_OPEN = "force-open"


class EngineOrder(StrEnum):
    """What can be ordered of engines."""

    START = "start"
    STOP = "stop"
    RESTART = "restart"


class MaintenanceOrder(StrEnum):
    """What can be ordered of the node."""

    ENTER = "enter"
    EXIT = "exit"


class OperatorLog(Protocol):
    """The part of the journal that operators' orders go to."""

    def record_operator(self, command: str, reason: str, who: str, *, boot_id: str = "") -> None:
        """Record an order."""


@dataclass(frozen=True, slots=True)
class Given:
    """By whom and why an order was given."""

    reason: str
    who: str


class OperatorDesk:
    """Belongs to the main loop's thread. Every order answers with lines to show, or raises OrderRefused."""

    def __init__(self, gatekeeper: Gatekeeper, journal: OperatorLog) -> None:
        """Orders go to the gatekeeper."""
        self._gates = gatekeeper
        self._journal = journal
        self._one_at_a_time = asyncio.Lock()

    async def gate(
        self, order: GateOrder, engine: str | None, given: Given, for_s: float | None = None
    ) -> list[str]:
        """Drain, resume, clear or force open one gate or all."""
        command = f"gate {order} {engine or '(all)'}"
        match order:
            case GateOrder.DRAIN:
                said = await self._close(command, engine, Drain(self._hold(given)), given)
                words = " ".join(filter(None, ("nodegate gate resume", engine)))
                return [*said, f"reopen with: {words} --reason TEXT"]
            case GateOrder.RESUME:
                return await self._open(command, engine, Resume(), given)
            case GateOrder.CLEAR:
                idle = [name for name, record in self._gates.records.items() if not record.to_clear]
                said = await self._open(command, engine, Clear(), given)
                return [*said, *(f"{name}: {NOTHING}" for name in idle if engine in (None, name))]
            case GateOrder.FORCE_OPEN:
                force = self._force(given, for_s)
                return await self._open(f"{command} for {for_s:g} s", engine, OpenByForce(force), given)

    async def engine(self, order: EngineOrder, engine: str, given: Given) -> list[str]:
        """Start, stop or restart an engine, always by way of its gate."""
        command = f"engine {order} {engine}"
        match order:
            case EngineOrder.START:
                return await self._open(command, engine, Resume(), given)
            case EngineOrder.STOP:
                said = await self._close(command, engine, Drain(self._hold(given)), given)
                return [*said, f"start it again with: nodegate engine start {engine}"]
            case EngineOrder.RESTART:
                if refusal := restart_refusal(self._gates.shown, self._gates.profile, engine):
                    raise OrderRefused(refusal)
                return await self._close(command, engine, Restart(given.reason), given)

    async def maintenance(self, order: MaintenanceOrder, given: Given) -> list[str]:
        """Take the node out of service, or give it back."""
        async with self._one_at_a_time:
            if order is MaintenanceOrder.ENTER:
                return await self._enter_maintenance(given)
            return await self._exit_maintenance(given)

    async def hold_maintenance(self, why: str, who: str) -> list[str]:
        """Have maintenance hold with `why` (run ...) in its reason: after the one it has, or entered anew."""
        async with self._one_at_a_time:
            held = self._gates.maintenance
            if held is None:
                return await self._enter_maintenance(Given(why[:500], who))
            reason = f"{held.reason.partition(_RUN)[0][:200]} [{why[:280]}]"
            self._gates.restate_maintenance(replace(held, reason=reason))
            self._record("maintenance stays", Given(why[:500], who))
            await self._save_after()
            return ["maintenance: stays in force"]

    async def waive(self, check: str, subject: str, for_s: float, given: Given) -> list[str]:
        """Let a check's verdict on one subject not count for a while; 0 s ends a waiver."""
        self._refuse_waiver(check, subject, for_s)
        async with self._one_at_a_time:
            now_s = self._gates.clock.wall_s()
            waiver = Waiver(check, subject, given.reason, given.who, now_s, now_s + for_s)
            holds = self._gates.holds.with_waiver(waiver, now_s)
            await self._save_first(holds)
            self._gates.set_holds(holds)
            self._gates.evaluate()
            self._record(f"waive {check} {subject} for {for_s:g} s", given)
            until = datetime.fromtimestamp(waiver.until_wall_s).astimezone()
            end = f"waived until {until.isoformat(sep=' ', timespec='seconds')}"
            return [f"{check} {subject}: {end if for_s else 'no longer waived'}"]

    async def _enter_maintenance(self, given: Given) -> list[str]:
        gates = self._gates
        if gates.maintenance is not None:
            raise OrderRefused(f"the node is in maintenance already: {gates.maintenance.reason}")
        hold = self._hold(given)
        self._apply_to_all(EnterMaintenance(hold), replace(gates.holds, maintenance=hold))
        self._record("maintenance enter", given)
        await self._save_after()
        return ["maintenance: entered; it holds until `nodegate maintenance exit`"]

    async def _exit_maintenance(self, given: Given) -> list[str]:
        gates = self._gates
        if gates.maintenance is None:
            raise OrderRefused("the node is not in maintenance")
        holds = replace(gates.holds, maintenance=None)
        await self._save_first(holds)
        self._apply_to_all(ExitMaintenance(), holds)
        self._record("maintenance exit", given)
        return ["maintenance: ended; every gate proves itself again"]

    def _apply_to_all(self, event: GateEvent, holds: Holds) -> None:
        gates = self._gates
        self._refused(lambda: [gates.try_event(name, event) for name in gates.records])
        gates.set_holds(holds)
        for name in gates.records:
            gates.apply(name, event)
        gates.evaluate()

    async def _close(self, command: str, engine: str | None, event: GateEvent, given: Given) -> list[str]:
        """Apply, then write."""
        async with self._one_at_a_time:
            names, said = self._willing(engine, event)
            for name in names:
                self._refused(lambda name=name: self._gates.apply(name, event))  # type: ignore[misc]
            self._gates.evaluate()
            self._record(command, given)
            await self._save_after()
            return [*self._states(names), *said]

    async def _open(self, command: str, engine: str | None, event: GateEvent, given: Given) -> list[str]:
        """Write, then apply."""
        async with self._one_at_a_time:
            names, said = self._willing(engine, event)
            holds = self._gates.holds
            for name in names:
                holds = holds.with_engine(name, self._gates.try_event(name, event).holds)
            await self._save_first(holds)
            for name in names:
                self._refused(lambda name=name: self._gates.apply(name, event))  # type: ignore[misc]
            self._gates.evaluate()
            self._record(command, given)
            return [*self._states(names), *said]

    def _willing(self, engine: str | None, event: GateEvent) -> tuple[list[str], list[str]]:
        """The engines that can take an event, and why the others cannot. Refuses when none can."""
        known = self._gates.records
        if engine is not None and engine not in known:
            there = ", ".join(sorted(known)) or "none"
            raise OrderRefused(f"there is no engine {engine!r}; engines of this node: {there}", 404)
        if not known:
            raise OrderRefused("the profile has no engines", 404)
        names, said = [], []
        for name in known if engine is None else [engine]:
            try:
                self._gates.try_event(name, event)
                names.append(name)
            except IllegalTransition as cause:
                said.append(str(cause))
        if not names:
            raise OrderRefused("; ".join(said))
        return names, said

    def _states(self, names: Sequence[str]) -> list[str]:
        return [f"{name}: {self._gates.records[name].state}" for name in names]

    def _hold(self, given: Given) -> Hold:
        return Hold(given.reason, given.who, self._gates.clock.wall_s(), self._gates.boot_id)

    def _force(self, given: Given, for_s: float | None) -> ForceOpen:
        """Break-glass has an end."""
        if for_s is None or not 0 < for_s <= LONGEST_FORCE_S:
            raise OrderRefused("force-open needs an end: --for between 1s and 24h", 422)
        clock = self._gates.clock
        wall_s, boot_id = clock.wall_s(), self._gates.boot_id
        return ForceOpen(given.reason, given.who, wall_s, boot_id, wall_s + for_s, clock.mono_s() + for_s)

    def _refuse_waiver(self, check: str, subject: str, for_s: float) -> None:
        known = self._gates.checks.get(check)
        if known is None:
            raise OrderRefused(f"there is no check {check!r}; `nodegate check` lists them", 404)
        if not known.waivable:
            raise OrderRefused(
                f"{check} cannot be waived: do what `nodegate status` says of it, or take the node out with "
                "`nodegate maintenance enter`"
            )
        if not 0 <= for_s <= LONGEST_WAIVER_S:
            raise OrderRefused("a waiver needs an end: --for at most 30d", 422)
        results = self._gates.snapshot.results if self._gates.snapshot else {}
        subjects = sorted(key[1] for key in results if key[0] == check)
        if subject not in subjects:
            there = ", ".join(subjects) or "none yet"
            raise OrderRefused(f"{check} has no subject {subject!r}; it has {there}", 404)

    async def _save_first(self, holds: Holds) -> None:
        try:
            await self._gates.keeper.save_now(holds)
        except HoldsError as cause:
            raise OrderRefused(f"nothing was changed: {cause}", 507) from cause
        finally:
            # What counts once the order has been applied, refused after all or given up must be on the disk,
            # with what else has changed while it was written.
            self._gates.keeper.save_soon()

    async def _save_after(self) -> None:
        try:
            await self._gates.keeper.save_now(self._gates.holds)
        except HoldsError as cause:
            self._gates.keeper.save_soon()
            text = f"it is in effect, but a restart of the agent would lose it: {cause}"
            raise OrderRefused(text, 507) from cause

    def _record(self, command: str, given: Given) -> None:
        said = about(Event.OPERATOR_ORDER, command=command, who=given.who, reason=given.reason)
        log.info("order of %s: %s: %s", given.who, command, given.reason, extra=said)
        self._journal.record_operator(command, given.reason, given.who, boot_id=self._gates.boot_id)

    @staticmethod
    def _refused(action: Callable[[], object]) -> None:
        """An illegal transition is an order refused."""
        try:
            action()
        except IllegalTransition as cause:
            raise OrderRefused(str(cause)) from cause
