"""How the nodes of a site stand, by what their agents said: a row for each that serves together (pure).

What is not known is never ready: no answer, a late or garbled one, one of another node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from agent.fleet.ask import Answer
from agent.fleet.site import Instance, Site, SiteHost
from agent.fleet.told import OPEN, Gate, Told, line
from agent.rows import natural

UNKNOWN, NOT_LIVE, MISSING = "unknown", "not live", "missing"
NOT_ASKED = Answer(why="was not asked")
#: What a person is needed for first; states that are not here come before `serving`.
ORDER = (
    UNKNOWN,
    NOT_LIVE,
    "quarantined",
    "failed",
    MISSING,
    "stopped",
    "maintenance",
    "degraded",
    "draining",
    "booting",
    "preflight",
    "launching",
    "warming",
    "observe",
    "member",
    "serving",
)
_HINTS = {
    UNKNOWN: "see that the node runs and port {port} is let through; systemctl status nodegate there",
    NOT_LIVE: "its agent hangs: journalctl -u nodegate on the node, then restart it",
    MISSING: "the agent runs another profile: run site.yml --tags agent",
    "maintenance": "when the work is done: nodegate fleet maintain --finish --limit {host}",
    "stopped": "when it may serve again: nodegate gate resume on the node",
    "observe": "mode observe: nothing is gated",
}


@dataclass(frozen=True)
class GateStand:
    """One engine on one host."""

    host: str
    engine: str
    state: str
    ready: bool = False
    since_s: float | None = None
    what: str = ""
    hint: str = ""

    @property
    def rank(self) -> int:
        """Place in ORDER; an unheard-of state is trouble until somebody knows better."""
        return ORDER.index(self.state) if self.state in ORDER else ORDER.index("failed")


@dataclass(frozen=True)
class Row:
    """Hosts that serve together, or one host."""

    hosts: tuple[str, ...]
    gates: tuple[GateStand, ...]
    versions: tuple[str, ...]
    #: Hosts whose agent runs another profile than the inventory has.
    other_profile: tuple[str, ...]
    notes: tuple[str, ...]
    simulated: bool = False

    @property
    def worst(self) -> GateStand:
        """The gate that a person is needed for."""
        return min(self.gates, key=lambda gate: gate.rank)

    @property
    def ready(self) -> bool:
        """Whether every gate is open, or stands behind an open head."""
        open_engines = {gate.engine for gate in self.gates if gate.ready}
        return bool(self.gates) and all(
            gate.ready or (gate.state == "member" and gate.engine in open_engines) for gate in self.gates
        )


@dataclass(frozen=True)
class Capacity:
    """Engines of one pool: instances, for a group counts once."""

    pool: str
    ready: int
    degraded: int
    unknown: int
    all: int


@dataclass(frozen=True)
class Fleet:
    """All that was asked for."""

    rows: tuple[Row, ...]
    pools: tuple[Capacity, ...]

    @property
    def exit_code(self) -> int:
        """0 all ready, 1 something is not, 2 nothing worse than unknown."""
        states = {row.worst.state for row in self.rows if not row.ready}
        if not states:
            return 0
        bad = [gate for row in self.rows if not row.ready for gate in row.gates if not _fine(gate, row)]
        return 2 if all(gate.state == UNKNOWN for gate in bad) else 1


def _fine(gate: GateStand, row: Row) -> bool:
    """Whether it is no reason why its row is not ready; a member waits for a head that is not known."""
    return gate.ready or (gate.state == "member" and any(other.state == UNKNOWN for other in row.gates))


def fleet_of(site: Site, answers: Mapping[str, Answer]) -> Fleet:
    """Everything asked for, with what serves together with it; worst first."""
    names = site.with_mates(site.asked)
    rows = [_row(site, part, answers) for part in _together(site, names)]
    rows.sort(key=lambda row: (row.ready, row.worst.rank, [natural(host) for host in row.hosts]))
    instances = [one for one in site.instances if set(one.hosts) & set(names)]
    return Fleet(tuple(rows), tuple(capacities(instances, site, answers)))


def capacities(instances: Iterable[Instance], site: Site, answers: Mapping[str, Answer]) -> list[Capacity]:
    """By pool, in the order of their first engine."""
    pools: dict[str, list[GateStand]] = {}
    for one in instances:
        pools.setdefault(one.pool, []).append(head_of(one, site, answers))
    return [
        Capacity(
            pool,
            sum(gate.ready for gate in heads),
            sum(gate.ready and gate.state == "degraded" for gate in heads),
            sum(gate.state == UNKNOWN for gate in heads),
            len(heads),
        )
        for pool, heads in pools.items()
    ]


def head_of(one: Instance, site: Site, answers: Mapping[str, Answer]) -> GateStand:
    """The gate that answers for an instance."""
    host = site.hosts.get(one.head)
    if host is None:
        return GateStand(one.head, one.engine, UNKNOWN, what="the group's head is not in this inventory")
    found = stands(host, answers.get(host.name, NOT_ASKED))
    missing = GateStand(host.name, one.engine, MISSING, what="its agent knows no such engine")
    return next((gate for gate in found if gate.engine == one.engine), missing)


def stands(host: SiteHost, answer: Answer) -> list[GateStand]:
    """Every engine of a host: those that it told of and those of its profile; `-` where there is none."""
    expected = [engine.name for engine in host.facts.engines]
    if answer.told is None:
        hint = _HINTS[UNKNOWN].format(port=host.port)
        return [GateStand(host.name, name, UNKNOWN, what=answer.why, hint=hint) for name in expected or ["-"]]
    told = answer.told
    found = [_stand(host, told, gate) for gate in told.gates]
    known = {gate.engine for gate in found}
    missing = "the agent does not know this engine" if told.gates else "the agent has published nothing yet"
    state = MISSING if told.gates or told.live else NOT_LIVE
    found += [
        GateStand(host.name, name, state, what=missing, hint=_HINTS[state])
        for name in expected
        if name not in known
    ]
    state = "observe" if told.live else NOT_LIVE
    return found or [GateStand(host.name, "-", state, what="it has no engine")]


def _stand(host: SiteHost, told: Told, gate: Gate) -> GateStand:
    if not told.live:
        beat = "the main loop of its agent does not beat"
        return GateStand(host.name, gate.engine, NOT_LIVE, False, gate.since_s, beat, _HINTS[NOT_LIVE])
    what, hint = _why(told, gate, gate.state)
    return GateStand(
        host.name,
        gate.engine,
        gate.state,
        gate.ready,
        gate.since_s,
        what,
        hint.format(host=host.name, port=host.port),
    )


def _why(told: Told, gate: Gate, state: str) -> tuple[str, str]:
    """What stands against a gate, and what to do about it."""
    first = next(iter(gate.blocking), None)
    count = gate.blocking_count if gate.blocking_count is not None else len(gate.blocking)
    more = f" (and {count - 1} more)" if count > 1 else ""
    hint = next((reason.action.hint for reason in gate.blocking if reason.action.hint), "")
    hint = line(hint).replace("{", "{{").replace("}", "}}")
    if held := told.holds.maintenance:
        return line(f"maintenance: {held.reason}{f' ({held.who})' if held.who else ''}"), _HINTS[
            "maintenance"
        ]
    if state in OPEN | {"member"} and first is None:
        return ("FORCED OPEN" if gate.forced else ""), ""
    own = first is None or first.check.startswith("gate.")
    what = gate.reason if own or first is None else f"{first.check} {first.subject}: {first.summary}{more}"
    return line(what), hint or _HINTS.get(state, "")


def _together(site: Site, names: Sequence[str]) -> list[tuple[str, ...]]:
    """Hosts that share an instance, each once."""
    parts, seen = [], set()
    for name in names:
        if name not in seen:
            part = site.mates(name)
            seen |= set(part)
            parts.append(part)
    return parts


def _row(site: Site, hosts: tuple[str, ...], answers: Mapping[str, Answer]) -> Row:
    known = [(site.hosts[name], answers.get(name, NOT_ASKED)) for name in hosts]
    gates = [gate for host, answer in known for gate in stands(host, answer)]
    told = [(host, answer.told) for host, answer in known if answer.told is not None]
    other = [
        host.name
        for host, said in told
        if host.facts.hash and said.node and said.profile_hash != host.facts.hash
    ]
    return Row(
        hosts,
        tuple(gates),
        tuple(dict.fromkeys(line(said.version) for _, said in told)),
        tuple(other),
        tuple(note for host, said in known for note in _notes(host, said)),
        any(said.simulated for _, said in told),
    )


def _notes(host: SiteHost, answer: Answer) -> list[str]:
    """What else there is to say of a host."""
    notes = []
    if host.facts.fault:
        notes.append(f"{host.name}: its profile in the inventory is bad: {line(host.facts.fault)}")
    if answer.told is not None:
        notes += [f"{host.name}: PROBLEM {line(problem)}" for problem in answer.told.problems[:3]]
        run = answer.told.checklist
        if run is not None and run.verdict is None:
            at = f"step {line(run.step or '-')}, {run.done} of {run.total} done"
            left = "" if run.running else ", not ended: nobody runs it any more"
            notes.append(f"{host.name}: checklist {line(run.name)}, {at}{left}")
    return notes
