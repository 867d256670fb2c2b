"""After a restart of the agent: which carried results do not count until their check has run once by itself.

Results of an earlier agent are carried so that slow checks (BMC, configuration) do not turn a restart into
an outage. What a fast check says is read anew before any gate opens: the earlier agent may have died of the
very fault.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from agent.checks.registry import Check
from agent.evaluate import Judgement
from agent.model import Phase, Result, Snapshot, engine_of, gpu_slot_of
from agent.node_profile import Engine

#: A check whose period is at most this many seconds is fast.
FAST_S = 10.0


def without_carried(
    judgement: Judgement, snapshot: Snapshot, checks: Mapping[str, Check], engine: str, settings: Engine
) -> Judgement:
    """The judgement with fast admission checks that have only carried results for this engine as missing."""
    carried = sorted(
        f"{result.check} {result.subject}"
        for result in snapshot.results.values()
        if result.carried and is_fast(checks.get(result.check)) and _concerns(result, engine, settings)
    )
    return replace(judgement, missing=(*judgement.missing, *carried)) if carried else judgement


def is_fast(check: Check | None) -> bool:
    """Whether a check runs so often that its result of before a restart is not waited for, but read anew."""
    return check is not None and Phase.ADMISSION in check.phases and check.period_s <= FAST_S


def _concerns(result: Result, engine: str, settings: Engine) -> bool:
    slot = gpu_slot_of(result.subject)
    named = engine_of(result.subject)
    return slot in settings.gpus if slot is not None else named in (None, engine)
