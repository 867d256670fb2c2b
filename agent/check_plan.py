"""What the profile makes of each check: switched off, left out, or run with these limits and times."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from pydantic import BaseModel, ValidationError

from agent.checks.registry import Check, ClearedBy
from agent.errors import ConfigError
from agent.hysteresis import Timings
from agent.model import ServingClass
from agent.node_profile import CheckOverride, NodeProfile

#: Beats of families are spread over this many seconds.
BEAT_S = 60.0
#: Within this time the other checks of one family start.
CLOSE_S = 0.4
#: Families of checks that keep step: they read the same groups of NVML, at one beat only once.
IN_STEP = ("gpu", "nvlink")
#: A run that an event has brought forward stands for the next one if that would come within this share of
#: the period.
SKIPPED_SHARE = 0.1


#: Asked twice for each reading, and there are few that differ.
_timings = lru_cache(maxsize=1024)(Timings)


@dataclass(frozen=True, slots=True)
class CheckPlan:
    """One check as this profile wants it run; `skip_reason` says why it is not, times are seconds."""

    check: Check
    profile: NodeProfile
    limits: BaseModel
    skip_reason: str | None
    period_s: float
    deadline_s: float
    serving_class: ServingClass
    fail_for_s: float
    clear_for_s: float
    unknown_for_s: float
    #: Its verdict is shown and gates nothing.
    shadow: bool = False

    def timings(self, serving_class: ServingClass) -> Timings:
        """The hysteresis of a reading of this class."""
        return _timings(
            fail_for_s=self.fail_for_s,
            clear_for_s=self.clear_for_s,
            unknown_for_s=self.unknown_for_s,
            sticky=self.check.sticky,
            reset_clears=ClearedBy.RESET in self.check.clears,
            immediate=serving_class is ServingClass.IMMEDIATE,
            unknown_blocks=self.check.unknown_blocks_admission,
        )

    def valid_for_s(self, *, serving: bool) -> float:
        """Seconds a result stands without a newer one: two periods and a deadline; more while serving."""
        return 2 * self.period_s + self.deadline_s + (self.unknown_for_s if serving else 0.0)


def beat_of(node: str, check_id: str) -> float:
    """Where a check's beat lies, in seconds: spread over nodes and families of checks, never random.

    Checks of one family run close together, so that one telling has all their results. Only families in step
    start at once: threads that read hundreds of files at the same time take each other's turns, which takes
    twice as long as one after another.
    """
    family = check_id.partition(".")[0]
    beat_s = BEAT_S * zlib.crc32(f"{node} {family}".encode()) / 0xFFFF_FFFF
    return beat_s if family in IN_STEP else beat_s + CLOSE_S * zlib.crc32(check_id.encode()) / 0xFFFF_FFFF


def next_beat_s(beat_s: float, period_s: float, started_mono_s: float) -> float:
    """When the run after the one that started at a time is due: within a period and a tenth of it."""
    earliest_s = started_mono_s + SKIPPED_SHARE * period_s
    return beat_s + math.ceil((earliest_s - beat_s) / period_s) * period_s


def plan_check(check: Check, profile: NodeProfile) -> CheckPlan:
    """Apply one profile to one check. Raises ConfigError when its limits are wrong."""
    override = profile.checks.get(check.id, CheckOverride())
    own_class = ServingClass(override.serving_class) if override.serving_class else check.serving_class
    return CheckPlan(
        check=check,
        profile=profile,
        limits=_limits(check, profile),
        skip_reason=_skip_reason(check, profile, override),
        period_s=_chosen(override.period_s, check.period_s),
        deadline_s=_chosen(override.deadline_s, check.deadline_s),
        serving_class=own_class,
        fail_for_s=_chosen(override.fail_for_s, check.fail_for_s),
        clear_for_s=_chosen(override.clear_for_s, check.clear_for_s),
        unknown_for_s=_chosen(override.unknown_for_s, check.unknown_for_s),
        shadow=override.shadow,
    )


def plan_all(checks: Mapping[str, Check], profile: NodeProfile) -> dict[str, CheckPlan]:
    """Apply one profile to every check, in order of id. Raises ConfigError."""
    return {id_: plan_check(check, profile) for id_, check in sorted(checks.items())}


def _chosen(override: float | None, default: float) -> float:
    return default if override is None else override


def _skip_reason(check: Check, profile: NodeProfile, override: CheckOverride) -> str | None:
    if not override.enabled:
        return "switched off by the profile"
    return check.skip(profile) if check.skip is not None else None


def _limits(check: Check, profile: NodeProfile) -> BaseModel:
    """The check's tolerances with the profile's changes."""
    try:
        return check.limits(**profile.limits.get(check.id, {}))
    except ValidationError as invalid:
        first = invalid.errors()[0]
        key = ".".join(["limits", check.id, *(str(part) for part in first["loc"])])
        known = ", ".join(check.limits.model_fields) or "none"
        raise ConfigError(
            f"{key}: {first['msg']}", where="profile", remedy=f"limits of {check.id}: {known}"
        ) from invalid
