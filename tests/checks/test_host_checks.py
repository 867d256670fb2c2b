"""Host checks: what the profile leaves out, incidents of the field, and this machine as it is."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from check_cases import run_check
from fake_h200 import h200_node, h200_profile
from hypothesis import given
from hypothesis import strategies as st

from agent.checks.host_disk import parse_mounts
from agent.checks.host_limits import parse_limits
from agent.checks.host_text import listed, normal_words, numbered
from agent.checks.registry import load_all
from agent.errors import ParseError
from agent.model import Finding, ServingClass, Verdict
from agent.node_profile import NodeProfile
from agent.sources.host_reading import Reach
from agent.sources.live import live_sources

CHECKS = load_all()
MINE = sorted(
    id_
    for id_ in CHECKS
    if (id_.startswith(("host.", "pci.")) and id_ != "host.driver") or id_ == "engine.peers"
)
NO_HOST = {"time_sync": False, "disks": []}
PASS, WARN, FAIL, UNKNOWN = Verdict.PASS, Verdict.WARN, Verdict.FAIL, Verdict.UNKNOWN


def judge(check_id: str, node: Any, changes: dict[str, Any] | None = None) -> dict[str, Finding]:
    return run_check(CHECKS[check_id], node, h200_profile(changes))


@pytest.mark.parametrize(
    ("check_id", "changes"),
    [
        ("host.kernel_args", {"host": {"kernel_args": None, "kernel_args_absent": None}}),
        ("host.sysctl", {"host": {"sysctl": None}}),
        ("host.limits", {"host": {"engine_limits": None}}),
        ("host.memory", {"host": {"memory_gib": None}}),
        ("host.hugepages", {"host": {"hugepages": None}}),
        ("host.thp", {"host": {"transparent_hugepage": None}}),
        ("host.swap", {"host": {"swap": None}}),
        ("host.swap", {"host": {"swap": True}}),
        ("host.governor", {"host": {"cpu_governor": None}}),
        ("host.numa", {"host": {"numa_nodes": None}}),
        ("host.modules", {"host": {"modules": None}}),
        ("host.modules_absent", {"host": {"modules_absent": None}}),
        ("host.services", {"host": {"services": None}}),
        ("host.time", {"host": {"time_sync": False}}),
        ("host.disk", {"host": {"disks": []}}),
        ("host.disk_health", {"host": {"disks": []}}),
        ("host.mounts", {"host": {"mounts": None}}),
        ("host.iommu", {"host": {"iommu": None}}),
        ("pci.aspm", {"host": {"aspm": None}}),
        ("pci.acs", {"host": {"acs": None}}),
        ("engine.peers", {"engines": {"glm": {"peers": None}, "kimi": {"peers": None}}}),
    ],
)
def test_what_the_profile_does_not_ask_for_is_skipped(check_id: str, changes: dict[str, Any]) -> None:
    node = h200_node()
    findings = judge(check_id, node, changes)
    assert [finding.verdict for finding in findings.values()] == [Verdict.SKIP]
    assert not node.reads


def test_no_host_check_closes_a_serving_gate() -> None:
    """Settings, shared stores and switches go wrong on a whole row at once."""
    for check_id in MINE:
        assert CHECKS[check_id].serving_class in (ServingClass.SOFT, ServingClass.INFO), check_id


def test_a_stale_store_and_a_dead_peer_are_failures_as_long_as_they_last() -> None:
    """Incident 25: ranks waited in silence. No answer is the evidence, not the lack of it."""
    node = h200_node()
    node.set("host.mounts./models", {"answered": False, "latency_s": 3.0, "problem": "no answer within 3 s"})
    node.set("host.reach.node3:29500", {"accepted": False, "latency_s": 2.0, "problem": "no answer"})
    for _ in range(5):
        node.clock.now_s += 3600
        assert judge("host.mounts", node)["/models"].verdict is FAIL
        peers = judge("engine.peers", node)
        assert peers["engine:glm"].verdict is FAIL
        assert peers["engine:kimi"].verdict is PASS


def test_an_engine_without_peers_is_left_out_and_the_other_is_judged() -> None:
    findings = judge("engine.peers", h200_node(), {"engines": {"kimi": {"peers": None}}})
    assert {subject: finding.verdict for subject, finding in findings.items()} == {
        "engine:glm": PASS,
        "engine:kimi": Verdict.SKIP,
    }


def test_dead_peers_are_asked_at_the_same_time() -> None:
    """Each takes its whole deadline: one after another they would take longer than the check may."""
    node = h200_node()
    everyone = threading.Barrier(4)

    class Together:
        def reach(self, host: str, port: int) -> Reach:
            everyone.wait(timeout=60)
            return Reach(False, 2.0, "no answer within 2 s")

    object.__setattr__(node.sources, "host", Together())
    findings = judge("engine.peers", node)
    assert findings["engine:glm"].summary.startswith("2 of 2 peers not reachable")


def test_aspm_that_was_switched_on_again_names_each_device() -> None:
    """Incident 9."""
    node = h200_node()
    node.set("files:sys/module/pcie_aspm/parameters/policy", "[default] performance powersave")
    for bus in ("5d", "5e"):
        node.set(f"files:sys/bus/pci/devices/0000:{bus}:00.0/link/l1_aspm", "1")
    findings = judge("pci.aspm", node)
    assert {s for s, f in findings.items() if f.verdict is FAIL} == {"node", "gpu3", "mlx5_3/1"}
    assert all(f.basis for f in findings.values())


def test_under_another_policy_links_are_nobodys_business() -> None:
    node = h200_node()
    node.set("files:sys/module/pcie_aspm/parameters/policy", "[default] performance powersave")
    node.set("files:sys/bus/pci/devices/0000:5d:00.0/link/l1_aspm", "1")
    findings = judge("pci.aspm", node, {"host": {"aspm": "default"}})
    assert {subject: finding.verdict for subject, finding in findings.items()} == {"node": PASS}


def test_old_lines_are_forgotten_except_uncorrected_errors() -> None:
    node = h200_node()
    node.data["kmsg"] += [
        "4,900,4900000000,-;INFO: task python3:1 blocked for more than 120 seconds.",
        "4,901,4900000000,-;EDAC MC0: 1 UE memory read error on DIMM_A1",
    ]
    assert judge("host.kmsg", node)["node/hung_task"].verdict is WARN
    node.clock.now_s += 4000
    findings = judge("host.kmsg", node)
    assert findings["node/hung_task"].verdict is PASS
    assert findings["node/uncorrected"].verdict is FAIL
    node.kmsg.clear(node.clock.now_s)
    assert judge("host.kmsg", node)["node/uncorrected"].verdict is PASS


def test_a_port_above_several_devices_is_read_once() -> None:
    node = h200_node()
    reads: list[str] = []
    real = node.sources.tree.data

    def data(path: str) -> bytes:
        reads.append(path)
        return real(path)

    node.sources.tree.data = data  # type: ignore[method-assign]
    judge("pci.acs", node)
    assert len(reads) == len(set(reads)) == 8 * 4


@pytest.mark.parametrize("check_id", MINE)
def test_this_machine_is_judged_without_a_defect(check_id: str) -> None:
    """Whatever it is: every subject gets a verdict, and none of what cannot be read passes."""
    asked = {
        **h200_profile().host.model_dump(),
        "disks": ["/", "/nowhere"],
        "mounts": [{"path": "/proc", "fs_type": "proc", "marker": "self"}, {"path": "/nowhere"}],
        "services": {"no-such-unit.service": "active"},
    }
    profile = NodeProfile.model_validate(
        {
            "gpus": {"count": 0},
            "nvlink": {"links_per_gpu": 0},
            "fabric": {"kind": "none"},
            "host": asked,
            "mode": "manage",
            "engines": {"x": {"gpus": [], "port": 8000, "peers": [{"host": "127.0.0.1", "port": 1}]}},
        }
    )
    live = live_sources()
    try:
        check = CHECKS[check_id]
        skipped = check.skip is not None and check.skip(profile)
        findings = [] if skipped else list(check.run(live.sources, profile, check.limits()))
    except Exception as cause:
        assert type(cause).__module__ == "agent.errors", cause
        findings = []
    finally:
        live.close()
    for finding in findings:
        assert finding.summary and "\n" not in finding.summary
        if finding.verdict in (WARN, FAIL):
            assert finding.basis is not None
            assert finding.expected is not None
            assert finding.action.hint
    by_subject = {finding.subject: finding.verdict for finding in findings}
    if check_id == "host.mounts":
        assert by_subject == {"/proc": PASS, "/nowhere": FAIL}
    if check_id == "host.disk":
        assert by_subject["/nowhere"] is WARN
    if check_id == "engine.peers":
        assert by_subject == {"engine:x": FAIL}


def test_lists_are_short() -> None:
    assert listed(["a", "b"]) == "a, b"
    assert listed([str(n) for n in range(9)]) == "0, 1, 2, 3 and 5 more"


def test_settings_are_compared_as_numbers_and_words() -> None:
    assert normal_words("4096\t67108864  1073741824\n") == normal_words("4096 67108864 1073741824")
    assert normal_words("008") == normal_words(8)
    assert normal_words("cubic") != normal_words("bbr")
    assert normal_words("1 2") != normal_words("12")


def test_numbered_names_in_order() -> None:
    assert numbered(["cpu10", "cpu9", "cpufreq", "cpu", "node1"], "cpu") == ["cpu9", "cpu10"]


@given(st.text(max_size=300))
def test_any_table_is_read_or_refused(text: str) -> None:
    for parse in (lambda: list(parse_mounts(text)), lambda: parse_limits(text, "x")):
        try:
            parse()
        except ParseError as cause:
            assert "\n" not in str(cause)


def test_a_mount_point_with_blanks() -> None:
    (line,) = parse_mounts("//nas/a\\040b /mnt/a\\040b cifs ro,relatime 0 0")
    assert (line.source, line.path, line.fs_type, line.read_only) == ("//nas/a b", "/mnt/a b", "cifs", True)
