"""Which engines of which nodes are behind a load balancer, and what the templates make of them."""

from __future__ import annotations

import copy
import re
from typing import Any

import jinja2
import pytest
import yaml
from repo_files import ROOT

from agent.errors import ConfigError
from agent.profile_loader import profile_from_dict
from agent.provision.services import Node, services, targets

PLAIN = {"mode": "gate", "gpus": {"count": 0}, "nvlink": {"links_per_gpu": 0}, "fabric": {"kind": "none"}}
MEMBERS = [{"node": f"n{i}", "address": f"192.0.2.{i}"} for i in (1, 2)]


def node(name: str, address: str, engine: dict[str, Any] | None, **more: Any) -> Node:
    data = copy.deepcopy(PLAIN) | {"node": name} | more
    if engine is not None:
        data["engines"] = {"kimi": {"gpus": [], "port": 8000, **engine}}
    return Node(name, address, {"profile": profile_from_dict(data).profile.model_dump(mode="json")})


def test_replicas_are_engines_of_one_name_that_can_be_reached() -> None:
    group = {"key_file": "/etc/k", "members": MEMBERS}
    head = {"host": "0.0.0.0", "agent_check_port": 9480, "group": group | {"rank": 0}}
    nodes = [
        node("n1", "192.0.2.1", head, mode="manage"),
        node("n2", "192.0.2.2", {"host": "0.0.0.0", "group": group | {"rank": 1}}, mode="manage"),
        node("n3", "192.0.2.3", {"host": "198.51.100.3"}, api={"port": 9999}),
        node("n4", "192.0.2.4", {"host": "127.0.0.1"}),
        node("n5", "192.0.2.5", None),
        node("n6", "192.0.2.6", {"host": "0.0.0.0"}, mode="observe"),
    ]
    (found,) = services(nodes, {"kimi": 80})
    assert (found["name"], found["port"]) == ("kimi", 80)
    assert [tuple(one.values()) for one in found["backends"]] == [
        ("n1", "192.0.2.1", 8000, "192.0.2.1", 9470, 9480),
        ("n3", "198.51.100.3", 8000, "192.0.2.3", 9999, None),
    ]


def test_a_node_with_a_bad_profile_is_no_silent_loss() -> None:
    bad = Node("n1", "192.0.2.1", {"fault": "x.yaml:3: no such key"})
    for ask in (lambda: services([bad], {"kimi": 80}), lambda: targets([bad])):
        with pytest.raises(ConfigError, match=r"n1: x\.yaml:3: no such key"):
            ask()


def test_a_service_without_any_engine_is_refused() -> None:
    with pytest.raises(ConfigError, match="no node has an engine glm that a load balancer can reach"):
        services([node("n1", "192.0.2.1", {"host": "0.0.0.0"})], {"glm": 80})


def test_targets_have_the_agents_port_and_the_nodes_name() -> None:
    assert targets([node("n1", "2001:db8::1", None, api={"port": 1234})]) == [
        {"target": "[2001:db8::1]:1234", "node": "n1", "platform": "generic-8gpu"}
    ]


def _rendered(role: str, name: str, **variables: Any) -> str:
    text = (ROOT / "playbooks" / "roles" / role / "templates" / f"{name}.j2").read_text()
    return (
        jinja2.Environment(undefined=jinja2.StrictUndefined, trim_blocks=True)
        .from_string(text)
        .render(**variables)
    )


def test_envoy_asks_the_agent_and_sends_nothing_when_every_gate_is_closed() -> None:
    found = services([node("n1", "192.0.2.1", {"host": "0.0.0.0"})], {"kimi": 80})
    config = yaml.safe_load(_rendered("loadbalancer", "envoy", loadbalancer_services=found))
    (cluster,) = config["static_resources"]["clusters"]
    assert cluster["health_checks"][0]["http_health_check"]["path"] == "/readyz/kimi"
    assert cluster["common_lb_config"]["healthy_panic_threshold"]["value"] == 0
    (endpoint,) = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"]
    assert endpoint["endpoint"]["health_check_config"]["port_value"] == 9470
    assert endpoint["endpoint"]["address"]["socket_address"] == {"address": "192.0.2.1", "port_value": 8000}


def test_rules_ask_for_metrics_that_the_agent_has() -> None:
    rules = yaml.safe_load(_rendered("monitoring", "rules"))["groups"][0]["rules"]
    text = " ".join(rule["expr"] for rule in rules)
    source = (ROOT / "agent" / "metrics.py").read_text()
    names = set(re.findall(r"nodegate_[a-z_]+", text))
    assert len(names) > 4
    for name in names:
        assert f'"{name.removesuffix("_info")}"' in source, name
