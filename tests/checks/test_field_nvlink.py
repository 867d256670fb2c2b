"""Failures of NVLink, NVSwitches and the driver that others met in the field, and incidents of that kind."""

from typing import Any

import pytest
from check_cases import all_cases, run_case, run_check, run_twice
from fake_h200 import h200_node, h200_profile
from fake_h200_fabric import blackwell_ber
from fake_sources import FakeNode

from agent.checks.registry import load_all
from agent.model import ActionKind, BasisKind, Finding, ServingClass, Verdict
from agent.sources.gpu_reading import GpuReading, NvmlGroup

CHECKS = load_all()
PASS, WARN, FAIL, UNKNOWN, SKIP = Verdict.PASS, Verdict.WARN, Verdict.FAIL, Verdict.UNKNOWN, Verdict.SKIP
OURS = sorted(
    id_
    for id_ in CHECKS
    if id_.startswith(("nvlink.", "nvswitch.", "driver."))
    or id_ in ("xid", "sxid", "gpu.p2p", "gpu.topology")
)
FM = "nvidia-fabricmanager.service"
DEAD = {"load_state": "loaded", "active_state": "failed", "sub_state": "failed", "restarts": 0}


def judge(check_id: str, node: FakeNode, profile: dict[str, Any] | None = None) -> dict[str, Finding]:
    return run_twice(CHECKS[check_id], node, h200_profile(profile))


def failing(node: FakeNode, profile: dict[str, Any] | None = None) -> set[tuple[str, str]]:
    return {
        (id_, subject)
        for id_ in OURS
        for subject, finding in judge(id_, node, profile).items()
        if finding.verdict is FAIL
    }


def test_a_fabric_manager_dead_for_20_days_is_seen_although_every_gpu_looks_fine() -> None:
    """NVIDIA/NVSentinel#883: the service was killed and did not come back; every GPU stayed registered."""
    node = h200_node()
    node.set("host.units", {FM: DEAD})
    for _ in range(20):
        node.clock.now_s += 86400
        assert failing(node) == {("driver.fabric_manager", "node")}
    finding = judge("driver.fabric_manager", node)["node"]
    assert "systemctl enable --now nvidia-fabricmanager" in finding.action.hint


def test_a_fabric_that_was_never_started_is_seen_although_its_manager_runs() -> None:
    """NVIDIA/NVSentinel#889: the unit is active and the GPUs are not registered."""
    node = h200_node()
    for slot in range(8):
        node.set(f"nvml.gpus.{slot}.fabric.state", 1)
    assert failing(node) == {("nvlink.fabric", f"gpu{slot}") for slot in range(8)}


def test_a_guest_whose_host_runs_the_fabric_manager_says_so_in_its_profile() -> None:
    node = h200_node()
    node.set("host.units", {})
    assert ("driver.fabric_manager", "node") in failing(node)
    assert not failing(node, {"host": {"services": {FM: "inactive"}}})


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: GPU 0000:5d:00.0: GPU has fallen off the bus.",
        "NVRM: GPU at PCI:0000:5d:00: GPU has fallen off the bus",
    ],
)
def test_a_gpu_off_the_bus_without_any_xid(line: str) -> None:
    """NVIDIA/NVSentinel#155."""
    node = h200_node()
    node.data["kmsg"].append(f"3,900,4900000000,-;{line}")
    assert failing(node) == {("xid", "gpu3")}
    finding = judge("xid", node)["gpu3"]
    assert (finding.observed, finding.serving_class) == (79, ServingClass.IMMEDIATE)
    assert finding.action.kind is ActionKind.REBOOT


@pytest.mark.parametrize(
    ("check_id", "line"),
    [
        ("xid", "NVRM: Xid (PCI:0000:5d:00): 48, pid=12, DBE"),
        ("sxid", "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"),
    ],
)
def test_an_operator_clears_a_fault_of_the_kernel_log_on_the_node_itself(check_id: str, line: str) -> None:
    """leptonai/gpud#1072: no local way to reset a sticky Xid state."""
    node = h200_node()
    node.data["kmsg"].append(f"3,900,4900000000,-;{line}")
    assert FAIL in {finding.verdict for finding in judge(check_id, node).values()}
    node.kmsg.clear(node.clock.mono_s())
    assert {finding.verdict for finding in judge(check_id, node).values()} == {PASS}
    node.data["kmsg"].append(f"3,901,{int((node.clock.mono_s() + 1) * 1e6)},-;{line}")
    assert FAIL in {finding.verdict for finding in judge(check_id, node).values()}, "a new one counts"


@pytest.mark.parametrize("states", [[False] * 18, [], {"error": "NOT_SUPPORTED"}], ids=repr)
def test_all_links_inactive_is_never_healthy(states: Any) -> None:
    """leptonai/gpud#1085: all NVLinks inactive yet healthy."""
    node = h200_node()
    for slot in range(8):
        node.set(f"nvml.gpus.{slot}.nvlink.states", states)
    findings = judge("nvlink.links", node)
    assert {(f.verdict, f.observed, f.serving_class) for f in findings.values()} == {(FAIL, 0, None)}
    assert CHECKS["nvlink.links"].serving_class is ServingClass.HARD


@pytest.mark.parametrize(("wired", "verdict"), [(12, PASS), (11, FAIL), (13, WARN)])
def test_twelve_links_by_design_are_twelve(wired: int, verdict: Verdict) -> None:
    """Azure/azurehpc-health-checks#162: 18 links assumed, the SKU has 12 by design."""
    node = h200_node()
    for slot in range(8):
        node.set(f"nvml.gpus.{slot}.nvlink.states", [link < wired for link in range(18)])
        node.set(f"nvml.gpus.{slot}.nvlink.speeds_mb_s", [25781 * (link < wired) for link in range(18)])
    profile = {"nvlink": {"links_per_gpu": 12, "speed_mb_s": 25781, "fabric": False}}
    assert {finding.verdict for finding in judge("nvlink.links", node, profile).values()} == {verdict}


def _blackwell(links: int = 18) -> FakeNode:
    node = h200_node()
    for slot in range(8):
        node.set(f"nvml.gpus.{slot}.nvlink_errors", {"error": "NOT_SUPPORTED"})
        node.set(f"nvml.gpus.{slot}.nvlink_ber", blackwell_ber(links))
        node.set(f"nvml.gpus.{slot}.nvlink.speeds_mb_s", [53125] * 18)
    node.set("host.units", {FM: DEAD | {"active_state": "active", "sub_state": "running"}})
    node.data["host"]["units"]["nvlsm.service"] = node.data["host"]["units"][FM]
    return node


def test_a_b300_passes_without_switching_a_check_off() -> None:
    profile = {"platform": "b300", "nvlink": {"speed_mb_s": 53125, "nvswitches": None}}
    for id_ in OURS:
        verdicts = {finding.verdict for finding in judge(id_, _blackwell(), profile).values()}
        assert verdicts <= {PASS, SKIP, WARN}, id_
    judged = [judge(id_, _blackwell(), profile)["gpu3"].verdict for id_ in ("nvlink.errors", "nvlink.ber")]
    assert judged == [SKIP, PASS]


def test_of_the_two_generations_exactly_one_judges_an_h200() -> None:
    judged = [judge(id_, h200_node())["gpu3"].verdict for id_ in ("nvlink.errors", "nvlink.ber")]
    assert judged == [PASS, SKIP]


def test_cuda_802_is_told_as_the_fabric_that_still_starts() -> None:
    """It looked like a fault of the network and was the NVSwitch fabric."""
    node = h200_node()
    for slot in range(8):
        node.set(f"nvml.gpus.{slot}.fabric.state", 2)
    finding = judge("nvlink.fabric", node)["gpu0"]
    assert finding.verdict is FAIL
    assert "802" in finding.summary and "system not yet initialized" in finding.action.hint
    assert finding.action.hint.startswith("Wait")


def test_two_gpus_that_swapped_places_are_named_with_what_they_were() -> None:
    """After a maintenance reboot two GPUs swapped bus ids and NCCL refused its old topology file."""
    node = h200_node()
    node.set("nvml.gpus.2.identity.pci_bus_id", "0000:97:00.0")
    node.set("nvml.gpus.5.identity.pci_bus_id", "0000:3a:00.0")
    findings = judge("gpu.topology", node, {"gpus": {"numa_node": {s: s // 4 for s in range(8)}}})
    bad = {subject for subject, finding in findings.items() if finding.verdict is FAIL}
    assert bad == {"gpu2", "gpu5"}
    assert "at 0000:97:00.0, pinned at 0000:3a:00.0; on NUMA node 1, expected 0" in findings["gpu2"].summary
    assert "NCCL topology file" in findings["gpu2"].action.hint


def test_a_generated_topology_proves_nothing() -> None:
    """What is right comes from the profile alone; without it nothing is compared, whatever is there."""
    bare = {"gpus": {"pins": None}, "fabric": {"kind": "none", "ports": None}}
    assert CHECKS["gpu.topology"].skip is not None
    assert "records no topology" in (CHECKS["gpu.topology"].skip(h200_profile(bare)) or "")


def test_an_unloaded_uvm_is_named_as_what_cuda_needs() -> None:
    node = h200_node()
    node.set("files:sys/module/nvidia_uvm", None)
    assert failing(node) == {("driver.modules", "node")}
    assert "modprobe nvidia_uvm" in judge("driver.modules", node)["node"].action.hint


def test_a_log_whose_beginning_is_lost_says_what_it_cannot_know() -> None:
    node = h200_node()
    node.kmsg.since_s = 7200.0
    for check_id in ("xid", "sxid"):
        for finding in judge(check_id, node).values():
            assert finding.verdict is PASS
            assert "since 2.0 h after boot; what came before is lost" in finding.summary


def test_no_bad_finding_is_without_its_basis_and_a_hint() -> None:
    """Every WARN and FAIL of our cases says where its expectation comes from and what to do."""
    seen = 0
    for case in all_cases():
        if case.check not in (*OURS, "host.driver"):
            continue
        findings, check = run_case(case)
        for finding in findings.values():
            if finding.verdict in (WARN, FAIL):
                told = f"{case}: {finding}"
                assert finding.basis is not None and finding.expected is not None, told
                assert finding.action.hint, told
                if finding.basis.kind is BasisKind.LIMIT:
                    assert finding.basis.key in check.limits.model_fields, told
                seen += 1
    assert seen > 100


def test_a_hung_gpu_keeps_no_other_ones_xid_from_being_told() -> None:
    """NVML is asked once at most when it fails: the log alone is judged then."""
    node = h200_node()
    for slot, bus in ((2, "3a"), (3, "5d"), (6, "ba")):
        node.data["kmsg"].append(f"3,90{slot},4900000000,-;NVRM: Xid (PCI:0000:{bus}:00): 64, pid=1, Failed")
        node.set(f"nvml.gpus.{slot}.memory", {"error": "TIMEOUT"})
    asked = []
    real_read = node.nvml.read

    def read(uuid: str, group: NvmlGroup) -> GpuReading:
        asked.append(uuid)
        return real_read(uuid, group)

    node.nvml.read = read  # type: ignore[method-assign]
    findings = run_check(CHECKS["xid"], node, h200_profile())
    assert {s for s, f in findings.items() if f.verdict is FAIL} == {"gpu2", "gpu3", "gpu6"}
    assert len(asked) == 1
