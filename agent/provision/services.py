"""What a load balancer and Prometheus need of many nodes' profiles: engines by service, agents. Pure.

An engine of the same name on several nodes is one service: its replicas. Of a group only the head is one.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from agent.errors import ConfigError
from agent.provision.least_ready import least_ready

Profile = Mapping[str, Any]


@dataclass(frozen=True)
class Node:
    """One node as the inventory knows it."""

    name: str
    #: Where the machine beside it reaches it.
    address: str
    nodegate: Mapping[str, Any]
    #: Its place in the inventory: `nodegate_row`, `nodegate_pool`, `nodegate_min_ready`, as far as given.
    given: Mapping[str, Any] = field(default_factory=dict)

    @property
    def profile(self) -> Profile:
        """Its profile. ConfigError for a bad one: a load balancer must not lose a node in silence."""
        if "profile" not in self.nodegate:
            raise ConfigError(f"{self.name}: {self.nodegate.get('fault', 'has no profile')}")
        profile = self.nodegate["profile"]
        assert isinstance(profile, Mapping)
        return profile


@dataclass(frozen=True)
class Backend:
    """One engine that can take requests, and where its agent tells whether it may."""

    node: str
    address: str
    port: int
    agent_address: str
    api_port: int
    agent_check_port: int | None


def services(
    nodes: Iterable[Node], ports: Mapping[str, int], min_live: Mapping[str, int] | None = None
) -> list[dict[str, Any]]:
    """Services with their backends, for the names in `ports` (where each is offered). Raises ConfigError.

    `min_live` has the fewest nodes of a service that must be ready; one where it names none.
    """
    known, fewest = list(nodes), dict(min_live or {})
    found = []
    for name, port in ports.items():
        backends = [asdict(backend) for node in known if (backend := _backend(node, name)) is not None]
        if not backends:
            raise ConfigError(
                f"no node has an engine {name} that a load balancer can reach",
                where="loadbalancer_ports",
                remedy="name an engine that is no follower of a group and listens beyond loopback",
            )
        least = _least(name, fewest.pop(name, 1), len(backends))
        found.append({"name": name, "port": int(port), "backends": backends, "min_live": least})
    if fewest:
        raise ConfigError(
            f"{', '.join(sorted(fewest))}: no such engine is offered",
            where="loadbalancer_min_live",
            remedy="name engines of loadbalancer_ports",
        )
    return found


def _least(name: str, wanted: object, known: int) -> int:
    """The fewest nodes of a service; more than it has would refuse every request for good."""
    if not str(wanted).isdecimal() or not 1 <= int(str(wanted)) <= known:
        raise ConfigError(
            f"{name}: {wanted} nodes must be ready, and it has {known}",
            where="loadbalancer_min_live",
            remedy=f"write a number from 1 to {known}",
        )
    return int(str(wanted))


def targets(nodes: Iterable[Node]) -> list[dict[str, Any]]:
    """Where Prometheus finds each agent, and what it is called."""
    return [
        {
            "target": f"{_bracketed(node.address)}:{node.profile['api']['port']}",
            "node": node.profile["node"] or node.name,
            "platform": node.profile["platform"],
            "row": str(node.given.get("nodegate_row") or ""),
            "pool": str(node.given.get("nodegate_pool") or ""),
        }
        for node in nodes
    ]


def minimums(nodes: Iterable[Node]) -> list[dict[str, Any]]:
    """The fewest open gates of each pool, as far as the inventory says them; a node without a pool has one
    for each of its engines.

    Raises ConfigError for nodes of one pool that say different numbers, or none that is one.
    """
    found: dict[str, int] = {}
    known = list(nodes)
    whole = _engines_of_pools(known)
    for node in known:
        said = node.given.get("nodegate_min_ready")
        if said is None:
            continue
        for name in dict.fromkeys(_pool(node, engine) for engine in node.profile["engines"]):
            try:
                least = least_ready(said, whole[name])
            except ValueError:
                text = (
                    f"{node.name}: nodegate_min_ready is {said!r}, not a number of gates or a share of them"
                )
                raise ConfigError(text, remedy="write for example 3 or 75%") from None
            if found.setdefault(name, least) != least:
                raise ConfigError(
                    f"{node.name}: nodegate_min_ready is {said}, but {found[name]} on others of {name}"
                )
    return [{"pool": name, "minimum": number} for name, number in sorted(found.items())]


def _pool(node: Node, engine: str) -> str:
    return str(node.given.get("nodegate_pool") or engine)


def _engines_of_pools(nodes: Iterable[Node]) -> Counter[str]:
    """How many engines each pool has; a group has one, its head's."""
    found: Counter[str] = Counter()
    for node in nodes:
        for name, engine in node.profile["engines"].items():
            found[_pool(node, name)] += not engine["group"] or engine["group"]["rank"] == 0
    return found


def _backend(node: Node, name: str) -> Backend | None:
    profile = node.profile
    engine = profile["engines"].get(name)
    if engine is None or (engine["group"] and engine["group"]["rank"] > 0):
        return None
    address = _reachable(engine["host"], node.address)
    if address is None or profile["mode"] == "observe":
        return None
    return Backend(
        node.name, address, engine["port"], node.address, profile["api"]["port"], engine["agent_check_port"]
    )


def _reachable(host: str, address: str) -> str | None:
    """The address of an engine from outside; None for one that listens on loopback alone."""
    try:
        listens = ipaddress.ip_address(host)
    except ValueError:
        return None if host == "localhost" else host
    if listens.is_loopback:
        return None
    return address if listens.is_unspecified else _bracketed(host)


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address
