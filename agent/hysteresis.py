"""From readings to a confirmed verdict, pure: one bad sample closes nothing, one good sample opens nothing.

The rules, for one subject of one check:

- FAIL counts at once before serving and for the immediate class; while serving it needs two readings that are
  at least `fail_for_s` apart, with no PASS between them.
- A confirmed FAIL ends after `clear_for_s` of PASS or WARN without a break; a sticky one not by itself,
  unless its check sees the reset that ends it.
- UNKNOWN counts at once before serving; while serving the last confirmed verdict holds for `unknown_for_s`.
  It ends no run of FAILs and breaks every run of PASSes: missing evidence is no sign of recovery.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from agent.model import Verdict


@dataclass(frozen=True, slots=True)
class Timings:
    """The times of one check in seconds; `immediate` is that of the reading's own serving class."""

    fail_for_s: float
    clear_for_s: float
    unknown_for_s: float
    sticky: bool = False
    immediate: bool = False
    #: A sticky FAIL ends by PASSes after all: the check itself sees the reset that they follow.
    reset_clears: bool = False
    #: Whether an UNKNOWN blocks admission. If not, a FAIL outlives its evidence: losing it must open no gate.
    unknown_blocks: bool = True

    @property
    def held(self) -> bool:
        """Whether no run of PASSes ends a confirmed FAIL."""
        return self.sticky and not self.reset_clears


@dataclass(frozen=True, slots=True)
class Confirmation:
    """The confirmed verdict, the last reading, and since when each run that may change it has lasted."""

    verdict: Verdict
    raw: Verdict
    fail_since_mono_s: float | None = None
    fail_readings: int = 0
    clear_since_mono_s: float | None = None
    unknown_since_mono_s: float | None = None
    #: A FAIL was confirmed and has not been cleared; it survives an UNKNOWN in between.
    failed: bool = False


def step(
    state: Confirmation | None, raw: Verdict, timings: Timings, now_mono_s: float, *, serving: bool
) -> Confirmation:
    """The confirmation after one more reading `raw` taken at `now_mono_s`; `state` is None at the first."""
    if raw is Verdict.FAIL:
        return _failing(state, timings, now_mono_s, serving=serving)
    if raw is Verdict.UNKNOWN:
        return _missing(state, timings, now_mono_s, serving=serving)
    return _good(state, raw, timings, now_mono_s)


def due_mono_s(state: Confirmation, timings: Timings) -> float | None:
    """The earliest moment at which one more such reading changes the verdict; None if none would."""
    if state.raw is Verdict.FAIL:
        pending = state.verdict is not Verdict.FAIL and state.fail_since_mono_s is not None
        return (state.fail_since_mono_s or 0.0) + timings.fail_for_s if pending else None
    if state.raw is Verdict.UNKNOWN:
        held = state.verdict is not Verdict.UNKNOWN and not _outlives_evidence(state, timings)
        return (state.unknown_since_mono_s or 0.0) + timings.unknown_for_s if held else None
    if state.failed and not timings.held and state.clear_since_mono_s is not None:
        return state.clear_since_mono_s + timings.clear_for_s
    return None


def _failing(
    state: Confirmation | None, timings: Timings, now_mono_s: float, *, serving: bool
) -> Confirmation:
    """A FAIL was read."""
    since = now_mono_s
    readings = 1
    if state is not None and state.fail_since_mono_s is not None:
        since, readings = state.fail_since_mono_s, state.fail_readings + 1
    relapse = state is not None and state.failed
    at_once = not serving or timings.immediate or timings.fail_for_s <= 0 or relapse
    lasted = readings >= 2 and now_mono_s - since >= timings.fail_for_s
    confirmed = at_once or lasted
    # With nothing known before, a FAIL that is not yet confirmed is no evidence of health either.
    before = state.verdict if state is not None else Verdict.UNKNOWN
    return Confirmation(
        Verdict.FAIL if confirmed else before,
        Verdict.FAIL,
        fail_since_mono_s=since,
        fail_readings=readings,
        failed=confirmed,
    )


def _good(state: Confirmation | None, raw: Verdict, timings: Timings, now_mono_s: float) -> Confirmation:
    """PASS, WARN or SKIP was read."""
    if state is None or not state.failed:
        return Confirmation(raw, raw)
    since = now_mono_s if state.clear_since_mono_s is None else state.clear_since_mono_s
    cleared = raw is Verdict.SKIP or now_mono_s - since >= timings.clear_for_s
    if cleared and not timings.held:
        return Confirmation(raw, raw)
    return Confirmation(Verdict.FAIL, raw, clear_since_mono_s=since, failed=True)


def _missing(
    state: Confirmation | None, timings: Timings, now_mono_s: float, *, serving: bool
) -> Confirmation:
    """Nothing could be read."""
    if state is None:
        return Confirmation(Verdict.UNKNOWN, Verdict.UNKNOWN, unknown_since_mono_s=now_mono_s)
    since = now_mono_s if state.unknown_since_mono_s is None else state.unknown_since_mono_s
    # A FAIL is held before serving too: it blocks like UNKNOWN does, and says more.
    bridged = (serving or state.verdict is Verdict.FAIL) and now_mono_s - since < timings.unknown_for_s
    held = bridged or _outlives_evidence(state, timings)
    return replace(
        state,
        verdict=state.verdict if held else Verdict.UNKNOWN,
        raw=Verdict.UNKNOWN,
        clear_since_mono_s=None,
        unknown_since_mono_s=since,
    )


def _outlives_evidence(state: Confirmation, timings: Timings) -> bool:
    """Whether the verdict stays for as long as nothing can be read."""
    return state.verdict is Verdict.FAIL and (timings.sticky or not timings.unknown_blocks)
