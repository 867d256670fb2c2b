"""The fewest nodes of a service, and what the templates for HAProxy and nginx must and must not say."""

from __future__ import annotations

import re
from typing import Any

import jinja2
import pytest
import yaml
from repo_files import ROOT

from agent.errors import ConfigError
from agent.profile_loader import profile_from_dict
from agent.provision.services import Node, services

ROLE = ROOT / "playbooks" / "roles" / "loadbalancer"
PROFILE = {
    "mode": "gate",
    "gpus": {"count": 0},
    "nvlink": {"links_per_gpu": 0},
    "fabric": {"kind": "none"},
    "engines": {"kimi": {"gpus": [], "port": 8000, "host": "0.0.0.0", "agent_check_port": 9480}},
}


def nodes(count: int) -> list[Node]:
    profile = profile_from_dict(PROFILE).profile.model_dump(mode="json")
    return [Node(f"n{i}", f"192.0.2.{i}", {"profile": profile}) for i in range(1, count + 1)]


def rendered(kind: str, found: list[dict[str, Any]]) -> str:
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, trim_blocks=True)
    text = (ROLE / "templates" / f"{kind}.j2").read_text()
    return environment.from_string(text).render(
        loadbalancer_services=found, loadbalancer_log="LOG", loadbalancer_stats_socket="/run/stats"
    )


def test_one_node_is_the_fewest_unless_the_inventory_says_more() -> None:
    assert services(nodes(3), {"kimi": 80})[0]["min_live"] == 1
    assert services(nodes(3), {"kimi": 80}, {"kimi": 2})[0]["min_live"] == 2


@pytest.mark.parametrize("wanted", [0, 4, "two", -1, 1.5])
def test_a_minimum_that_cannot_be_is_refused(wanted: object) -> None:
    with pytest.raises(ConfigError, match=rf"kimi: {wanted} nodes must be ready, and it has 3"):
        services(nodes(3), {"kimi": 80}, {"kimi": wanted})  # type: ignore[dict-item]


def test_a_minimum_of_what_is_not_offered_is_refused() -> None:
    with pytest.raises(ConfigError, match="glm: no such engine is offered"):
        services(nodes(3), {"kimi": 80}, {"glm": 2})


def test_haproxy_refuses_below_the_minimum_and_says_so_to_whoever_asks() -> None:
    text = rendered("haproxy", services(nodes(3), {"kimi": 80}, {"kimi": 2}))
    assert "monitor fail if { nbsrv(kimi) lt 2 }" in text
    assert re.search(
        r"http-request return status 503 .*fewer than 2 of 3 nodes.* if \{ nbsrv\(kimi\) lt 2 \}", text
    )


def test_haproxy_lets_a_node_that_is_out_finish_and_sends_nothing_twice() -> None:
    text = "\n".join(
        line
        for line in rendered("haproxy", services(nodes(1), {"kimi": 80})).splitlines()
        if "# " not in line
    )
    # It would end every stream of a drained node as soon as its gate closes.
    assert "shutdown-sessions" not in text
    assert re.findall(r"retry-on (.*)", text) == ["conn-failure"]
    assert "option srvtcpka" in text and "tcp-ut" in text


def test_nginx_sends_no_post_twice() -> None:
    assert "non_idempotent" not in rendered("nginx", services(nodes(1), {"kimi": 80}))


def test_every_variable_of_the_role_is_described() -> None:
    described = yaml.safe_load((ROLE / "meta" / "argument_specs.yml").read_text())
    options = set(described["argument_specs"]["main"]["options"])
    assert set(yaml.safe_load((ROLE / "defaults" / "main.yml").read_text())) <= options
