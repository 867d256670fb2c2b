"""What the field has met: bus ids given anew, cards in wrong slots, NVLink in a ring, other cards."""

from __future__ import annotations

from typing import Any

import pytest
from check_cases import run_check
from fake_sources import FakeNode
from topo_nodes import PCI, machine, recorded, swap_addresses, topo_node, topo_profile

from agent.checks.registry import load_all
from agent.model import Finding, Verdict
from agent.node_parts import ExpectedTopology
from agent.node_profile import NodeProfile
from agent.sources.capture import record as record_capture
from agent.topo.expected import judge
from agent.topo.facts import hops, record
from agent.topo.write_file import render

FILE = "etc/nodegate/nccl-topo.xml"
GPU0, GPU4 = "0000:1b:00.0", "0000:9d:00.0"
CHECKS = load_all()


def _node() -> tuple[FakeNode, NodeProfile]:
    """An H200 board with its file in place and its topology recorded; slots follow the bus order."""
    node, profile = topo_node("h200-roce"), topo_profile("h200-roce")
    profile = recorded(node, profile, nccl_file=f"/{FILE}")
    _write(node, profile)
    return node, profile


def _write(node: FakeNode, profile: NodeProfile) -> None:
    """What `nodegate topo write` does."""
    node.set(f"files:{FILE}", render(machine(node, profile)))


def _pinned(node: FakeNode, profile: NodeProfile) -> NodeProfile:
    identities = [gpu["identity"] for gpu in node.data["nvml"]["gpus"]]
    pins = {slot: {"uuid": each["uuid"]} for slot, each in enumerate(identities)}
    whole = profile.model_dump()
    return NodeProfile.model_validate({**whole, "gpus": {**whole["gpus"], "pins": pins}})


def _check(name: str, node: FakeNode, profile: NodeProfile) -> dict[str, Finding]:
    return run_check(CHECKS[f"topology.{name}"], node, profile)


def _verdicts(findings: dict[str, Finding]) -> set[Verdict]:
    return {finding.verdict for finding in findings.values()}


def test_two_gpus_that_swap_bus_ids_at_a_reboot() -> None:
    node, profile = _node()
    profile = _pinned(node, profile)
    assert _verdicts(_check("file", node, profile) | _check("expected", node, profile)) == {Verdict.PASS}

    swap_addresses(node, GPU0, GPU4)
    old = _check("file", node, profile)["node"]
    assert old.verdict is Verdict.FAIL
    assert (
        f"gpu0: GPU-a1c0ffee-4e2d-5b7a-9c3f-0d15ea5e0000 is at {GPU4}, in the file at {GPU0}" in old.summary
    )
    assert "nodegate topo write" in old.action.hint
    assert old.action.play == "nccl_topology"

    recorded_as = _check("expected", node, profile)
    assert _verdicts(recorded_as) == {Verdict.PASS}, "cards and slots are as they were"
    assert recorded_as["gpu0"].summary == f"as recorded: at {GPU4}, recorded at {GPU0}: PCI has numbered anew"
    assert recorded_as["gpu1"].summary == "as recorded"

    _write(node, profile)
    assert _check("file", node, profile)["node"].verdict is Verdict.PASS


def test_without_the_stamps_the_switches_still_show_it() -> None:
    node, profile = _node()
    profile = _pinned(node, profile)
    text = node.data["files"][FILE]
    node.set(f"files:{FILE}", "\n".join(line for line in text.splitlines() if "<!--" not in line))
    swap_addresses(node, GPU0, GPU4)
    found = _check("file", node, profile)["node"]
    assert found.verdict is Verdict.FAIL
    assert "gpu0: behind 0000:98:00.0 of NUMA node 1" not in found.summary
    assert "gpu0: behind 0000:16:00.0 of NUMA node 0 on this machine, behind 0000:98:00.0" in found.summary


def test_slots_without_pins_follow_the_bus_and_that_is_told() -> None:
    node, profile = _node()
    profile = profile.model_copy(update={"gpus": profile.gpus.model_copy(update={"pins": {}})})
    swap_addresses(node, GPU0, GPU4)
    gpus = node.data["nvml"]["gpus"]
    gpus.sort(key=lambda gpu: gpu["identity"]["pci_bus_id"])
    found = _check("expected", node, profile)
    failed = [subject for subject, finding in found.items() if finding.verdict is Verdict.FAIL]
    assert failed == ["gpu0", "gpu4"]
    assert "pin the slots (gpus.pins)" in found["gpu0"].summary


def test_a_card_in_the_wrong_slot_is_told_whatever_file_is_written_from_it() -> None:
    """The NIC of gpu3 hangs on the other socket: a file written now fits the machine and proves nothing."""
    node, profile = _node()
    node.set(
        f"links:{PCI}/0000:5e:00.0",
        "../../../devices/pci0000:97/0000:97:01.0/0000:98:00.0/0000:99:03.0/0000:5e:00.0",
    )
    node.set(f"files:{PCI}/0000:5e:00.0/numa_node", "1")
    _write(node, profile)
    assert _check("file", node, profile)["node"].verdict is Verdict.PASS
    found = _check("expected", node, profile)
    assert [subject for subject, finding in found.items() if finding.verdict is Verdict.FAIL] == ["mlx5_3/1"]
    assert found["mlx5_3/1"].summary.startswith("on NUMA node 1, recorded 0; SYS to gpu0 (recorded NODE), ")
    basis = found["mlx5_3/1"].basis
    assert basis is not None and basis.key == "topology.expected.nics.3.numa_node"


def _rows(node: FakeNode, reach: dict[int, set[int]]) -> None:
    """NVML's P2P status of every pair: 0 OK, 3 topology not supported."""
    for slot, gpu in enumerate(node.data["nvml"]["gpus"]):
        gpu["peers"]["p2p_nvlink"] = [0 if at == slot or at in reach[slot] else 3 for at in range(8)]


def test_nvlink_in_a_ring_where_all_were_reached() -> None:
    node, profile = _node()
    _rows(node, {slot: {(slot + 1) % 8, (slot - 1) % 8} for slot in range(8)})
    found = _check("expected", node, profile)
    assert found["gpu0"].verdict is Verdict.FAIL
    assert found["gpu0"].summary.startswith(
        "NVLink no longer reaches gpu2, gpu3, gpu4, gpu5, gpu6 (now 2 hops"
    )
    assert found["gpu0"].observed == "gpu1, gpu7"
    assert found["mlx5_0/1"].verdict is Verdict.PASS


def test_hops_over_other_gpus() -> None:
    ring = {slot: {(slot + 1) % 8, (slot - 1) % 8} for slot in range(8)}
    assert [hops(ring, 0, other) for other in range(8)] == [0, 1, 2, 3, 4, 3, 2, 1]
    assert hops({0: {1}, 1: {0}, 2: set()}, 0, 2) is None


@pytest.mark.parametrize(
    ("path", "value", "subject", "verdict", "words"),
    [
        ("nvml.gpus.3.nvlink.states", [True] * 17 + [False], "gpu3", Verdict.FAIL, "17 NVLinks are up"),
        (f"files:{PCI}/0000:61:00.0/numa_node", "1", "gpu3", Verdict.FAIL, "on NUMA node 1, recorded 0"),
        (f"files:{PCI}/0000:61:00.0/numa_node", "x", "gpu3", Verdict.UNKNOWN, "no"),
        ("nvml.gpus.3.identity.error", "GPU_IS_LOST", "gpu3", Verdict.UNKNOWN, "GPU_IS_LOST"),
        ("nvml.gpus.3.identity.uuid", None, "gpu3", Verdict.UNKNOWN, "does not tell its UUID"),
        ("nvml.gpus.3.peers.p2p_nvlink", [-1] * 8, "gpu3", Verdict.UNKNOWN, "does not say whether NVLink"),
        ("nvml.gpus.3.peers.p2p_nvlink", [0, 0], "gpu3", Verdict.UNKNOWN, "does not say whether NVLink"),
        ("nvml.gpus.3.peers.p2p_nvlink", {"error": "UNKNOWN"}, "gpu3", Verdict.UNKNOWN, "NVML answers"),
        ("links:sys/class/infiniband/mlx5_3/device", None, "mlx5_3/1", Verdict.FAIL, "mlx5_3 is not there"),
        (f"links:{PCI}/0000:5e:00.0", "garbage", "mlx5_3/1", Verdict.UNKNOWN, "no place of it"),
    ],
)  # fmt: skip
def test_one_card_that_is_not_as_recorded(
    path: str, value: Any, subject: str, verdict: Verdict, words: str
) -> None:
    node, profile = _node()
    node.set(path, value)
    found = _check("expected", node, profile)
    assert found[subject].verdict is verdict, found[subject]
    assert words in found[subject].summary
    assert found["mlx5_0/1"].verdict is Verdict.PASS


def test_a_gpu_that_was_taken_away() -> None:
    node, profile = _node()
    new = "GPU-00000000-0000-0000-0000-000000000001"
    node.set("nvml.gpus.3.identity.uuid", new)
    found = _check("expected", node, profile)["gpu3"]
    assert found.verdict is Verdict.FAIL
    assert found.summary == "recorded GPU-a4c402f1-4e2d-5b7a-9c3f-0d15ea5e3333 is not on this machine"


def test_cards_are_known_by_their_serial_number() -> None:
    """Two NICs have changed slots and so their names: the serial number says which is which."""
    node, profile = topo_node("b300-roce"), topo_profile("b300-roce")
    profile = recorded(node, profile)
    one, other = profile.topology.expected.nics[:2]
    assert one.serial and other.serial and one.serial != other.serial
    assert {bool(judged.problems) for judged in judge(node.sources, profile)} == {False}
    paths = [f"files:{PCI}/{nic.pci_bus_id}/vpd" for nic in (one, other)]
    values = [node.data["files"][path.removeprefix("files:")] for path in paths]
    for path, value in zip(paths, reversed(values), strict=True):
        node.set(path, value)
    found = {judged.subject: judged for judged in judge(node.sources, profile)}
    problem = next(judged for name, judged in found.items() if name.startswith(one.device)).problems[0].text
    assert problem == f"the card {other.serial} is here, recorded {one.serial}, which is {other.device} now"


def test_a_serial_number_that_only_root_may_read_is_left_to_nic_serial() -> None:
    node, profile = topo_node("b300-roce"), topo_profile("b300-roce")
    profile = recorded(node, profile)
    nic = profile.topology.expected.nics[0]
    vpd = f"files:{PCI}/{nic.pci_bus_id}/vpd"
    node.set(vpd, {"error": "NO_PERMISSION"})
    found = next(judged for judged in judge(node.sources, profile) if judged.subject.startswith(nic.device))
    assert found.problems == () and found.unknown is None
    assert found.note == "its serial number cannot be read here, known by its device name"
    for broken in ({"hex": "00ff"}, {"error": "NOT_SUPPORTED"}, None):
        node.set(vpd, broken)
        found = next(each for each in judge(node.sources, profile) if each.subject.startswith(nic.device))
        assert found.unknown is not None


@pytest.mark.parametrize("name", ["h200-ib", "b300-x16", "gb10", "h200-x2-live"])
def test_what_is_recorded_passes_at_once(name: str) -> None:
    node, profile = topo_node(name), topo_profile(name)
    profile = recorded(node, profile)
    for judged in judge(node.sources, profile):
        assert judged.problems == ()
        assert judged.unknown is None
        assert judged.note == ""


def test_nothing_recorded_nothing_compared() -> None:
    node, profile = topo_node("h200-roce"), topo_profile("h200-roce")
    assert profile.topology.expected == ExpectedTopology()
    assert _verdicts(_check("expected", node, profile)) == {Verdict.SKIP}
    assert _verdicts(_check("file", node, profile)) == {Verdict.SKIP}
    assert len(record(node.sources, profile).gpus) == 8


def test_a_capture_brings_the_file_along() -> None:
    node, profile = _node()
    files = record_capture(node.sources, profile=profile).tree.files
    assert files[FILE] == node.data["files"][FILE].strip()
