"""What every check must be: named, documented, with cases, and silent about what the profile leaves out."""

import ast
import re
from pathlib import Path

import pytest
from check_cases import CASES, KINDS, all_cases, run_case, run_check, run_twice
from fake_h200 import h200_node, h200_profile

import agent.checks
from agent.checks.registry import Check, Limits, load_all
from agent.model import ActionKind, Finding, Phase, ServingClass, Verdict
from agent.node_profile import NodeProfile

CHECKS = load_all()
PLAY_TAGS = {"bios", "engine", "firmware", "gpu", "kernel", "nccl_topology", "nic", "pins"}
NO_HARDWARE = {
    "gpus": {"count": 0},
    "nvlink": {"links_per_gpu": 0},
    "fabric": {"kind": "none"},
    "engines": {},
    "host": {"time_sync": False, "disks": []},
}
#: Their evidence may be out of reach for good: root's alone, of a process not started yet, or not reported.
OUT_OF_REACH = {
    "bmc.air", "bmc.bios", "bmc.coolant", "bmc.events", "bmc.firmware", "bmc.health", "bmc.leak", "bmc.power",
    "engine.cpu", "engine.latency", "engine.memory", "engine.numa", "engine.prefix_cache", "engine.pressure",
    "history.repeat", "host.disk_health",
    "host.kmsg", "host.limits", "nic.cable", "nic.max_read_request", "nic.serial", "pci.acs", "pci.aspm",
    "roce.cnp", "roce.ecn_activity", "driver.persistenced", "gpu.persistence", "gpu.power_dips", "gpu.repair",
    "host.time", "roce.ecn_config",
}  # fmt: skip
#: Warnings by design: persistence costs settings, not service; what happened before is for the vendor; how
#: well congestion is answered shows in what it costs.
WARNING_ONLY = {
    "gpu.persistence", "driver.persistenced", "history.repeat", "roce.ecn_activity", "bmc.events",
    "engine.cpu", "engine.numa", "engine.prefix_cache", "engine.latency", "engine.pressure",
}  # fmt: skip
#: Judge the profile alone.
NO_EVIDENCE = {"roce.nccl"}
#: Judges what a Hopper GPU does not have; nvlink.errors judges it.
OTHER_GENERATION = {"nvlink.ber"}
each_check = pytest.mark.parametrize("check", CHECKS.values(), ids=list(CHECKS))


@each_check
def test_it_is_named_and_documented(check: Check) -> None:
    assert re.fullmatch(r"[a-z]+(\.[a-z][a-z0-9_]*)?", check.id)
    assert check.title and len(check.title) <= 40
    assert check.source.strip()
    assert check.run.__doc__ and check.run.__doc__.strip().endswith(".")
    assert check.action.hint.endswith(".")
    assert not re.search(r"\bplays?\b", check.action.hint), "there are no plays yet"
    for name, field in check.limits.model_fields.items():
        assert field.description, f"{check.id}.{name} has no description"


@each_check
def test_it_has_cases_of_every_kind(check: Check) -> None:
    for kind in KINDS:
        assert list((CASES / check.id / kind).glob("*.yaml")), f"{check.id} has no {kind} case"


def test_every_case_belongs_to_a_check() -> None:
    assert {path.name for path in CASES.iterdir()} == set(CHECKS)
    assert {case.kind for case in all_cases()} == set(KINDS)


@each_check
def test_one_bad_sample_closes_no_serving_gate(check: Check) -> None:
    if check.serving_class is ServingClass.IMMEDIATE:
        assert check.fail_for_s == 0
    else:
        assert check.fail_for_s >= check.period_s


@each_check
def test_a_burst_of_errors_is_over_before_it_is_confirmed_as_lasting(check: Check) -> None:
    """A hard verdict on counter growth must outlast the window that one burst stays in."""
    if check.id == "nvlink.errors":
        assert check.fail_for_s >= check.limits().window_s
    assert check.needs_interval_s == 0 or check.needs_interval_s < check.period_s


def test_what_cannot_be_waived_and_what_is_network() -> None:
    assert {c.id for c in CHECKS.values() if not c.waivable} == {"gpu.lost", "engine.health", "engine.group"}
    assert {c.id for c in CHECKS.values() if c.network} == {
        c.id for c in CHECKS.values() if c.id.startswith(("nic.", "roce.", "ib.")) or c.id == "engine.peers"
    }
    immediate = {c.id for c in CHECKS.values() if c.serving_class is ServingClass.IMMEDIATE}
    assert immediate == {"gpu.lost", "xid", "sxid", "engine.health", "engine.group"}
    # A node must come back by itself when it is well; a leak that has dried is not.
    assert {c.id for c in CHECKS.values() if c.sticky} == {"bmc.leak"}


def test_only_what_judges_a_running_engine_stays_out_of_admission() -> None:
    without = {c.id for c in CHECKS.values() if Phase.ADMISSION not in c.phases}
    assert without == {
        "engine.health", "engine.cpu", "engine.latency", "engine.memory", "engine.numa",
        "engine.prefix_cache", "engine.pressure", "gpu.memory_growth",
    }  # fmt: skip
    assert {c.id for c in CHECKS.values() if not c.unknown_blocks_admission} == OUT_OF_REACH


@each_check
def test_a_node_without_hardware_skips_it(check: Check) -> None:
    profile = NodeProfile.model_validate(NO_HARDWARE)
    node = h200_node()
    findings = run_check(check, node, profile)
    assert [finding.verdict for finding in findings.values()] == [Verdict.SKIP]
    assert not node.reads


@pytest.mark.parametrize(
    ("check_id", "changes"),
    [
        ("gpu.pins", {"gpus": {"pins": None}}),
        ("gpu.model", {"gpus": {"model": None}}),
        ("nvlink.ber", {"nvlink": {"links_per_gpu": 0, "speed_mb_s": None, "fabric": False}}),
        ("nvswitch.present", {"nvlink": {"nvswitches": None}}),
        ("sxid", {"nvlink": {"fabric": False}}),
        ("driver.fabric_manager", {"nvlink": {"fabric": False}}),
        (
            "driver.fabric_manager",
            {"host": {"services": {"nvidia-fabricmanager.service": "inactive"}}},
        ),
        ("driver.persistenced", {"gpus": {"persistence": False}}),
        ("gpu.p2p", {"nvlink": {"links_per_gpu": 0, "speed_mb_s": None, "fabric": False}}),
        ("gpu.p2p", {"nvlink": {"domains": [[slot] for slot in range(8)]}}),
        ("gpu.topology", {"gpus": {"pins": None}, "fabric": {"kind": "none", "ports": None}}),
        ("gpu.persistence", {"gpus": {"persistence": False}}),
        ("gpu.ecc", {"gpus": {"ecc": False}}),
        ("gpu.mig", {"gpus": {"mig_off": False}}),
        ("driver.packages", {"gpus": {"packages": None}}),
        ("gpu.remap", {"gpus": {"ecc": False}}),
        ("gpu.ecc_sram", {"gpus": {"ecc": False}}),
        ("gpu.repair", {"gpus": {"ecc": False}}),
        ("gpu.vbios", {"gpus": {"vbios": None}}),
        ("gpu.power_limit", {"gpus": {"has_power_limit": False}}),
        ("gpu.pcie", {"gpus": {"pcie": False}}),
        ("gpu.pcie_errors", {"gpus": {"pcie": False}}),
        ("gpu.hbm_temp", {"gpus": {"unified_memory": True}}),
        ("gpu.memory_growth", {"gpus": {"unified_memory": True}}),
        ("gpu.foreign", {"mode": "gate"}),
        ("nvlink.links", {"nvlink": {"links_per_gpu": 0, "speed_mb_s": None, "fabric": False}}),
        ("nvlink.errors", {"nvlink": {"links_per_gpu": 0, "speed_mb_s": None, "fabric": False}}),
        ("nvlink.fabric", {"nvlink": {"fabric": False}}),
        ("roce.pfc_config", {"fabric": {"kind": "ib"}}),
        ("roce.ecn_config", {"fabric": {"kind": "ib"}}),
        ("roce.ecn_config", {"fabric": {"roce": {"ecn": False}}}),
        ("roce.errors", {"fabric": {"kind": "ib"}}),
        ("roce.oos", {"fabric": {"kind": "ib"}}),
        ("roce.lossless_drop", {"fabric": {"kind": "ib"}}),
        ("roce.pfc_storm", {"fabric": {"kind": "ib"}}),
        ("roce.ecn_activity", {"fabric": {"roce": {"ecn": False}}}),
        ("roce.cnp", {"fabric": {"roce": {"cnp_dscp": None}}}),
        ("roce.nccl", {"mode": "gate"}),
        ("nic.gid", {"fabric": {"kind": "ib"}}),
        ("nic.max_read_request", {"fabric": {"nic": {"max_read_request_bytes": None}}}),
        ("nic.config", {"fabric": {"nic": {"config": None}}}),
        ("nic.ring", {"fabric": {"nic": {"rx_ring": None, "tx_ring": None}}}),
        ("nic.ring", {"fabric": {"kind": "ib", "nic": {"config": None}}}),
        ("engine.health", {"mode": "observe"}),
        *((f"bmc.{name}", {"bmc": {"redfish": None}}) for name in ("air", "events", "health", "leak")),
        *((f"bmc.{name}", {"bmc": None}) for name in ("bios", "coolant", "firmware", "power")),
        ("bmc.bios", {"bmc": {"bios": None, "bios_intent": None, "bios_version": None}}),
        ("bmc.firmware", {"bmc": {"firmware": None}}),
        ("bmc.coolant", {"bmc": {"cooling": None}}),
    ],
)
def test_what_the_profile_leaves_out_is_skipped(check_id: str, changes: dict) -> None:
    check = CHECKS[check_id]
    assert check.skip is not None
    assert check.skip(h200_profile()) is None
    reason = check.skip(h200_profile(changes))
    assert reason and "\n" not in reason


@each_check
def test_a_healthy_node_passes_with_lifetime_counters_that_are_not_zero(check: Check) -> None:
    findings = run_twice(check, h200_node(), h200_profile())
    reason = check.skip(h200_profile()) if check.skip else None  # InfiniBand on a RoCE node
    wanted = Verdict.SKIP if reason or check.id in OTHER_GENERATION else Verdict.PASS
    assert {finding.verdict for finding in findings.values()} == {wanted}


@each_check
def test_subjects_stay_the_same_when_evidence_goes_missing(check: Check) -> None:
    """Or a result of before would never be replaced."""
    healthy = run_twice(check, h200_node(), h200_profile())
    node = h200_node()
    node.data["nvml"] = {"error": "TIMEOUT"}
    node.data["kmsg"] = {"error": "NO_PERMISSION"}
    node.data["files"].clear()
    node.data["net"].clear()
    node.data["engines"].clear()
    node.data["launches"].clear()
    node.data["faults"] = {"error": "UNAVAILABLE"}
    node.data["bmc"].clear()
    node.data["host"] = {
        "clock": {"error": "TIMEOUT"},
        **{
            kind: {name: {"error": "TIMEOUT"} for name in node.data["host"][kind]}
            for kind in ("units", "disks", "mounts", "reach")
        },
    }
    findings = run_check(check, node, h200_profile())
    assert findings.keys() == healthy.keys()
    if check.id not in NO_EVIDENCE:
        assert Verdict.PASS not in {finding.verdict for finding in findings.values()}


def test_every_summary_is_one_short_line_and_every_failure_says_what_to_do() -> None:
    for case in all_cases():
        findings, check = run_case(case)
        for finding in findings.values():
            assert _is_one_short_line(finding.summary), f"{case}: {finding}"
            assert _says_what_to_do(finding, check), f"{case}: {finding}"


def _is_one_short_line(summary: str) -> bool:
    return bool(summary) and "\n" not in summary and len(summary) <= 240


def _says_what_to_do(finding: Finding, check: Check) -> bool:
    action = finding.action
    if finding.verdict is Verdict.FAIL and not (action.hint or check.action.hint).endswith("."):
        return False
    if re.search(r"\bplays?\b|accept the new", action.hint):
        return False
    return action.play in PLAY_TAGS if action.kind is ActionKind.APPLY_PLAY else action.play is None


def test_checks_read_only_through_sources() -> None:
    banned = {"os", "pathlib", "io", "subprocess", "socket", "time", "logging", "pynvml", "psutil", "httpx"}
    for path in Path(agent.checks.__file__).parent.glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            assert not {name.split(".")[0] for name in names} & banned, path.name
            called = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
            assert called not in ("open", "exec", "eval", "print"), path.name


def test_the_fail_folders_hold_real_failures() -> None:
    failing = {
        case.check
        for case in all_cases()
        if case.kind == "fail" and Verdict.FAIL in {finding.verdict for finding in run_case(case)[0].values()}
    }
    assert failing == set(CHECKS) - WARNING_ONLY


def test_limits_refuse_unknown_keys() -> None:
    for check in CHECKS.values():
        assert issubclass(check.limits, Limits)
        with pytest.raises(ValueError, match="extra"):
            check.limits(no_such_limit=1)
