"""Bus bandwidth of an all-reduce: arithmetic, what it is held against, and the verdict.

Bus bandwidth as nccl-tests defines it: 2(n-1)/n of the message's bytes over the time of one all-reduce, which
does not depend on the number of GPUs where the links are the limit. GB/s are 10^9 bytes a second.
https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent.checklist.record import Value
from agent.checks import advice
from agent.errors import SourceError
from agent.measure.attend import Attendance
from agent.measure.outcome import NOT_MEASURED, Evidence
from agent.measure.reports import figure
from agent.model import Action, Basis, Finding, Verdict
from agent.sources import Sources

#: The profile's expectation is for messages of this size and more; smaller ones are slower.
LARGE_MIB = 256
_CHECK = "nccl.all_reduce"
_SLOW = advice.person(
    "Look at number and speed of the NVLinks (nvlink.links), the topology file (topology.file) and, between "
    "nodes, the ports and their counters; compare with the other nodes."
)
_WRONG = advice.person(
    "Take this node out of service: data is changed on its way between GPUs. Test the GPUs two at a time."
)


def bus_gb_s(world: int, size_bytes: float, seconds: float) -> float:
    """Bus bandwidth in GB/s of one all-reduce over `world` GPUs."""
    return 2 * (world - 1) / world * size_bytes / seconds / 1e9


@dataclass(frozen=True)
class Expectation:
    """The least bandwidth; None = there is none, and `note` says why."""

    least_gb_s: float | None
    basis: str
    note: str = ""

    @classmethod
    def of(
        cls, asked: float | None, by_profile: float | None, size_mib: int, *, nodes: bool = False
    ) -> Expectation:
        """The step's own number, else the profile's, where the message is large enough for it."""
        key = "nccl.min_nodes_bus_gb_s" if nodes else "nccl.min_bus_gb_s"
        if asked is not None:
            return cls(asked, "the checklist")
        if by_profile is None:
            return cls(None, key, f"the profile has no {key} to hold it against")
        if size_mib < LARGE_MIB:
            return cls(None, key, f"{key} is for messages of {LARGE_MIB} MiB and more")
        return cls(by_profile, key)


def limit_s(iterations: int) -> float:
    """Seconds that a worker may take in all: imports and NCCL's start, then a second an all-reduce."""
    return 180.0 + iterations * 1.0


def span_name(gpus: Sequence[int]) -> str:
    """`gpu0-7` for a row of slots, else each of them."""
    if list(gpus) == list(range(gpus[0], gpus[-1] + 1)):
        return f"gpu{gpus[0]}-{gpus[-1]}"
    return "gpu" + ",".join(str(slot) for slot in gpus)


def judge_result(
    evidence: Evidence, found: Attendance, subject: str, expected: Expectation, sources: Sources, test: str
) -> str:
    """Add what was measured to the evidence; what is said of it where all is well."""
    if found.cancelled:
        evidence.missing.insert(0, f"{subject}: called off")
        return ""
    if found.problem:
        evidence.missing.insert(0, f"{subject}: {NOT_MEASURED}: {found.problem}")
        return ""
    if sources.simulated:
        try:
            recorded = sources.workloads.recorded(test).get("bus_gb_s")
        except SourceError as cause:
            evidence.missing.insert(0, f"{subject}: {NOT_MEASURED} on this simulated node: {cause}")
            return ""
        return _judge_bandwidth(evidence, recorded, subject, expected, "SIMULATED")
    result = found.reports.done or {}
    if result.get("right") is False:
        text = f"a sum over {result.get('world')} GPUs came out wrong"
        evidence.judge(_CHECK, _finding(subject, Verdict.FAIL, text, None, "the right sum", _WRONG))
    if result.get("right") is not True or "world" not in result:
        evidence.missing.insert(0, f"{subject}: the worker's result has no sum that was checked")
    how = f"{result.get('backend', '?')} {result.get('nccl', '')}".strip()
    return _judge_bandwidth(evidence, figure(result, "bus_gb_s"), subject, expected, how)


def _judge_bandwidth(
    evidence: Evidence, measured: float | None, subject: str, expected: Expectation, how: str
) -> str:
    if measured is None or measured <= 0:
        evidence.missing.insert(0, f"{subject}: {NOT_MEASURED}: the result has no bandwidth")
        return ""
    least = expected.least_gb_s
    slow = least is not None and measured < least
    want = f">= {least:g}" if least is not None else None
    verdict = Verdict.FAIL if slow else Verdict.PASS
    value = round(measured, 1)
    evidence.values.append(
        Value(name="bus_bandwidth", subject=subject, value=value, unit="GB/s", expected=want, verdict=verdict)
    )
    text = f"{value:g} GB/s ({how})"
    if slow:
        text += f", at least {least:g} GB/s wanted ({expected.basis})"
        evidence.judge(_CHECK, _finding(subject, Verdict.FAIL, text, value, want, _SLOW))
    note = f"; {expected.note}" if expected.note else ""
    return f"{subject} {text}{note}"


def _finding(
    subject: str, verdict: Verdict, text: str, observed: float | None, want: str | None, action: Action
) -> Finding:
    basis = Basis.standard("all-reduce")
    return Finding(subject, verdict, text, observed, want, "GB/s" if observed else "", action, basis=basis)
