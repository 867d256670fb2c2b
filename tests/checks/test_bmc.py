"""The BMC checks as a whole: over real HTTPS, unverified TLS told, and no outage that closes a gate."""

from dataclasses import replace
from pathlib import Path

import pytest
from check_cases import run_check, run_twice
from fake_h200 import h200_node, h200_profile
from fake_h200_bmc import bmc_documents
from redfish_server import PASSWORD, USER, RedfishServer, make_certificates

from agent.checks.registry import Check, load_all
from agent.evaluate import judge
from agent.model import Finding, Result, ServingClass, Snapshot, Verdict
from agent.node_profile import NodeProfile
from agent.sources.redfish import RedfishClient

CHECKS = {id_: check for id_, check in load_all().items() if id_.startswith("bmc.")}
each_check = pytest.mark.parametrize("check", CHECKS.values(), ids=list(CHECKS))


def test_these_are_all() -> None:
    names = ["air", "bios", "coolant", "events", "firmware", "health", "leak", "power"]
    assert set(CHECKS) == {f"bmc.{name}" for name in names}


def test_a_healthy_node_passes_over_https_with_one_login_a_service(tmp_path: Path) -> None:
    certificates = make_certificates(tmp_path)
    login = tmp_path / "login"
    login.write_text(f"username: {USER}\npassword: {PASSWORD}\n")
    login.chmod(0o600)
    documents = bmc_documents()
    servers = {name: RedfishServer(documents[name], certificates.here) for name in documents}
    client = RedfishClient()
    with servers["node"], servers["row3"], servers["a"]:
        places = {
            name: {"url": server.url, "ca_file": str(certificates.ca), "credentials_file": str(login)}
            for name, server in servers.items()
        }
        bmc = {
            "redfish": places["node"],
            "cooling": {"units": {"row3": places["row3"]}},
            "pdus": {"a": places["a"]},
        }
        profile = h200_profile({"bmc": bmc})
        node = h200_node()
        node.sources = replace(node.sources, bmc=client)
        verdicts = {
            (check.id, subject): finding.verdict
            for check in CHECKS.values()
            for subject, finding in run_twice(check, node, profile).items()
        }
        client.close()
    assert set(verdicts.values()) == {Verdict.PASS}
    assert {subject for _, subject in verdicts} == {"node", "cdu:row3", "pdu:a"}
    for server in servers.values():
        assert [method for method, _ in server.seen].count("POST") == 1
        assert not server.tokens, "a session was left open"


@each_check
def test_unverified_tls_is_told_with_every_verdict(check: Check) -> None:
    lax = {"tls_verify": False}
    profile = h200_profile({"bmc": {"redfish": lax, "cooling": {"units": {"row3": lax}}, "pdus": {"a": lax}}})
    dead = h200_node()
    dead.data["bmc"].clear()
    for findings in (run_twice(check, h200_node(), profile), run_check(check, dead, profile)):
        for finding in findings.values():
            assert finding.summary.endswith("(TLS not verified)")
            assert len(finding.summary) <= 240


def _effects(check: Check, finding: Finding) -> tuple[bool, set[str]]:
    """Whether a finding lets a gate open, and the classes in which it counts against a serving one."""
    result = Result(
        check=check.id,
        finding=finding,
        verdict=finding.verdict,
        raw_verdict=finding.verdict,
        serving_class=finding.serving_class or check.serving_class,
        measured_mono_s=10.0,
        first_seen_s=0.0,
        valid_for_s=300.0,
    )
    snapshot = Snapshot("n", "h", True, "b", 10.0, 10.0, {(check.id, finding.subject): result})
    found = judge(snapshot, _profile(), "glm", {check.id: check}, 10.0)
    classes = {name for name in ("immediate", "hard", "soft") if getattr(found, name)}
    return found.admits, classes


def _profile() -> NodeProfile:
    return h200_profile()


@each_check
def test_a_bmc_that_does_not_answer_closes_and_degrades_nothing(check: Check) -> None:
    node = h200_node()
    node.data["bmc"].clear()
    findings = run_check(check, node, _profile())
    assert {finding.verdict for finding in findings.values()} == {Verdict.UNKNOWN}
    for finding in findings.values():
        assert _effects(check, finding) == (True, set())


def test_only_a_leak_in_the_node_itself_closes_a_serving_gate() -> None:
    for check in CHECKS.values():
        assert check.serving_class in (ServingClass.SOFT, ServingClass.INFO)
    tray = "bmc.node./redfish/v1/Chassis/1/ThermalSubsystem/LeakDetection/LeakDetectors/tray.DetectorState"
    node = h200_node()
    node.set(tray, "Critical")
    (leak,) = run_check(CHECKS["bmc.leak"], node, _profile()).values()
    assert _effects(CHECKS["bmc.leak"], leak) == (False, {"hard"})
    node.set("bmc.row3./redfish/v1/ThermalEquipment/CDUs/1.Status.HealthRollup", "Critical")
    unit = run_check(CHECKS["bmc.coolant"], node, _profile())["cdu:row3"]
    assert _effects(CHECKS["bmc.coolant"], unit) == (False, {"soft"})


def test_words_of_a_bmc_cannot_break_out_of_a_summary() -> None:
    node = h200_node()
    system = node.data["bmc"]["node"]["/redfish/v1/Systems/1"]
    system["Status"] = {"Health": "Critical", "Conditions": [{"Message": "a\nb\x1b[2J" + "x" * 900}] * 50}
    system["Id"] = "<script>\r\n" + "y" * 500
    (finding,) = run_check(CHECKS["bmc.health"], node, _profile()).values()
    assert finding.verdict is Verdict.FAIL
    assert finding.summary.isprintable()
    assert len(finding.summary) <= 240


def test_measures_go_with_a_failure_too() -> None:
    node = h200_node()
    connector = "bmc.node./redfish/v1/Chassis/1/ThermalSubsystem/CoolantConnectors/1"
    node.set(f"{connector}.FlowLitersPerMinute.Reading", 0.2)
    found = run_check(CHECKS["bmc.coolant"], node, _profile())["node"]
    assert {measure.name: measure.value for measure in found.measures} == {
        "coolant_inlet_celsius": 22.0,
        "coolant_outlet_celsius": 31.5,
        "coolant_flow_liters_per_minute": 0.2,
    }


@each_check
def test_a_baseboard_with_many_chassis_is_read_in_bounds(check: Check) -> None:
    """40 chassis as on an HGX baseboard: half of them have nothing to ask, the others little."""
    node = h200_node()
    documents = node.data["bmc"]["node"]
    chassis = "/redfish/v1/Chassis"
    for number in range(40):
        path = f"{chassis}/HGX_{number}"
        documents[chassis]["Members"].append({"@odata.id": path})
        documents[path] = {
            "Id": f"HGX_{number}",
            "ChassisType": "Component" if number % 2 else "Module",
            "ThermalSubsystem": {"@odata.id": f"{path}/ThermalSubsystem"},
        }
        documents[f"{path}/ThermalSubsystem"] = {}
    findings = run_twice(check, node, _profile())
    assert {finding.verdict for finding in findings.values()} == {Verdict.PASS}
    assert len(node.reads) < 90
