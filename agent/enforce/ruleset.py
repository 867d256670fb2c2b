"""The nftables table `inet nodegate` as text for `nft -f -`, each text one transaction (pure).

What a load balancer sees of a closed gate: its connection is refused at once (TCP reset), as if nothing
listened, so its own health check and its retry on connect work as with an engine that is down. Connections
that exist go on: only the packet that opens one (SYN alone) is ever refused. That needs no connection
tracking, so nothing breaks when the table is loaded under traffic, and nothing can overflow. The node itself
always gets through (over lo, at whichever of its addresses), other ports are never looked at, and `accept`
here overrides no other table's `drop`.

The permission is an element of the set `open`, with a timeout: who does not renew it closes the port. Adding
an element that is there does not renew it in every version of nft and kernel, so it is added, deleted and
added again in one transaction; whoever connects meanwhile sees either the old or the new element.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence

from agent.node_profile import NodeProfile

TABLE = "inet nodegate"
_OPENING = "tcp dport @engines tcp flags & (fin | syn | rst | ack) == syn"
#: Hook, priority and rule of the chains that look at arriving packets.
_HOOKS = (
    # Before the port is rewritten (-100): a container's published port leaves the host by another way.
    ("prerouting", -110, f"{_OPENING} fib daddr type local jump engine"),
    # Before the usual filter chains (0). For addresses that the first does not know as local (a VRF's).
    ("input", -10, f"{_OPENING} jump engine"),
)

#: Only the set `open` has elements with a time.
_ELEMENT = re.compile(r"\b(\d+) timeout \w+ expires (\w+)")
_TIME = re.compile(r"(\d+)(ms|[dhms])")
_UNITS_S = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


def removal() -> str:
    """Take the table away; it need not be there."""
    return f"add table {TABLE}\ndelete table {TABLE}\n"


def ruleset(profile: NodeProfile, open_ports: Mapping[int, float]) -> str:
    """Load the whole table in place of what was there; `open_ports` has the seconds of each permission."""
    engines = sorted(engine.port for engine in profile.engines.values())
    permissions = [f"{port} timeout {_timeout(left_s)}" for port, left_s in open_ports.items()]
    return removal() + "\n".join(
        [
            f"table {TABLE} {{",
            *_set("engines", "inet_service", "", [str(port) for port in engines]),
            *_set("open", "inet_service", "timeout", permissions),
            *_set("allow4", "ipv4_addr", "interval", _networks(profile.enforce.allow, 4)),
            *_set("allow6", "ipv6_addr", "interval", _networks(profile.enforce.allow, 6)),
            "\tchain engine {",
            '\t\tiifname "lo" accept',
            "\t\tip saddr @allow4 accept",
            "\t\tip6 saddr @allow6 accept",
            "\t\ttcp dport @open accept",
            "\t\tcounter reject with tcp reset",
            "\t}",
            *(line for hook in _HOOKS for line in _chain(*hook)),
            "}",
            "",
        ]
    )


def changes(open_ports: Iterable[int], closed_ports: Iterable[int], timeout_s: float) -> str:
    """Renew the permission of some ports and take that of others, whether they have one or not.

    Fails when the table is gone, also if there is nothing to say of any port.
    """
    timeout = _timeout(timeout_s)
    add, delete = (
        f"add element {TABLE} open {{ %d timeout {timeout} }}\n",
        f"delete element {TABLE} open {{ %d }}\n",
    )
    renewed = [(add + delete + add) % (port, port, port) for port in open_ports]
    return f"add chain {TABLE} engine\n" + "".join(
        renewed + [(add + delete) % (port, port) for port in closed_ports]
    )


def permissions(table: str) -> dict[int, float]:
    """The seconds that each permission still has in the table as `nft list table` writes it."""
    return {int(port): _seconds(left) for port, left in _ELEMENT.findall(table)}


def _chain(hook: str, priority: int, rule: str) -> list[str]:
    """The lines of a chain at a hook."""
    return [
        f"\tchain {hook} {{",
        f"\t\ttype filter hook {hook} priority {priority}; policy accept;",
        f"\t\t{rule}",
        "\t}",
    ]


def _set(name: str, kind: str, flags: str, elements: Sequence[str]) -> list[str]:
    """The lines of one set; nft takes no empty list of elements."""
    return [
        f"\tset {name} {{",
        f"\t\ttype {kind}",
        *([f"\t\tflags {flags}"] if flags else []),
        *([f"\t\telements = {{ {', '.join(elements)} }}"] if elements else []),
        "\t}",
    ]


def _networks(allow: Sequence[str], version: int) -> list[str]:
    """The networks of one IP version; nft refuses those that overlap."""
    networks = [ipaddress.ip_network(text) for text in allow]
    if version == 4:
        return [
            str(n)
            for n in ipaddress.collapse_addresses(n for n in networks if isinstance(n, ipaddress.IPv4Network))
        ]
    return [
        str(n)
        for n in ipaddress.collapse_addresses(n for n in networks if isinstance(n, ipaddress.IPv6Network))
    ]


def _seconds(text: str) -> float:
    """A time as nft writes it: 1m2s988ms."""
    return sum(int(number) * _UNITS_S[unit] for number, unit in _TIME.findall(text))


def _timeout(seconds: float) -> str:
    """As nft takes it; none at all would be a permission for good."""
    return f"{max(1, round(seconds * 1000))}ms"
