"""engine.peers: do the ports of other nodes that an engine's ranks need accept connections? connect(2)

A blocked port shows in no log: the ranks wait for each other in silence until a deadline of half an hour.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from agent.checks import advice
from agent.checks.host_text import listed
from agent.checks.registry import Limits, check
from agent.errors import SourceError
from agent.model import Basis, Finding, Phase, ServingClass, Verdict
from agent.node_profile import NodeProfile, Peer
from agent.sources import Sources
from agent.sources.host_reading import Reach

#: Peers are asked at the same time: a dead node takes its whole deadline at each of its ports.
_AT_ONCE = 32
_OPEN = advice.person(
    "Look whether that node is up and a program listens there, then at firewall and switch rules on the path."
)


def _no_peers(profile: NodeProfile) -> str | None:
    asked = any(engine.peers for engine in profile.engines.values())
    return None if asked else "the profile names no peers of an engine"


@check(
    "engine.peers",
    title="Peers of the engine reachable",
    source="connect(2)",
    serving_class=ServingClass.SOFT,
    phases=(Phase.ADMISSION, Phase.MAINTENANCE),
    network=True,
    period_s=15.0,
    deadline_s=14.0,
    fail_for_s=30.0,
    skip=_no_peers,
    action=_OPEN,
)
def engine_peers(sources: Sources, profile: NodeProfile, _limits: Limits) -> Iterator[Finding]:
    """Every peer of an engine must accept a connection before its ranks start."""
    peers = {peer: None for engine in profile.engines.values() for peer in engine.peers}
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        answers = dict(zip(peers, pool.map(lambda peer: _ask(sources, peer), peers), strict=True))
    for name, engine in profile.engines.items():
        yield _judge(name, engine.peers, answers)


def _ask(sources: Sources, peer: Peer) -> Reach | SourceError:
    try:
        return sources.host.reach(peer.host, peer.port)
    except SourceError as cause:
        return cause


def _judge(name: str, peers: list[Peer], answers: dict[Peer, Reach | SourceError]) -> Finding:
    subject, basis = f"engine:{name}", Basis.profile(f"engines.{name}.peers")
    if not peers:
        return Finding(subject, Verdict.SKIP, "the profile names no peers of this engine")
    closed = [
        f"{peer.host}:{peer.port} ({answer.problem or 'refused'})"
        for peer in peers
        if isinstance(answer := answers[peer], Reach) and not answer.accepted
    ]
    silent = [f"{p.host}:{p.port} ({answers[p]})" for p in peers if isinstance(answers[p], SourceError)]
    if closed:
        summary = f"{len(closed)} of {len(peers)} peers not reachable: {listed(closed, 3)}"[:240]
        seen = len(peers) - len(closed)
        return Finding(subject, Verdict.FAIL, summary, seen, len(peers), action=_OPEN, basis=basis)
    if silent:
        return Finding(subject, Verdict.UNKNOWN, f"peers could not be asked: {listed(silent, 2)}"[:240])
    summary = f"all {len(peers)} accept connections"
    return Finding(subject, Verdict.PASS, summary, len(peers), len(peers), basis=basis)
