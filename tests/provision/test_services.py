"""Which engines of which nodes are behind a load balancer, and what the templates make of them."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import jinja2
import pytest
import yaml
from repo_files import ROOT

from agent.errors import ConfigError
from agent.profile_loader import profile_from_dict
from agent.provision.services import Node, minimums, services, targets

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
        {"target": "[2001:db8::1]:1234", "node": "n1", "platform": "generic-8gpu", "row": "", "pool": ""}
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


def test_prometheus_is_told_row_and_pool_where_a_node_has_them() -> None:
    def of(place: dict[str, Any]) -> dict[str, Any]:
        return targets([replace(node("n1", "192.0.2.1", None), given=place)])[0]

    def labels(*told: dict[str, Any]) -> list[dict[str, str]]:
        text = _rendered(
            "monitoring",
            "prometheus",
            monitoring_targets=told,
            monitoring_interval_s=15,
            monitoring_folder="/etc/prometheus",
            monitoring_alertmanagers=["mon-1:9093"],
        )
        made = yaml.safe_load(text)
        assert made["alerting"]["alertmanagers"][0]["static_configs"][0]["targets"] == ["mon-1:9093"]
        return [one["labels"] for one in made["scrape_configs"][0]["static_configs"]]

    plain = {"node": "n1", "platform": "generic-8gpu"}
    assert labels(of({}), of({"nodegate_row": 3, "nodegate_pool": "chat"})) == [
        plain,
        {**plain, "row": "3", "pool": "chat"},
    ]


def test_what_a_pool_needs_is_the_inventorys_word() -> None:
    def of(name: str, **place: Any) -> Node:
        return replace(
            node(name, "192.0.2.1", {}), given={f"nodegate_{key}": to for key, to in place.items()}
        )

    assert minimums([of("n1"), of("n2", pool="chat")]) == []
    nodes = [of("n1", pool="chat", min_ready=2), of("n2", pool="chat", min_ready="2"), of("n3", min_ready=1)]
    found = minimums(nodes)
    assert found == [{"pool": "chat", "minimum": 2}, {"pool": "kimi", "minimum": 1}]
    rules = yaml.safe_load(_rendered("monitoring", "minimums", monitoring_minimums=found))["groups"][0][
        "rules"
    ]
    assert rules[0] == {
        "record": "nodegate:pool:minimum_ready",
        "expr": "vector(2)",
        "labels": {"pool": "chat"},
    }
    none = yaml.safe_load(_rendered("monitoring", "minimums", monitoring_minimums=[]))
    assert none["groups"][0]["rules"] == []
    with pytest.raises(ConfigError, match="n2: nodegate_min_ready is 3, but 2"):
        minimums([of("n1", pool="chat", min_ready=2), of("n2", pool="chat", min_ready=3)])
    with pytest.raises(ConfigError, match="not a number"):
        minimums([of("n1", min_ready="many")])
    share = [of(f"n{i}", pool="chat", min_ready="75%") for i in range(5)]
    assert minimums(share) == [{"pool": "chat", "minimum": 4}]
