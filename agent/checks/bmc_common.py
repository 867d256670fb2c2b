"""What the BMC checks share: which service is asked, one finding for each, and what its words amount to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from agent.bmc_profile import RedfishEndpoint
from agent.checks.redfish_tree import ROOT, Document, Members, Service, health, in_use, name_of
from agent.errors import ParseError, SourceError
from agent.model import NO_ACTION, WORST_FIRST, Action, Basis, Finding, Measure, Verdict
from agent.node_profile import NodeProfile
from agent.sources import Sources
from agent.sources.bmc_reading import NODE_BMC

NODE = "node"
#: A BMC is slow, and many checks ask the same one.
PERIOD_S = 60.0
DEADLINE_S = 55.0
#: Two readings a minute apart; a BMC that is rebooted is back within five.
FAIL_FOR_S = 60.0
CLEAR_FOR_S = 60.0
UNKNOWN_FOR_S = 300.0
LONGEST_SUMMARY = 240
_SAID = Basis.standard("Redfish Status.Health")


def no_bmc(profile: NodeProfile) -> str | None:
    """Skip rule: no BMC to ask."""
    return None if profile.bmc.redfish is not None else "the profile names no BMC (bmc.redfish)"


def judge_node(
    sources: Sources, profile: NodeProfile, judge: Callable[[Service], Finding], subject: str = NODE
) -> Finding:
    """Judge the node's own BMC; the skip rule has made sure that there is one."""
    endpoint = profile.bmc.redfish
    assert endpoint is not None
    return judge_service(sources, NODE_BMC, endpoint, subject, judge)


def judge_service(
    sources: Sources,
    name: str,
    endpoint: RedfishEndpoint,
    subject: str,
    judge: Callable[[Service], Finding],
) -> Finding:
    """One finding about one service: UNKNOWN if it cannot be read; unverified TLS is always told."""
    try:
        found = judge(Service(sources.bmc, name, endpoint, subject))
    except SourceError as cause:
        found = Finding(subject, Verdict.UNKNOWN, str(cause))
    note = "" if endpoint.tls_verify else " (TLS not verified)"
    return replace(found, summary=clipped(found.summary, LONGEST_SUMMARY - len(note)) + note)


def chassis_of(service: Service) -> Members:
    """Every chassis that may have cooling, power or detectors of its own. Raises SourceError if none is.

    A baseboard lists dozens of chassis; those of type Component (roots of trust) have nothing to ask.
    """
    found = service.collection(f"{ROOT}/Chassis", expand=True)
    if not found.documents:
        raise found.broken[0] if found.broken else ParseError("the BMC shows no chassis")
    used = tuple(each for each in found if each.get("ChassisType") != "Component")
    return Members(used, found.broken)


def clipped(words: str, longest: int = LONGEST_SUMMARY) -> str:
    """One line of at most that many characters."""
    line = " ".join(words.split())
    return line if len(line) <= longest else f"{line[: longest - 4].rstrip()} ..."


def merged(remarks: Sequence[Finding], passed: Finding) -> Finding:
    """`passed` if nothing is wrong; else the worst remark, with the words of all, worst first."""
    bad = [remark for remark in remarks if remark.verdict not in (Verdict.PASS, Verdict.SKIP)]
    if not bad:
        return passed
    bad.sort(key=lambda remark: WORST_FIRST.index(remark.verdict))
    words = "; ".join(dict.fromkeys(remark.summary for remark in bad))
    return replace(bad[0], summary=clipped(words), measures=passed.measures)


def unreadable(subject: str, broken: Sequence[SourceError]) -> list[Finding]:
    """UNKNOWN for members of a list that could not be read."""
    return [Finding(subject, Verdict.UNKNOWN, f"{len(broken)} unreadable: {broken[0]}")] if broken else []


def judge_health(
    subject: str, what: str, document: Document, action: Action, *, silent: Verdict = Verdict.UNKNOWN
) -> list[Finding]:
    """Remarks about a part's own word on its health; `silent` is the verdict when it gives none."""
    if not in_use(document):
        return []
    word = health(document)
    name = f"{what} {name_of(document)}".strip()
    if word == "OK":
        return []
    verdict = {"Critical": Verdict.FAIL, "Warning": Verdict.WARN}.get(word or "")
    if verdict is None:
        told = "gives no health" if word is None else f"gives the health {word[:20]!r}"
        silence = Finding(subject, silent, f"{name} {told}")
        return [] if silent is Verdict.PASS else [silence]
    return [Finding(subject, verdict, f"{name} is {word}", word, "OK", action=action, basis=_SAID)]


def above(
    subject: str, what: str, value: float, limit: tuple[float, Basis], unit: str, action: Action
) -> list[Finding]:
    """A FAIL remark if a number is larger than the profile allows."""
    most, basis = limit
    if value <= most:
        return []
    summary = f"{what} {value:g} {unit}, at most {most:g} {unit} allowed"
    return [Finding(subject, Verdict.FAIL, summary, value, most, unit, action or NO_ACTION, basis=basis)]


def missing(subject: str, what: str, key: str) -> Finding:
    """UNKNOWN for a number that the profile asks for and the service does not report."""
    return Finding(subject, Verdict.UNKNOWN, f"no {what} is reported, which {key} asks for")


def measure(name: str, value: float | None) -> tuple[Measure, ...]:
    """A number for dashboards, if there is one."""
    return () if value is None else (Measure(name, value),)
