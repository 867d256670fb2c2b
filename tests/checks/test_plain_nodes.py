"""Ordinary healthy nodes under a plain profile: what would keep a gate closed on them, and what is advised.

A plain profile says what GPUs, NVLink and network there are, and nothing of host, BMC, pins and firmware.
"""

from __future__ import annotations

from typing import Any

import pytest
from check_cases import run_twice
from fake_h200 import h200_node
from fake_sources import FakeNode
from pydantic import ValidationError

from agent.checks.registry import load_all
from agent.explain import Explainer
from agent.model import Action, Finding, Phase, Result, Verdict
from agent.node_profile import NodeProfile
from agent.profile_loader import profile_from_dict

CHECKS = load_all()
PLAIN: dict[str, Any] = {
    "mode": "manage",
    "gpus": {"count": 8},
    "nvlink": {"links_per_gpu": 18, "fabric": True},
    "fabric": {
        "kind": "roce",
        "ports": [{"device": f"mlx5_{n}", "netdev": f"eth{n}", "rate_gbps": 400} for n in range(8)],
    },
    "engines": {"glm": {"gpus": [0, 1, 2, 3], "port": 8000, "launch": {"command": ["vllm"]}}},
}
PCI = "files:sys/bus/pci/devices"
UNREADABLE = {"error": "NO_PERMISSION"}
NO_UNIT: dict[str, Any] = {}
KMSG_CHECKS = {"xid", "sxid", "nic.kmsg", "nic.pcie"}


def blockers(node: FakeNode, profile: NodeProfile) -> dict[str, Finding]:
    """What keeps a gate closed, by check."""
    found: dict[str, Finding] = {}
    for id_, check in CHECKS.items():
        if Phase.ADMISSION not in check.phases:
            continue
        for finding in run_twice(check, node, profile).values():
            unknown = finding.verdict is Verdict.UNKNOWN and check.unknown_blocks_admission
            if finding.verdict is Verdict.FAIL or unknown:
                found[id_] = finding
    return found


def advice_of(check_id: str, finding: Finding) -> Action:
    """The advice that people are shown."""
    check = CHECKS[check_id]
    result = Result(check_id, finding, finding.verdict, finding.verdict, check.serving_class, 0.0, 0.0, 60.0)
    return Explainer(profile_from_dict(PLAIN), CHECKS).next_action(result)


def plain_node() -> FakeNode:
    node = h200_node()
    node.set("engines.glm.phase", "absent")
    for gpu in range(8):
        node.set(f"nvml.gpus.{gpu}.processes.pids", [])
    return node


#: What a machine is like -> the changes to the healthy node.
MACHINES: dict[str, dict[str, Any]] = {
    "bare metal": {},
    "without time service": {"host.clock": {"synchronised": False, "offset_s": 0.0, "max_error_s": 16.0}},
    "sandbox that refuses adjtimex": {"host.clock": {"error": "UNAVAILABLE"}},
    "container with a read-only root": {
        "host.disks./": {
            "total_b": 10**12, "free_b": 10**11, "total_inodes": 10**6, "free_inodes": 10**5,
            "read_only": True,
        },
        "files:proc/self/mounts": "overlay / overlay ro,relatime 0 0",
    },
    "inbox driver": {
        **{f"files:sys/class/net/eth{n}/ecn": None for n in range(8)},
        "files:sys/module/mlx5_core/version": None,
    },
    "virtual machine without AER": {
        f"{PCI}/0000:{bus}:00.0/aer_dev_{kind}": None
        for bus in ("19", "3b", "4c", "5d", "9b", "bb", "cb", "db")
        for kind in ("correctable", "nonfatal", "fatal")
    },
    "older driver without power counters and repairs": {
        **{f"nvml.gpus.{gpu}.slowdowns.hw_brake_ns": {"error": "NOT_SUPPORTED"} for gpu in range(8)},
        **{f"nvml.gpus.{gpu}.slowdowns.hw_thermal_ns": {"error": "NOT_SUPPORTED"} for gpu in range(8)},
        **{f"nvml.gpus.{gpu}.ecc.channel_repair_pending": {"error": "NOT_SUPPORTED"} for gpu in range(8)},
    },
    "persistence set by hand, no daemon": {
        "host.units": {"nvidia-fabricmanager.service": {
            "load_state": "loaded", "active_state": "active", "sub_state": "running", "restarts": 0
        }}
    },
}  # fmt: skip


@pytest.mark.parametrize("machine", MACHINES)
def test_a_healthy_node_is_admitted(machine: str) -> None:
    node = plain_node()
    for path, value in MACHINES[machine].items():
        node.set(path, value)
    found = blockers(node, NodeProfile.model_validate(PLAIN))
    assert {id_: finding.summary for id_, finding in found.items()} == {}


#: What a machine is like -> the changes, who then blocks, and the key of the profile that settles it.
ASK: dict[str, tuple[dict[str, Any], set[str], str]] = {
    "no kernel log": ({"kmsg": UNREADABLE}, KMSG_CHECKS, "CAP_SYSLOG"),
    "guest, the host runs the fabric manager": (
        {"host.units": NO_UNIT}, {"driver.fabric_manager"}, "nvidia-fabricmanager.service: inactive",
    ),
    "no systemd": (
        {"host.units": {"nvidia-fabricmanager.service": {"error": "UNAVAILABLE"}}},
        {"driver.fabric_manager"}, "checks: {driver.fabric_manager: {enabled: false}}",
    ),
    "driver before 570": (
        {f"nvml.gpus.{gpu}.thermal.margin_c": {"error": "NOT_SUPPORTED"} for gpu in range(8)},
        {"gpu.thermal_margin", "gpu.thermal_trend"}, "use_temperature: true",
    ),
    "guest that hides the PCIe link": (
        {f"nvml.gpus.{gpu}.pcie.max_width": 0 for gpu in range(8)},
        {"gpu.pcie", "gpu.pcie_errors"}, "gpus: {pcie: false}",
    ),
    "A100": (
        {f"nvml.gpus.{gpu}.fabric.state": 0 for gpu in range(8)},
        {"nvlink.fabric"}, "nvlink: {fabric: false}",
    ),
    "PCIe cards": (
        {f"nvml.gpus.{gpu}.nvlink.states": {"error": "NOT_SUPPORTED"} for gpu in range(8)},
        {"nvlink.links"}, "links_per_gpu: 0",
    ),
}  # fmt: skip


@pytest.mark.parametrize("machine", ASK)
def test_what_the_profile_must_settle_is_named(machine: str) -> None:
    changes, who, key = ASK[machine]
    node = plain_node()
    for path, value in changes.items():
        node.set(path, value)
    found = blockers(node, NodeProfile.model_validate(PLAIN))
    assert set(found) == who
    for id_, finding in found.items():
        hint = advice_of(id_, finding).hint
        assert key in hint or key in finding.summary, f"{id_}: {finding.summary} -> {hint}"


def test_a_power_limit_that_was_meant_is_settled_by_the_profile() -> None:
    node = plain_node()
    for key in ("enforced_limit_w", "requested_limit_w"):
        node.set(f"nvml.gpus.3.power.{key}", 500.0)
    found = blockers(node, NodeProfile.model_validate(PLAIN))
    assert set(found) == {"gpu.power_limit"}
    assert "gpus.power_limit_w: 500" in advice_of("gpu.power_limit", found["gpu.power_limit"]).hint


def test_a_bus_that_lists_no_device_at_all_loses_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sandbox shows an empty /sys/bus/pci/devices: gpu.lost closes at one reading and cannot be waived."""
    node = plain_node()
    tree = type(node.sources.tree)
    plain_names = tree.names
    monkeypatch.setattr(tree, "exists", lambda self, path: False)
    monkeypatch.setattr(
        tree, "names", lambda self, path: [] if path == "sys/bus/pci/devices" else plain_names(self, path)
    )
    findings = run_twice(CHECKS["gpu.lost"], node, NodeProfile.model_validate(PLAIN))
    assert {finding.verdict for finding in findings.values()} == {Verdict.PASS}


@pytest.mark.parametrize("number", [float("inf"), float("nan")])
def test_a_limit_that_no_reading_reaches_is_refused(number: float) -> None:
    """An infinite tolerance would switch a check off without saying so."""
    with pytest.raises(ValidationError):
        CHECKS["gpu.power_limit"].limits.model_validate({"tolerance_w": number})
    with pytest.raises(ValidationError):
        NodeProfile.model_validate(PLAIN | {"checks": {"gpu.ecc": {"fail_for_s": number}}})
