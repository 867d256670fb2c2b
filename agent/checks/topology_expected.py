"""topology.expected: is the machine still the one whose topology an operator has recorded?

sysfs: place and NUMA node of GPUs and RDMA cards, the cards' serial numbers; NVML: NVLinks that are up,
nvmlDeviceGetP2PStatus(NVLINK). Cards are known by UUID and serial number: a reboot that only gives new bus
ids passes and is told. gpu.topology compares single keys of the profile, this all that was recorded.
"""

from __future__ import annotations

from collections.abc import Iterator

from agent.checks import advice
from agent.checks.gpus import no_gpus
from agent.checks.registry import Limits, check, unknown
from agent.checks.shared_tree import reading_once
from agent.model import Basis, Finding, Phase, ServingClass, Verdict
from agent.node_profile import NodeProfile
from agent.sources import Sources
from agent.topo.expected import Judged, judge

_BACK = advice.play(
    "pins",
    "Put the card back into its slot and the cables into theirs, or, if it was changed on purpose, look the"
    " new topology over and record it: pins.yml -e accept_pins=true -e replace_pins=topology.",
)
_MOST_TOLD = 3


def _skip(profile: NodeProfile) -> str | None:
    expected = profile.topology.expected
    recorded = bool(expected.gpus or expected.nics)
    return no_gpus(profile) or (None if recorded else "no topology is recorded (topology.expected)")


@check(
    "topology.expected",
    title="Topology as recorded",
    source="/sys/bus/pci/devices/*: link, numa_node, vpd; NVLink states; nvmlDeviceGetP2PStatus",
    serving_class=ServingClass.SOFT,
    phases=(Phase.ADMISSION, Phase.MAINTENANCE),
    period_s=300.0,
    deadline_s=60.0,  # vital product data of a card can take seconds to read
    fail_for_s=300.0,
    unknown_for_s=900.0,
    skip=_skip,
    action=_BACK,
)
def topology_expected(sources: Sources, profile: NodeProfile, _limits: Limits) -> Iterator[Finding]:
    """Every recorded GPU and RDMA card must be where it was, and reach what it reached."""
    for judged in judge(reading_once(sources), profile):
        yield _finding(judged)


def _finding(judged: Judged) -> Finding:
    if judged.unknown is not None:
        return unknown(judged.subject, judged.unknown)
    if not judged.problems:
        note = f": {judged.note}" if judged.note else ""
        return Finding(judged.subject, Verdict.PASS, f"as recorded{note}")
    first = judged.problems[0]
    more = f" and {len(judged.problems) - _MOST_TOLD} more" if len(judged.problems) > _MOST_TOLD else ""
    text = "; ".join(problem.text for problem in judged.problems[:_MOST_TOLD]) + more
    return Finding(
        judged.subject, Verdict.FAIL, text, first.observed, first.expected, action=_BACK,
        basis=Basis.profile(first.key),
    )  # fmt: skip
