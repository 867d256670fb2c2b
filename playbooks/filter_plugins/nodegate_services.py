"""Filters that turn nodes' profiles into what a load balancer and Prometheus are told."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from ansible.errors import AnsibleFilterError

from agent.errors import ConfigError
from agent.provision.services import Node, minimums, services, targets

#: Variables that say where a node belongs.
_PLACE = ("nodegate_row", "nodegate_pool", "nodegate_min_ready")


def _nodes(names: Iterable[str], hostvars: Any) -> list[Node]:
    """In the order of their names, for Ansible gives those of nested groups in another one each time.

    Profiles are taken as they are: they hold no templates, and to look for some takes seconds.
    """
    found = []
    for name in sorted(names, key=_in_order):
        given = hostvars.raw_get(name)
        address = str(given.get("ansible_host") or name)
        if "{{" in address:
            address = str(hostvars[name]["ansible_host"])
        place = {key: _filled(hostvars, name, key, given[key]) for key in _PLACE if key in given}
        found.append(Node(name, address, given.get("nodegate") or {}, place))
    return found


def _filled(hostvars: Any, name: str, key: str, value: Any) -> Any:
    """A variable, as Ansible fills it in where it is a template."""
    return hostvars[name][key] if "{{" in str(value) else value


def _in_order(name: str) -> list[tuple[int, str]]:
    """Numbers in a name count as numbers."""
    return [(int(word), "") if word.isdigit() else (-1, word) for word in re.split(r"(\d+)", name)]


def _told(make: Callable[[], list[dict[str, Any]]]) -> list[dict[str, Any]]:
    try:
        return make()
    except ConfigError as cause:
        raise AnsibleFilterError(str(cause)) from cause


class FilterModule:
    """The filters."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """By name."""
        return {
            "nodegate_services": lambda names, hostvars, ports, min_live=None: _told(
                lambda: services(_nodes(names, hostvars), ports, min_live or {})
            ),
            "nodegate_minimums": lambda names, hostvars: _told(lambda: minimums(_nodes(names, hostvars))),
            "nodegate_targets": lambda names, hostvars: _told(lambda: targets(_nodes(names, hostvars))),
        }
