"""Sites of a few nodes for pure tests of fleet commands: hosts, groups, and what their agents say."""

from __future__ import annotations

import json
from typing import Any

from many_nodes import brief

from agent.fleet.ask import Answer
from agent.fleet.profile_facts import EngineFacts, ProfileFacts
from agent.fleet.site import Site, SiteHost, site_of_hosts
from agent.fleet.told import parse


def host(name: str, *engines: str, group: tuple[str, ...] = (), **given: Any) -> SiteHost:
    """A host with these engines (default main), all of one group if it has members."""
    names = engines or ("main",)
    rank = group.index(name) if name in group else 0
    facts = ProfileFacts(
        node=name,
        hash=f"hash-{name}",
        mode="manage",
        engines=tuple(EngineFacts(e, rank, group) for e in names),
    )
    return SiteHost(name, f"192.0.2.{len(name)}", facts, given)


def site(*hosts: SiteHost, asked: tuple[str, ...] = ()) -> Site:
    """A site; all of it is asked for unless some are named."""
    return site_of_hosts(hosts, asked or [one.name for one in hosts])


def says(name: str, state: str = "serving", **more: Any) -> Answer:
    """What its agent says."""
    return Answer(parse(json.dumps(brief(name, state, profile_hash=f"hash-{name}", **more)).encode(), name))


def in_maintenance(name: str, reason: str = "pump") -> Answer:
    """A node that an operator has taken out."""
    held = {"maintenance": {"reason": reason, "who": "uid 0", "since_wall_s": 1.0}, "waivers": []}
    return says(name, "maintenance", holds=held)


SILENT = Answer(why="no answer within 3 s")
