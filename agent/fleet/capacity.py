"""The plan of a maintenance by what the agents say now."""

from __future__ import annotations

from collections.abc import Sequence

from agent.fleet.ask import TIMEOUT_S, asked
from agent.fleet.plan import Plan, plan
from agent.fleet.site import Site


def look(site: Site, take: Sequence[str], timeout_s: float = TIMEOUT_S) -> Plan:
    """Ask every node that may matter, and plan. ConfigError when these hosts may not be taken."""
    return plan(site, asked((site.hosts[name] for name in matters(site, take)), timeout_s=timeout_s), take)


def matters(site: Site, take: Sequence[str]) -> tuple[str, ...]:
    """The hosts of every pool that one of these is in, and those that serve together with one of them."""
    pools = {one.pool for one in site.instances if set(one.hosts) & set(take)}
    names = {name for one in site.instances if one.pool in pools for name in one.hosts if name in site.hosts}
    engineless = set(site.hosts) - {name for one in site.instances for name in one.hosts}
    more = engineless if engineless & set(take) else set()
    return site.with_mates(names | more | set(take))
