"""The standing of a fleet for people and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from agent.console import Out
from agent.fleet.standing import Capacity, Fleet, GateStand, Row

SCHEMA = 1
COLUMNS = ("host", "gate", "for", "agent", "what blocks")
#: More names than this in one place are counted, longer reasons than this are cut: --json has all of both.
MOST_NAMES, MOST_CHARS = 3, 120
#: More ready rows than this are counted, not shown, unless all are asked for.
READY_ROWS = 20
_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86400


def show_fleet(out: Out, fleet: Fleet, *, took_s: float, every: bool = False) -> None:
    """Table, notes and the line with the counts."""
    ready = [row for row in fleet.rows if row.ready]
    folded = len(ready) > READY_ROWS and not every
    rows = [row for row in fleet.rows if not (folded and row.ready)]
    out.banner(any(row.simulated for row in fleet.rows))
    if rows:
        out.table(COLUMNS, [_cells(row) for row in rows])
    if folded:
        out.line(f"{'and ' if rows else ''}{len(ready)} that serve (--all shows them)", "green")
    for hosts, hint in _actions(rows):
        out.line(f"-> {_named(hosts)}: {hint}")
    for row in fleet.rows:
        for note in row.notes:
            out.line(note, "yellow")
    _show_profiles(out, fleet)
    out.line(summary(fleet, took_s))


def summary(fleet: Fleet, took_s: float) -> str:
    """Hosts by state, and capacity by pool, in one line."""
    hosts = sum(len(row.hosts) for row in fleet.rows)
    states: dict[str, int] = {}
    for row in fleet.rows:
        state = row.worst.state if not row.ready or row.worst.state != "member" else "serving"
        states[state] = states.get(state, 0) + len(row.hosts)
    counts = ", ".join(f"{count} {state}" for state, count in states.items())
    pools = "; ".join(pool_words(pool) for pool in fleet.pools)
    words = f"{hosts} host{'' if hosts == 1 else 's'}: {counts}"
    return f"{words}; ready {pools} ({took_s:.1f} s)" if pools else f"{words} ({took_s:.1f} s)"


def pool_words(pool: Capacity) -> str:
    """`main 62/64 (1 degraded, 1 unknown)`."""
    more = [
        f"{count} {word}" for count, word in ((pool.degraded, "degraded"), (pool.unknown, "unknown")) if count
    ]
    words = f"{pool.pool} {pool.ready}/{pool.all}"
    return f"{words} ({', '.join(more)})" if more else words


def fleet_json(fleet: Fleet, took_s: float) -> dict[str, Any]:
    """The same as data."""
    return {
        "schema": SCHEMA,
        "exit_code": fleet.exit_code,
        "simulated": any(row.simulated for row in fleet.rows),
        "took_s": round(took_s, 3),
        "pools": [asdict(pool) for pool in fleet.pools],
        "rows": [_row_json(row) for row in fleet.rows],
    }


def _row_json(row: Row) -> dict[str, Any]:
    worst = row.worst
    return {
        "hosts": list(row.hosts),
        "state": worst.state,
        "ready": row.ready,
        "since_s": worst.since_s,
        "what": worst.what,
        "hint": worst.hint,
        "versions": list(row.versions),
        "profile_differs": list(row.other_profile),
        "notes": list(row.notes),
        "simulated": row.simulated,
        "gates": [asdict(gate) for gate in row.gates],
    }


def _cells(row: Row) -> tuple[str, ...]:
    worst = row.worst
    where = f"{worst.host}: " if len(row.hosts) > 1 and worst.what else ""
    differs = "; profile differs" if row.other_profile else ""
    what = worst.what if len(worst.what) <= MOST_CHARS else f"{worst.what[:MOST_CHARS]}..."
    return (
        _named(row.hosts),
        _gates(row),
        _age(worst.since_s),
        f"{'/'.join(row.versions) or '-'}{differs}",
        f"{where}{what}",
    )


def _named(names: Sequence[str]) -> str:
    """`n1, n2, n3 +13`."""
    more = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" +{more}" if more > 0 else "")


def _actions(rows: Sequence[Row]) -> list[tuple[list[str], str]]:
    """What to do, in the order of the rows: each action once, with the hosts that it is for."""
    hosts: dict[str, list[str]] = {}
    for row in rows:
        if row.worst.hint:
            hosts.setdefault(row.worst.hint, []).append(row.worst.host)
    return [(named, hint) for hint, named in hosts.items()]


def _gates(row: Row) -> str:
    """The states of all gates: one word where they are one, else by engine, of groups by host too."""
    if len(row.gates) == 1:
        return row.gates[0].state
    engines: dict[str, list[GateStand]] = {}
    for gate in row.gates:
        engines.setdefault(gate.engine, []).append(gate)
    return ", ".join(_engine(name, gates, len(engines) > 1) for name, gates in engines.items())


def _engine(name: str, gates: Sequence[GateStand], several: bool) -> str:
    """One engine: the state of its head, and of every member that is not as it should be."""
    head = next((gate for gate in gates if gate.state != "member"), gates[0])
    others = [gate for gate in gates if gate is not head and gate.state != "member"]
    text = (
        head.state
        if len(gates) == 1 or not others
        else _named([f"{gate.host} {gate.state}" for gate in (head, *others)])
    )
    return f"{name} {text}" if several else text


def _age(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    for unit_s, unit in ((_DAY_S, "d"), (_HOUR_S, "h"), (_MINUTE_S, "min")):
        if seconds >= 2 * unit_s:
            return f"{seconds / unit_s:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def _show_profiles(out: Out, fleet: Fleet) -> None:
    """Which nodes do not run what the inventory says, and that releases differ."""
    other = [host for row in fleet.rows for host in row.other_profile]
    if other:
        names = ", ".join(other[:10]) + (f" and {len(other) - 10} more" if len(other) > 10 else "")
        out.line(f"run another profile than the inventory has: {names}; run site.yml --tags agent", "yellow")
    versions = sorted({version for row in fleet.rows for version in row.versions})
    if len(versions) > 1:
        out.line(f"{len(versions)} releases of nodegate: {', '.join(versions)}", "yellow")
