"""Network failures that others met in the field, each named by its public report, must be right here."""

from __future__ import annotations

from typing import Any

import pytest
from check_cases import all_cases, run_case, run_check
from fake_h200 import h200_node, h200_profile
from fake_sources import FakeNode

from agent.checks.registry import Check, load_all
from agent.hysteresis import Timings, step
from agent.model import Finding, ServingClass, Verdict
from agent.node_profile import NodeProfile

CHECKS = {id_: c for id_, c in load_all().items() if id_.startswith(("nic.", "roce.", "ib."))}
PASS, WARN, FAIL, UNKNOWN = Verdict.PASS, Verdict.WARN, Verdict.FAIL, Verdict.UNKNOWN
CLOSING = (ServingClass.IMMEDIATE, ServingClass.HARD)
PORT3 = "files:sys/class/infiniband/mlx5_3/ports/1"
DAY_S = 86_400.0
DATA_PORTS = (3, 6, 9, 12)
HEALTHY_PORT = {
    "state": "4: ACTIVE",
    "phys_state": "5: LinkUp",
    "rate": "200 Gb/sec (2X NDR)",
    "link_layer": "Ethernet",
}
UNUSED_PORT = {
    "state": "1: DOWN",
    "phys_state": "3: Disabled",
    "rate": "40 Gb/sec (4X QDR)",
    "link_layer": "Ethernet",
}


def class_of(check: Check, finding: Finding) -> ServingClass:
    return finding.serving_class or check.serving_class


def judge_all(node: FakeNode, profile: NodeProfile) -> dict[tuple[str, str], Finding]:
    """One run of every network check."""
    return {
        (id_, subject): finding
        for id_, check in CHECKS.items()
        for subject, finding in run_check(check, node, profile).items()
    }


def after(node: FakeNode, profile: NodeProfile, seconds: float) -> dict[tuple[str, str], Finding]:
    node.clock.now_s += seconds
    return judge_all(node, profile)


def closing(findings: dict[tuple[str, str], Finding]) -> set[tuple[str, str]]:
    """What would close a serving gate of an engine that uses RDMA."""
    return {
        (id_, subject)
        for (id_, subject), finding in findings.items()
        if finding.verdict is FAIL and class_of(CHECKS[id_], finding) in CLOSING
    }


def four_plane_node() -> tuple[FakeNode, NodeProfile]:
    """CX8 as `roce_r0`: ports 3, 6, 9 and 12 of twelve carry data; and a management card that is down."""
    node = h200_node()
    base = "sys/class/infiniband"
    for number in range(1, 13):
        used = number in DATA_PORTS
        for name, text in (HEALTHY_PORT if used else UNUSED_PORT).items():
            node.set(f"files:{base}/roce_r0/ports/{number}/{name}", text)
        prefix = f"{base}/mlx5_0/ports/1/"
        copied = {
            path.removeprefix(prefix): text
            for path, text in node.data["files"].items()
            if path.startswith(prefix)
        }
        for name, text in copied.items():
            if name.startswith(("counters/", "hw_counters/", "gids/", "gid_attrs/types/")):
                dead = not used and name.startswith("counters/")
                node.set(f"files:{base}/roce_r0/ports/{number}/{name}", "255" if dead else text)
        netdev = f"eth_r0_p{DATA_PORTS.index(number)}" if used else ""
        for index in range(4):
            node.set(f"files:{base}/roce_r0/ports/{number}/gid_attrs/ndevs/{index}", netdev)
        if used:
            node.data["net"][netdev] = {**node.data["net"]["eth0"]}
            for name in ("ecn/roce_np/enable/3", "ecn/roce_rp/enable/3", "ecn/roce_np/cnp_dscp"):
                text = node.data["files"][f"sys/class/net/eth0/{name}"]
                node.set(f"files:sys/class/net/{netdev}/{name}", text)
    node.set(f"files:{base}/roce_r0/fw_ver", "40.48.1000")
    node.set(f"files:{base}/roce_r0/board_id", "NVD0000000072")
    node.set(f"links:{base}/roce_r0/device", "../../../0000:06:00.0")
    record = "run/nodegate-apply/nic.json"
    node.set(f"files:{record}", node.data["files"][record].replace('"mlx5_0 ', '"roce_r0 '))
    for name, text in UNUSED_PORT.items():
        node.set(f"files:{base}/mlx5_mgmt/ports/1/{name}", text)
    ports = [
        {
            "device": "roce_r0",
            "port": number,
            "netdev": f"eth_r0_p{plane}",
            "rate_gbps": 200,
            "mtu_bytes": 9000,
        }
        for plane, number in enumerate(DATA_PORTS)
    ]
    row = {"board_id": "NVD0000000072", "firmware_min": "40.48.1000", "driver_min": "24.10"}
    return node, h200_profile({"fabric": {"ports": ports, "nic": {"firmware": [row]}}})


def test_ports_that_the_platform_does_not_use_are_ignored() -> None:
    """NVIDIA/NVSentinel#1361: intentionally unused second port marked fatal."""
    node, profile = four_plane_node()
    judge_all(node, profile)
    findings = after(node, profile, 10)
    assert {subject for _, subject in findings if "/" in subject} == {f"roce_r0/{n}" for n in DATA_PORTS}
    assert {finding.verdict for finding in findings.values()} <= {PASS, Verdict.SKIP}, findings


@pytest.mark.parametrize("number", DATA_PORTS)
def test_each_data_port_of_a_multi_plane_card_counts(number: int) -> None:
    node, profile = four_plane_node()
    node.set(f"files:sys/class/infiniband/roce_r0/ports/{number}/state", "1: DOWN")
    findings = run_check(CHECKS["nic.port"], node, profile)
    assert {s for s, finding in findings.items() if finding.verdict is FAIL} == {f"roce_r0/{number}"}


def wedged_node() -> FakeNode:
    node = h200_node()
    node.data["kmsg"] += [
        "4,900,4000000000,-;mlx5_core 0000:5e:00.0 eth3: TX timeout detected",
        "0,901,4020000000,-;watchdog: BUG: soft lockup - CPU#12 stuck for 23s! [ksoftirqd/12:80]",
        "4,902,4020000100,-;RIP: 0010:mlx5e_poll_ico_cq+0x52/0x3a0 [mlx5_core]",
    ]
    return node


def test_a_wedged_driver_is_seen_although_its_link_is_up() -> None:
    """NVIDIA/NVSentinel#1334: driver wedged for 5 days, link state up."""
    node, profile = wedged_node(), h200_profile()
    for _ in range(6):
        assert run_check(CHECKS["nic.port"], node, profile)["mlx5_3/1"].verdict is PASS
        findings = run_check(CHECKS["nic.kmsg"], node, profile)
        assert findings["mlx5_3/1"].verdict is FAIL
        assert class_of(CHECKS["nic.kmsg"], findings["mlx5_3/1"]) is ServingClass.HARD
        assert {f.verdict for s, f in findings.items() if s not in ("mlx5_3/1", "node")} == {PASS}
        node.clock.now_s += DAY_S


def test_commands_that_time_out_are_a_wedged_driver_too() -> None:
    """The same report's second sign: commands do not reach the firmware any more."""
    node, profile = h200_node(), h200_profile()
    node.data["kmsg"] += [
        f"4,{900 + i},{(4000 + 60 * i) * 10**6},-;mlx5_core 0000:5e:00.0: wait_func:1193:(pid 8): "
        "QUERY_VPORT_COUNTER(0x770) timeout. Will cause a leak of a command resource"
        for i in range(3)
    ]
    node.clock.now_s += 5 * DAY_S
    assert run_check(CHECKS["nic.kmsg"], node, profile)["mlx5_3/1"].verdict is FAIL
    node.data["kmsg"].append(
        f"6,950,{int(node.clock.now_s) * 10**6},-;mlx5_core 0000:5e:00.0: firmware version: 28.43.2566"
    )
    assert run_check(CHECKS["nic.kmsg"], node, profile)["mlx5_3/1"].verdict is PASS


def down(node: FakeNode) -> None:
    node.set(f"{PORT3}/state", "1: DOWN")
    node.set(f"{PORT3}/phys_state", "2: Polling")
    node.set("net.eth3.link.operstate", "down")
    node.set("net.eth3.link.carrier", False)


def up_again(node: FakeNode, downs: int) -> None:
    node.set(f"{PORT3}/state", "4: ACTIVE")
    node.set(f"{PORT3}/phys_state", "5: LinkUp")
    node.set("net.eth3.link.operstate", "up")
    node.set("net.eth3.link.carrier", True)
    node.set("net.eth3.link.carrier_down_count", downs)
    node.set(f"{PORT3}/counters/link_downed", str(downs))


def test_one_flap_at_bring_up_drains_nothing_and_needs_nobody() -> None:
    """leptonai/gpud#1247: a CX8 flap at bring-up drained the node until it was cleared by hand."""
    node, profile = h200_node(), h200_profile()
    judge_all(node, profile)
    up_again(node, downs=2)
    assert closing(after(node, profile, 10)) == set()
    assert {f.verdict for f in after(node, profile, 120).values()} <= {PASS, Verdict.SKIP}


def test_many_flaps_are_told_until_they_have_left_the_window_and_drain_nobody() -> None:
    """NVIDIA/NVSentinel#458: the node stayed cordoned after it had recovered.

    A switch that restarts flaps the links of a whole row: with the links up again, all of them serve.
    """
    node, profile = h200_node(), h200_profile()
    judge_all(node, profile)
    for downs in range(2, 6):
        up_again(node, downs)
        findings = after(node, profile, 600)
    assert closing(findings) == set()
    assert findings["nic.flap", "mlx5_3/1"].verdict is FAIL
    findings = after(node, profile, 7000)
    assert closing(findings) == set()
    assert findings["nic.flap", "mlx5_3/1"].verdict is FAIL
    findings = after(node, profile, 4000)
    assert closing(findings) == set()
    assert findings["nic.flap", "mlx5_3/1"].verdict is PASS


def test_a_link_that_is_back_passes_by_itself() -> None:
    """NVIDIA/NVSentinel#458, for a link that was down."""
    node, profile = h200_node(), h200_profile()
    judge_all(node, profile)
    down(node)
    assert closing(after(node, profile, 10)) == {("nic.port", "mlx5_3/1")}
    up_again(node, downs=2)
    after(node, profile, 60)
    assert {f.verdict for f in after(node, profile, 60).values()} <= {PASS, Verdict.SKIP}


def test_a_link_closes_the_gate_only_after_25_s() -> None:
    check = CHECKS["nic.port"]
    timings = Timings(check.fail_for_s, check.clear_for_s, check.unknown_for_s)
    state = step(None, PASS, timings, 0.0, serving=True)
    for now_s in (5.0, 15.0, 29.0):
        state = step(state, FAIL, timings, now_s, serving=True)
        assert state.verdict is PASS
    assert step(state, FAIL, timings, 30.0, serving=True).verdict is FAIL


def test_what_a_switch_or_a_room_does_to_a_whole_row_closes_no_gate() -> None:
    """Pause, drops, marks, reordering and heat on every port of a node at once."""
    node, profile = h200_node(), h200_profile()
    judge_all(node, profile)
    for slot in range(8):
        hw = f"files:sys/class/infiniband/mlx5_{slot}/ports/1"
        node.set(f"{hw}/counters/port_rcv_packets", "80512244")
        node.set(f"{hw}/hw_counters/out_of_sequence", "500017")
        node.set(f"{hw}/hw_counters/np_ecn_marked_roce_packets", "900000")
        for name, value in {
            "rx_prio3_pause_duration": 9_000_000,
            "rx_prio3_discards": 90_000,
            "tx_pause_storm_error_events": 3,
        }.items():
            node.set(f"net.eth{slot}.ethtool.{name}", value)
        node.set(f"net.eth{slot}.module.alarms", ["temperature high alarm"])
    findings = after(node, profile, 10)
    degraded = {id_ for (id_, _), finding in findings.items() if finding.verdict in (FAIL, WARN)}
    assert degraded == {"roce.oos", "roce.ecn_activity", "roce.pfc_storm", "roce.lossless_drop", "nic.cable"}
    assert closing(findings) == set()


NETWORK_CASES = [case for case in all_cases() if case.check in CHECKS]


@pytest.mark.parametrize("case", NETWORK_CASES, ids=str)
def test_every_warning_and_failure_says_what_was_expected_why_and_what_to_do(case: Any) -> None:
    findings, check = run_case(case)
    for finding in findings.values():
        if finding.verdict in (WARN, FAIL):
            assert finding.basis is not None and finding.basis.key, finding
            assert finding.expected is not None, finding
            assert finding.action.hint.endswith("."), finding
            if finding.basis.kind == "limit":
                assert finding.basis.key in check.limits.model_fields, finding


def test_no_counter_is_measured_by_two_checks() -> None:
    """Or /metrics would hold one sample twice."""
    node, profile = h200_node(), h200_profile()
    judge_all(node, profile)
    names = [
        (subject, measure.name, measure.kind)
        for (_, subject), finding in after(node, profile, 10).items()
        for measure in finding.measures
    ]
    assert len(names) == len(set(names))
    assert {name for _, name, _ in names} >= {
        "roce_out_of_sequence_total",
        "roce_rx_prio3_pause_duration_total",
    }
