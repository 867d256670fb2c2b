"""Snapshot and gate answers as Prometheus text, made from what has been published when a scraper asks.

Names are a contract with dashboards (docs/adr); base units, prefix `nodegate_`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from agent import __version__
from agent.evaluate import is_stale
from agent.metric_help import help_of
from agent.metrics_more import More, more_families
from agent.model import GateState, Measure, Snapshot, Verdict, engine_of, gpu_slot_of

#: Content type of what `render_metrics` returns.
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_NO_MORE = More()


@dataclass(frozen=True, slots=True)
class GateSample:
    """One engine's gate as it is answered now; `ready` is what /readyz says."""

    engine: str
    state: GateState
    ready: bool
    #: How long the gate has been in this state.
    since_s: float = 0.0


def render_metrics(
    snapshot: Snapshot,
    gates: Sequence[GateSample],
    *,
    pairs: Mapping[str, bool] = MappingProxyType({}),
    durations_s: Mapping[str, float],
    now_mono_s: float,
    journal_healthy: bool | None = None,
    more: More = _NO_MORE,
) -> bytes:
    """The whole page; `durations_s` is the last run of each check, `now_mono_s` ages the snapshot.

    `pairs`: whether /readyz of each pair is 200; `more`: holds, groups, the checklist.
    """
    families = [
        *_about_agent(snapshot, now_mono_s, journal_healthy),
        *_about_gates(gates),
        *_about_pairs(pairs),
        *_about_checks(snapshot, durations_s),
        *_about_measures(snapshot, now_mono_s),
        *more_families(snapshot, more),
    ]
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(families))
    try:
        return generate_latest(registry)
    except UnicodeEncodeError:  # half a character in a name: one label must not take the whole page away
        for family in families:
            _make_utf8(family)
        return generate_latest(registry)


def _make_utf8(family: Metric) -> None:
    family.documentation = _utf8(family.documentation)
    for at, sample in enumerate(family.samples):
        labels = {label: _utf8(value) for label, value in sample.labels.items()}
        family.samples[at] = sample._replace(labels=labels)


def _utf8(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


class _Families(Collector):
    """A collector of metrics that have already been made."""

    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        return self._families


def _about_agent(snapshot: Snapshot, now_mono_s: float, journal_healthy: bool | None) -> Iterator[Metric]:
    build = InfoMetricFamily(
        "nodegate_build", "Version of nodegate, profile in force, and whether SIMULATED."
    )
    build.add_metric(
        [],
        {
            "version": __version__,
            "node": snapshot.node,
            "profile_hash": snapshot.profile_hash,
            "simulated": str(snapshot.simulated).lower(),
        },
    )
    yield build
    age_s = max(0.0, now_mono_s - snapshot.mono_s)
    yield GaugeMetricFamily("nodegate_snapshot_age_seconds", "Age of the newest snapshot of results.", age_s)
    if journal_healthy is not None:
        yield GaugeMetricFamily(
            "nodegate_journal_healthy", "1 while the journal gets to the disk.", float(journal_healthy)
        )


def _about_gates(gates: Sequence[GateSample]) -> Iterator[Metric]:
    ready = GaugeMetricFamily(
        "nodegate_gate_ready", "1 while /readyz of the engine is 200.", labels=["engine"]
    )
    state = GaugeMetricFamily(
        "nodegate_gate_state", "1 for the state that the gate is in.", labels=["engine", "state"]
    )
    since = GaugeMetricFamily(
        "nodegate_gate_state_seconds", "How long the gate has been in its state.", labels=["engine"]
    )
    for gate in gates:
        ready.add_metric([gate.engine], float(gate.ready))
        for each in GateState:
            state.add_metric([gate.engine, each.value], float(each is gate.state))
        since.add_metric([gate.engine], gate.since_s)
    yield from (ready, state, since)


def _about_pairs(pairs: Mapping[str, bool]) -> Iterator[Metric]:
    if not pairs:
        return
    ready = GaugeMetricFamily("nodegate_pair_ready", "1 while /readyz of the pair is 200.", labels=["pair"])
    for pair, is_ready in pairs.items():
        ready.add_metric([pair], float(is_ready))
    yield ready


def _about_checks(snapshot: Snapshot, durations_s: Mapping[str, float]) -> Iterator[Metric]:
    verdict = GaugeMetricFamily(
        "nodegate_check_verdict",
        "1 for the confirmed verdict of the check on the subject.",
        labels=["check", "subject", "verdict"],
    )
    for (check, subject), result in sorted(snapshot.results.items()):
        for each in Verdict:
            verdict.add_metric([check, subject, each.value], float(each is result.verdict))
    yield verdict
    yield from _about_what_counts(snapshot)
    duration = GaugeMetricFamily(
        "nodegate_check_duration_seconds", "Duration of the check's last run.", labels=["check"]
    )
    for check, seconds in sorted(durations_s.items()):
        duration.add_metric([check], seconds)
    yield duration


def _about_what_counts(snapshot: Snapshot) -> Iterator[Metric]:
    """Which verdicts do not count, and how often each FAIL has been confirmed."""
    labels = ["check", "subject"]
    shadow = GaugeMetricFamily(
        "nodegate_check_shadow", "1 for a verdict that the profile lets gate nothing.", labels=labels
    )
    waived = GaugeMetricFamily(
        "nodegate_check_waived", "1 for a verdict that an operator has waived for a time.", labels=labels
    )
    failures = CounterMetricFamily(
        "nodegate_check_failures", "FAILs of the check that were confirmed on this boot.", labels=labels
    )
    for (check, subject), result in sorted(snapshot.results.items()):
        if result.shadow:
            shadow.add_metric([check, subject], 1.0)
        if result.waived:
            waived.add_metric([check, subject], 1.0)
        if result.times:
            failures.add_metric([check, subject], float(result.times))
    yield from (shadow, waived, failures)


def _about_measures(snapshot: Snapshot, now_mono_s: float) -> Iterator[Metric]:
    """What the checks measured; a result that is too old to count shows none."""
    families: dict[str, Metric] = {}
    for (_, subject), result in sorted(snapshot.results.items()):
        if is_stale(result, now_mono_s):
            continue
        labels = _labels(subject)
        for measure in result.measures:
            kind = {"kind": measure.kind} if measure.kind else {}
            family = families.setdefault(measure.name, _family(measure))
            family.add_sample(f"nodegate_{measure.name}", labels | kind, measure.value)
    yield from families.values()


def _labels(subject: str) -> dict[str, str]:
    """A GPU by its slot, an engine by its name, a port by device and number, anything else by its name."""
    slot = gpu_slot_of(subject)
    if slot is not None:
        return {"gpu": str(slot)}
    engine = engine_of(subject)
    if engine is not None:
        return {"engine": engine}
    device, slash, port = subject.rpartition("/")
    return {"device": device, "port": port} if slash else {"subject": subject}


def _family(measure: Measure) -> Metric:
    name = measure.name
    text = help_of(name, measure.counter)
    if name.endswith("_total"):
        return Metric(f"nodegate_{name.removesuffix('_total')}", text, "counter")
    return Metric(f"nodegate_{name}", text, "gauge")
