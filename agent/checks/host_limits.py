"""host.limits: may the engine lock its memory and open its files? /proc/PID/limits (proc_pid_limits(5)).

RDMA registers memory by locking it: a small RLIMIT_MEMLOCK shows as a failed queue pair, far from its cause.
Before the engine runs, the agent's own limits are an indication: an engine that it starts inherits them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from agent.checks import advice
from agent.checks.registry import Limits, check, each
from agent.errors import DeviceAbsent, ParseError, SourceUnavailable
from agent.model import Basis, Finding, ServingClass, Verdict
from agent.node_profile import Mode, NodeProfile
from agent.sources import Sources

OWN = "proc/self/limits"
UNLIMITED = "unlimited"
_RAISE = advice.play(
    "kernel",
    "Raise the limit where the engine is started (systemd: LimitMEMLOCK=, LimitNOFILE=), then restart it.",
)
_NAME = advice.person(
    "Write the limit as /proc/self/limits does, e.g. `Max locked memory`, in host.engine_limits."
)
#: `Max open files            1024                 524288               files`
_LINE = re.compile(r"(\S.*?)\s{2,}(unlimited|\d{1,20})\s+(unlimited|\d{1,20})(?:\s+\S+)?")


def _no_limits(profile: NodeProfile) -> str | None:
    if not profile.host.engine_limits:
        return "the profile asks for no limits"
    return None if profile.engines else "the profile has no engines"


@check(
    "host.limits",
    title="Limits of the engine's process",
    source="/proc/PID/limits",
    serving_class=ServingClass.INFO,
    period_s=60.0,
    fail_for_s=60.0,
    unknown_blocks_admission=False,  # an engine that others start has no process yet
    skip=_no_limits,
    action=_RAISE,
)
def host_limits(sources: Sources, profile: NodeProfile, _limits: Limits) -> Iterator[Finding]:
    """Each engine's process must have at least the soft limits of the profile."""
    names = [(f"engine:{name}", name) for name in profile.engines]
    yield from each(names, lambda subject, name: _judge(sources, profile, subject, name))


def _judge(sources: Sources, profile: NodeProfile, subject: str, name: str) -> Finding:
    wanted = profile.host.engine_limits
    seen = _of_engine(sources, name)
    if seen is not None:
        return _compared(subject, seen, wanted, Verdict.FAIL, "the engine's")
    if profile.mode is not Mode.MANAGE:
        raise SourceUnavailable("the engine's process is not known to the agent, which does not start it")
    seen = parse_limits(sources.tree.text(OWN), OWN)
    return _compared(subject, seen, wanted, Verdict.WARN, "not running yet; the agent's own")


def _of_engine(sources: Sources, name: str) -> dict[str, str] | None:
    """Limits of the engine's main process, None while it has none."""
    try:
        pid = sources.engines.observe(name).status.pid
    except SourceUnavailable:  # nothing observed yet: it has not been started
        return None
    if pid is None:
        return None
    path = f"proc/{pid}/limits"
    try:
        return parse_limits(sources.tree.text(path), path)
    except DeviceAbsent:  # it has just ended
        return None


def _compared(
    subject: str, seen: dict[str, str], wanted: Mapping[str, int | str], bad: Verdict, whose: str
) -> Finding:
    for name, want in wanted.items():
        basis = Basis.profile(f"host.engine_limits.{name}")
        value = seen.get(name)
        if value is None:
            summary = f"/proc/self/limits has no {name[:60]!r}"
            return Finding(subject, Verdict.FAIL, summary, "absent", want, action=_NAME, basis=basis)
        if not _at_least(value, want):
            summary = f"{whose} limit {name} is {value}, expected at least {want}"
            return Finding(subject, bad, summary, value, want, action=_RAISE, basis=basis)
    return Finding(
        subject, Verdict.PASS, f"{whose} limits suffice", basis=Basis.profile("host.engine_limits")
    )


def _at_least(value: str, want: int | str) -> bool:
    if value == UNLIMITED:
        return True
    return want != UNLIMITED and int(value) >= int(want)


def parse_limits(text: str, path: str) -> dict[str, str]:
    """Soft limits by name, as numbers or `unlimited`. Raises ParseError."""
    found = {match[1]: match[2] for line in text.splitlines() if (match := _LINE.fullmatch(line.strip()))}
    if not found:
        raise ParseError(f"/{path} lists no limits")
    return found
