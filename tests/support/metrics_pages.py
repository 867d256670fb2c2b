"""Pages of /metrics as the agent renders them, of replayed nodes on a clock that jumps.

Everything is the daemon's own (runner, checks, gates, agent/metrics.py) but the engines, which are stand-ins
that show what a test lets them show: `ENGINE_SHOWS` is a busy vLLM. SIMULATED.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from check_cases import run_twice
from fake_h200 import h200_node, h200_profile
from incident_drill import Drill
from prometheus_client.parser import text_string_to_metric_families
from runner_kit import result, snapshot
from stage_time import START_MONO_S

from agent.checks.registry import load_all
from agent.metrics import GateSample, render_metrics
from agent.metrics_more import ChecklistSample, GroupSample, HoldSample, More
from agent.model import Verdict
from agent.sources import CanaryReport, CanaryVerdict

Series = tuple[str, tuple[tuple[str, str], ...]]
#: What a scrape adds (playbooks/roles/monitoring/templates/prometheus.j2), and what Prometheus itself makes.
TARGET = frozenset({"instance", "job", "node", "platform", "row", "pool"})
OWN = ("up",)
#: Windows so short that what is usual is known within a minute or two.
SHORT_WINDOWS = """\
limits:
  engine.prefix_cache: {window_s: 60, baseline_s: 600}
  engine.latency: {window_s: 60, baseline_s: 600}
checks: {engine.health: {period_s: 10}}
"""
#: What a busy vLLM exports; totals grow with the seconds since the start of the drill.
ENGINE_SHOWS: Mapping[str, Any] = {
    "requests_running": 12.0,
    "requests_waiting": 1.0,
    "kv_cache_used_ratio": 0.4,
    "preemptions_total": 0.0,
    "tokens_total": lambda elapsed_s: 900.0 * elapsed_s,
    "prefix_queries_total": lambda elapsed_s: 2000.0 * elapsed_s,
    "prefix_hits_total": lambda elapsed_s: 1780.0 * elapsed_s,
    "first_token_sum_s": lambda elapsed_s: 0.9 * elapsed_s,
    "first_token_count": lambda elapsed_s: 3.0 * elapsed_s,
    "between_tokens_sum_s": lambda elapsed_s: 18.0 * elapsed_s,
    "between_tokens_count": lambda elapsed_s: 900.0 * elapsed_s,
    "answered": lambda elapsed_s: CanaryReport(CanaryVerdict.OK, START_MONO_S + elapsed_s, 0.2),
}


def page_of(drill: Drill, more: More | None = None) -> bytes:
    """What /metrics of the drill's node says now."""
    shot = drill._snapshot
    assert shot is not None
    now_s = drill.clock.now_s
    gates = [
        GateSample(name, record.state, record.ready, max(0.0, now_s - record.since_mono_s))
        for name, record in drill.records.items()
    ]
    more = more or More(mode=drill.profile.profile.mode.value)
    durations_s = dict.fromkeys({check for check, _ in shot.results}, 0.01)
    return render_metrics(
        shot, gates, durations_s=durations_s, now_mono_s=now_s, journal_healthy=True, more=more
    )


def samples_of(page: bytes) -> dict[Series, float]:
    """Name and labels -> value, by the client library's own parser."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
    }


@cache
def full_page() -> bytes:
    """A B300 node that serves, with holds, a group and a checklist, so that every metric has a series."""
    with TemporaryDirectory() as folder:
        overlay = Path(folder) / "overlay.yaml"
        overlay.write_text(SHORT_WINDOWS)
        drill = Drill("b300-roce", overlays=(overlay,))
        try:
            drill.beat_s = 5.0
            drill.run(15)
            for engine in drill.engines.values():
                engine.shows = dict(ENGINE_SHOWS)
            drill.run(180)
            return page_of(drill, _every_kind(drill))
        finally:
            drill.close()


def _every_kind(drill: Drill) -> More:
    """What comes only with a hold, a group or a checklist."""
    (engine,) = drill.engines
    return More(
        holds=(HoldSample("maintenance", "", 60.0), HoldSample("drain", engine, 60.0)),
        groups=(GroupSample(engine, "b300-1", 0, 2),),
        checklist=ChecklistSample("burn-in", "PASS", 9, 9),
        mode=drill.profile.profile.mode.value,
    )


@cache
def known_samples() -> dict[Series, float]:
    """All series of the full page, and those that a replayed node cannot have."""
    return {**samples_of(full_page()), **samples_of(_beside_a_replay())}


@cache
def labels_by_metric() -> dict[str, set[str]]:
    """Every metric of a scrape with its labels."""
    found = {name: set(TARGET) for name in OWN}
    for name, labels in known_samples():
        found.setdefault(name, set(TARGET)).update(label for label, _ in labels)
    return found


def _beside_a_replay() -> bytes:
    """What a check measures of processes, which a replayed node has not: those of the fake H200."""
    found = run_twice(load_all()["engine.memory"], h200_node(), h200_profile())
    results = [
        replace(result("engine.memory", subject, Verdict.PASS), measures=finding.measures)
        for subject, finding in found.items()
    ]
    waived = replace(result("gpu.ecc", "gpu1", Verdict.FAIL), waived=True, times=1)
    shadow = replace(result("gpu.ecc", "gpu2", Verdict.FAIL), shadow=True)
    return render_metrics(snapshot(*results, waived, shadow), (), durations_s={}, now_mono_s=1000.0)
