"""Who may be taken into maintenance, and what is left to carry the load then (pure).

Looked at before anything is changed, and again before each node, by what the agents say at that moment. A
node that is not known is not ready. Engines of one pool stand in for each other; a group is one engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent.errors import ConfigError
from agent.fleet.ask import Answer
from agent.fleet.site import AT_ONCE, MIN_READY, POOL, Instance, Site, SiteHost
from agent.fleet.standing import NOT_ASKED, UNKNOWN, GateStand, head_of, stands
from agent.fleet.told import Told
from agent.profile_yaml import clean
from agent.provision.least_ready import least_ready

FINISH = "nodegate fleet maintain --finish --limit"


@dataclass(frozen=True)
class Head:
    """An engine whose gate is on another host than the one that is taken: it is drained there first."""

    host: str
    engine: str


@dataclass(frozen=True)
class Plan:
    """What may be done, in lines for people, and which gates are drained before each host."""

    lines: tuple[str, ...]
    heads: Mapping[str, tuple[Head, ...]]
    #: Hosts that are in maintenance already.
    held: tuple[str, ...]


def plan(site: Site, answers: Mapping[str, Answer], take: Sequence[str]) -> Plan:
    """What taking these hosts means. ConfigError, in one line with the numbers, when it may not be."""
    held = held_hosts(site, answers)
    _refuse_silent(site, answers, take)
    wanted = list(dict.fromkeys(take))
    lost = [one for one in site.instances if set(one.hosts) & set(wanted)]
    heads = {name: _heads(site, answers, name, lost) for name in wanted}
    lines = [*_at_once(site, held, wanted), *_min_ready(site, answers, wanted, lost)]
    lines += [_group_line(one, wanted) for one in lost if len(one.hosts) > 1]
    return Plan(tuple(lines), heads, tuple(name for name in wanted if name in held))


def held_hosts(site: Site, answers: Mapping[str, Answer]) -> dict[str, str]:
    """Hosts that are in maintenance by their agents' word, and why."""
    told = ((name, answers.get(name, NOT_ASKED).told) for name in site.hosts)
    return {
        name: said.holds.maintenance.reason
        for name, said in told
        if said is not None and said.holds.maintenance is not None
    }


def heads_of(site: Site, name: str) -> tuple[Head, ...]:
    """The gates that stand for engines of this host on any host, its own included."""
    return tuple(Head(one.head, one.engine) for one in site.instances if name in one.hosts)


def _refuse_silent(site: Site, answers: Mapping[str, Answer], take: Iterable[str]) -> None:
    for name in take:
        answer = answers.get(name, NOT_ASKED)
        if site.hosts[name].facts.fault:
            raise ConfigError(site.hosts[name].facts.fault, where=name)
        if answer.told is None or not answer.told.live:
            why = answer.why or "its main loop does not beat"
            raise ConfigError(
                f"its agent does not answer ({why}): whether it serves is not known, and nobody can drain it",
                where=name,
                remedy="see to its agent; or take its traffic away by hand and work on it as it is",
            )
        if strange := _not_in_profile(site.hosts[name], answer.told):
            raise ConfigError(
                f"it serves {_names(strange)} otherwise than its profile in the inventory says: what is lost"
                " with it is not known",
                where=name,
                remedy="bring the profile to the node first: site.yml --tags agent",
            )


def _not_in_profile(host: SiteHost, told: Told) -> list[str]:
    """Engines that work for clients, and that the inventory does not have so: no pool counts them."""
    alone = {engine.name: not engine.members for engine in host.facts.engines}
    return [
        clean(gate.engine)
        for gate in told.gates
        if (gate.ready and gate.engine not in alone)
        or (gate.state == "member" and alone.get(gate.engine, True))
    ]


def _at_once(site: Site, held: Mapping[str, str], take: Sequence[str]) -> list[str]:
    """In each pool no more nodes in maintenance than the inventory allows; a group is one."""
    lines = []
    for pool, names in _pools_of(site, take).items():
        most = _most(site, [name for name in names if name in take or name in held], pool)
        before = {site.mates(name) for name in names if name in held}
        after = before | {site.mates(name) for name in names if name in take}
        if len(after) > most and after != before:
            asked = _names(name for name in names if name in take)
            there = "".join(
                f", {name} is already ({held[name]})" for name in names if name in held and name not in take
            )
            first = next((name for name in names if name in held and name not in take), None)
            raise ConfigError(
                f"pool {pool}: {len(after)} nodes would be in maintenance at once"
                f" ({asked} asked for{there}), {AT_ONCE} is {most}",
                remedy=f"give that one back first: {FINISH} {first}" if first else "name fewer with --limit",
            )
        lines.append(f"pool {pool}: {len(after)} in maintenance then, at most {most}")
    return lines


def _min_ready(
    site: Site, answers: Mapping[str, Answer], take: Sequence[str], lost: Sequence[Instance]
) -> list[str]:
    """In each pool enough engines stay ready; what serves nothing now costs nothing."""
    lines = []
    for pool in dict.fromkeys(one.pool for one in lost):
        all_of_it = [one for one in site.instances if one.pool == pool]
        gates = {one: head_of(one, site, answers) for one in all_of_it}
        costs = [one for one in lost if one.pool == pool and _may_serve(gates[one])]
        if not costs:
            lines.append(f"pool {pool}: nothing of it serves on {_names(take)}")
            continue
        left = [one for one in all_of_it if one not in lost and gates[one].ready]
        bad = _of_bad_profiles(site, pool)
        whole = len(all_of_it) + len(bad)
        need, said = _needed(site, all_of_it, whole, pool)
        if len(left) < need:
            others = [gate for one, gate in gates.items() if one not in lost and not gate.ready]
            words = [*(f"{gate.host} {gate.state}" for gate in others), *(f"{n} bad profile" for n in bad)]
            down = "".join(f", {word}" for word in words[:5])
            more = f" and {len(words) - 5} more" if len(words) > 5 else ""
            raise ConfigError(
                f"pool {pool}: {len(left)} of {whole} engines would be ready without {_names(take)}"
                f"{down}{more}; {MIN_READY} is {said}",
                remedy="bring others back first (nodegate fleet status)",
            )
        lines.append(f"pool {pool}: {len(left)} of {whole} engines stay ready, {MIN_READY} is {said}")
    return lines


def _of_bad_profiles(site: Site, pool: str) -> list[str]:
    """Hosts whose engines are not known and may be of this pool: each counts as one, and is not ready."""
    return [
        name
        for name, host in site.hosts.items()
        if host.facts.fault and host.given.get(POOL) in (None, "", pool)
    ]


def _may_serve(gate: GateStand) -> bool:
    return gate.ready or gate.state == UNKNOWN


def _heads(
    site: Site, answers: Mapping[str, Answer], name: str, lost: Iterable[Instance]
) -> tuple[Head, ...]:
    """Gates on other hosts that must close before this host is taken, so that no request is lost."""
    found = []
    for one in lost:
        if name not in one.hosts or one.head == name:
            continue
        gate = head_of(one, site, answers)
        own = next(
            (stand for stand in stands(site.hosts[name], answers[name]) if stand.engine == one.engine), None
        )
        if gate.state == UNKNOWN and own is not None and own.state == "member":
            raise ConfigError(
                f"it works for {one.label}, and the head of it, {one.head}, does not answer ({gate.what}):"
                " its requests cannot be let end",
                where=name,
                remedy=f"see to {one.head} first",
            )
        if gate.ready:
            found.append(Head(one.head, one.engine))
    return tuple(found)


def _group_line(one: Instance, take: Sequence[str]) -> str:
    others = [name for name in one.hosts if name not in take]
    verbs = "stays up and waits" if len(others) == 1 else "stay up and wait"
    rest = f"; {_names(others)} {verbs}" if others else ""
    return f"{one.label} is one: it stops as a whole{rest}"


def _pools_of(site: Site, take: Iterable[str]) -> dict[str, list[str]]:
    """Hosts by pool, of the pools that these hosts are in; hosts without engines are a pool of their own."""
    pools: dict[str, list[str]] = {}
    for name in site.hosts:
        own = dict.fromkeys(one.pool for one in site.instances if name in one.hosts) or {"-": None}
        for pool in own:
            pools.setdefault(pool, []).append(name)
    wanted = set(take)
    return {pool: names for pool, names in pools.items() if wanted & set(names)}


def _most(site: Site, take: Sequence[str], pool: str) -> int:
    values = [site.hosts[name].given.get(AT_ONCE, 1) for name in take]
    return min(_whole(value, pool) for value in values)


def _needed(site: Site, instances: Sequence[Instance], whole: int, pool: str) -> tuple[int, str]:
    """How many must stay ready, and as it is said: the most that any host of the pool asks for."""
    names = dict.fromkeys(name for one in instances for name in one.hosts if name in site.hosts)
    values = [site.hosts[name].given[MIN_READY] for name in names if MIN_READY in site.hosts[name].given]
    if not values:
        raise ConfigError(
            f"pool {pool}: the inventory does not say how many of {len(instances)} engines must stay ready",
            remedy=f"set {MIN_READY} for its hosts: a number, or a share such as 75%; 0 asks for none",
        )
    found = [(_count(value, whole, pool), value) for value in values]
    need, value = max(found, key=lambda one: one[0])
    return need, f"{value} ({need})" if "%" in str(value) else str(need)


def _count(value: Any, whole: int, pool: str) -> int:
    try:
        return least_ready(value, whole)
    except ValueError:
        raise _no_number(value, MIN_READY, pool) from None


def _whole(value: Any, pool: str) -> int:
    text = str(value).strip()
    if isinstance(value, bool) or not text.isdecimal() or int(text) < 1:
        raise _no_number(value, AT_ONCE, pool)
    return int(text)


def _no_number(value: Any, name: str, pool: str) -> ConfigError:
    remedy = "write a whole number" + (", or a share such as 75%" if name == MIN_READY else " from 1 on")
    return ConfigError(f"pool {pool}: {name} is {value!r} in the inventory", remedy=remedy)


def _names(names: Iterable[str]) -> str:
    return ", ".join(names)
