"""host.kmsg: what the kernel log says of the host: lockups, hung tasks, memory errors, the OOM killer.

One line tells, several in a window fail: a busy node may hang for 20 s once, a sick one does so every hour.
Uncorrected errors count since boot, for the memory or processor that had them is still in use.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pydantic import Field

from agent.checks import advice
from agent.checks.host_text import listed
from agent.checks.registry import Limits, check
from agent.errors import SourceError
from agent.model import Action, Basis, Finding, ServingClass, Verdict
from agent.node_profile import NodeProfile
from agent.sources import KmsgRecord, Sources
from agent.sources.kmsg_host import (
    CORRECTED,
    DRIVER,
    FAMILIES,
    HUNG_TASK,
    LOCKUP,
    OOM,
    PREVIOUS_BOOT,
    UNCORRECTED,
    family_of,
)

_LOOK = advice.person(
    "Read journalctl -k around it: the stack that follows names the driver or device that does not answer."
)
_MEMORY = advice.reseat("Read the BMC's event log for the module or socket it names; reseat or replace that.")
_OOM = advice.person(
    "Compare the engine's host memory (offload, swap space, page cache of weights) with what the node has."
)
_LIBRARY = advice.person(
    "Look for a container or library of another driver version: the module refuses clients that do not fit."
)
#: vLLM names its processes so (setproctitle); the kernel keeps 15 characters.
_VLLM = "VLLM::"
_COMM_CHARS = 15


class KmsgLimits(Limits):
    """Tolerances of host.kmsg."""

    window_s: float = Field(
        3600.0, description="Window in which lines are counted, in seconds", gt=0, le=30 * 86400
    )
    lockups: int = Field(3, description="CPU lockups and RCU stalls in the window that fail", ge=1)
    hung_tasks: int = Field(3, description="Reports of hung tasks in the window that fail", ge=1)
    out_of_memory: int = Field(3, description="Engine processes killed in the window that fail", ge=1)
    corrected: int = Field(10, description="Corrected hardware errors in the window that are told", ge=1)


@dataclass(frozen=True, slots=True)
class _Rule:
    """How lines of one family are judged; `limit` names the count that fails, None = one is only told."""

    words: str
    action: Action
    limit: str | None = None


_RULES: dict[str, _Rule] = {
    LOCKUP: _Rule("CPU lockups or RCU stalls", _LOOK, "lockups"),
    HUNG_TASK: _Rule("reports of hung tasks", _LOOK, "hung_tasks"),
    PREVIOUS_BOOT: _Rule("lines of a hardware error that ended the boot before", _MEMORY),
    DRIVER: _Rule("lines of a driver that does not fit its library", _LIBRARY),
}


@check(
    "host.kmsg",
    title="Kernel log of the host",
    source="/dev/kmsg",
    serving_class=ServingClass.SOFT,
    limits=KmsgLimits,
    period_s=30.0,
    fail_for_s=30.0,
    unknown_blocks_admission=False,  # a GPU node needs its log for xid, which blocks; others may have none
    triggers=("kmsg.host",),
    skip=lambda p: None if p.gpus.count or p.engines else "the profile has neither GPUs nor engines",
    action=_LOOK,
)
def host_kmsg(sources: Sources, profile: NodeProfile, limits: KmsgLimits) -> Iterator[Finding]:
    """The kernel must not report lockups, hung tasks, hardware errors or killed engines again and again."""
    try:
        records = sources.kmsg.records()
    except SourceError as cause:
        for family in (*_RULES, OOM, UNCORRECTED, CORRECTED):
            yield Finding(_subject(family), Verdict.UNKNOWN, str(cause))
        return
    since_s = sources.clock.mono_s() - limits.window_s
    lines: dict[str, list[KmsgRecord]] = {family: [] for family in FAMILIES}
    for record in records:
        found = family_of(record.text)
        if found is not None and (record.mono_s > since_s or found == UNCORRECTED):
            lines[found].append(record)
    for family, rule in _RULES.items():
        yield _repeated(_subject(family), lines[family], rule, limits)
    yield _oom(lines[OOM], _engine_pids(sources, profile), _engine_names(profile), limits)
    yield _uncorrected(lines[UNCORRECTED])
    yield _corrected(lines[CORRECTED], limits)


def _subject(family: str) -> str:
    return f"node/{family}"


def _none(family: str, hours: bool = True) -> Finding:
    basis = Basis.limit("window_s") if hours else Basis.standard("kernel log wordings")
    return Finding(_subject(family), Verdict.PASS, "the kernel log has none", 0, 0, basis=basis)


def _window(limits: KmsgLimits) -> str:
    return f"{limits.window_s / 3600:g} h" if limits.window_s >= 3600 else f"{limits.window_s:g} s"


def _repeated(subject: str, lines: Sequence[KmsgRecord], rule: _Rule, limits: KmsgLimits) -> Finding:
    count = len(lines)
    if not count:
        return _none(subject.removeprefix("node/"))
    summary = f"{count} {rule.words} in {_window(limits)}, last: {_quoted(lines[-1])}"
    if rule.limit is not None and count >= (most := getattr(limits, rule.limit)):
        basis = Basis.limit(rule.limit)
        return Finding(subject, Verdict.FAIL, summary, count, most, action=rule.action, basis=basis)
    basis = Basis.limit(rule.limit) if rule.limit else Basis.standard("kernel log wordings")
    return Finding(subject, Verdict.WARN, summary, count, 0, action=rule.action, basis=basis)


def _oom(
    lines: Sequence[KmsgRecord], pids: frozenset[int], names: frozenset[str], limits: KmsgLimits
) -> Finding:
    """One killed engine is started again; one that is killed again and again has too little memory."""
    if not lines:
        return _none(OOM)
    killed = [match for line in lines if (match := FAMILIES[OOM].search(line.text))]
    engines = [
        f"{match['name']} (pid {match['pid']})"
        for match in killed
        if int(match["pid"]) in pids or match["name"] in names or match["name"].startswith(_VLLM)
    ]
    basis = Basis.limit("out_of_memory")
    if engines:
        summary = f"the OOM killer ended {listed(engines, 3)} of an engine in {_window(limits)}"
        bad = Verdict.FAIL if len(engines) >= limits.out_of_memory else Verdict.WARN
        seen, most = len(engines), limits.out_of_memory
        return Finding(_subject(OOM), bad, summary, seen, most, action=_OOM, basis=basis)
    others = [f"{match['name']} (pid {match['pid']})" for match in killed]
    summary = f"the OOM killer ended {listed(others, 3)} in {_window(limits)}, no engine"
    return Finding(_subject(OOM), Verdict.WARN, summary, len(others), 0, action=_OOM, basis=basis)


def _uncorrected(lines: Sequence[KmsgRecord]) -> Finding:
    if not lines:
        return _none(UNCORRECTED, hours=False)
    summary = f"{len(lines)} lines of uncorrected hardware errors since boot, last: {_quoted(lines[-1])}"
    basis = Basis.standard("kernel log wordings")
    return Finding(_subject(UNCORRECTED), Verdict.FAIL, summary, len(lines), 0, action=_MEMORY, basis=basis)


def _corrected(lines: Sequence[KmsgRecord], limits: KmsgLimits) -> Finding:
    basis, count = Basis.limit("corrected"), len(lines)
    if count < limits.corrected:
        words = f"{count} corrected errors in {_window(limits)}" if count else "the kernel log has none"
        return Finding(_subject(CORRECTED), Verdict.PASS, words, count, limits.corrected, basis=basis)
    summary = f"{count} corrected hardware errors in {_window(limits)}, last: {_quoted(lines[-1])}"
    most = limits.corrected
    return Finding(_subject(CORRECTED), Verdict.WARN, summary, count, most, action=_MEMORY, basis=basis)


def _quoted(record: KmsgRecord) -> str:
    return " ".join(record.text.split())[:100]


def _engine_pids(sources: Sources, profile: NodeProfile) -> frozenset[int]:
    """Processes of engines as far as they are known now; one that was killed is known by its name."""
    found: set[int] = set()
    for name in profile.engines:
        try:
            seen = sources.engines.observe(name)
        except SourceError:  # not observed: its processes are told by their names
            continue
        found |= {*seen.pids, *({seen.status.pid} if seen.status.pid is not None else ())}
    return frozenset(found)


def _engine_names(profile: NodeProfile) -> frozenset[str]:
    """What the kernel calls the engines' programs."""
    commands = (engine.launch.command[0] for engine in profile.engines.values())
    return frozenset(command.rsplit("/", 1)[-1][:_COMM_CHARS] for command in commands)
