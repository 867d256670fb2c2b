"""Role nic by Ansible on a host with stand-in NICs, its unit over a reboot, and the agent's own checks."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from nspawn_rig import Host, wait_for
from provision_rig import ProvisionRig, provision_hosts
from standin_seed import DEMO, HOME

pytestmark = [pytest.mark.root, pytest.mark.timeout(1200)]

NODE, SYS = f"/{HOME}/node", f"/{HOME}/sys"
NIC = {
    "max_read_request_bytes": 4096,
    "rx_ring": 8192,
    "tx_ring": 4096,
    "config": {
        "LINK_TYPE_P1": "ETH", "ATS_ENABLED": False, "ROCE_CC_PRIO_MASK_P1": 255, "CNP_DSCP_P1": 48,
        "LINK_TYPE_P2": "ETH",
    },
}  # fmt: skip
#: The checks of what this role sets.
OWN = {
    "nic.config", "nic.ring", "nic.max_read_request", "nic.port", "roce.pfc_config", "roce.ecn_config",
    "roce.cnp",
}  # fmt: skip


@pytest.fixture(scope="module")
def rig() -> Iterator[ProvisionRig]:
    with provision_hosts("node", premade=True) as made:
        yield made


@pytest.fixture(scope="module")
def node(rig: ProvisionRig) -> Host:
    return rig["node"]


def fabric() -> dict[str, Any]:
    """The demo node's, with more of what can be set; plain data with all defaults."""
    from agent.fabric_profile import Fabric

    part = copy.deepcopy(yaml.safe_load((DEMO / "profile.yaml").read_text())["fabric"])
    part["nic"] = NIC
    return Fabric.model_validate(part).model_dump(mode="json")


def apply(rig: ProvisionRig, *words: str, settled: bool = False, **changes: Any) -> Any:
    """Run the role and give the run."""
    play = {
        "hosts": "all",
        "gather_facts": False,
        "vars": {"nodegate": {"profile": {"fabric": {**fabric(), **changes}}}, "nic_settled": settled},
        "roles": ["nic"],
    }
    path = rig.folder / "nic.yml"
    path.write_text(yaml.safe_dump([play]))
    return rig.ansible(path, *words)


def judged(node: Host) -> dict[str, list[dict[str, Any]]]:
    """What the agent says of this role's checks that do not pass."""
    profile = yaml.safe_load(node.must(["cat", f"{NODE}/profile.yaml"]))
    profile["fabric"] = fabric()
    node.write("/var/tmp/profile.yaml", yaml.safe_dump(profile))
    words = ["nodegate", "check", "--node", NODE, "--profile", "/var/tmp/profile.yaml", "--format", "json"]
    done = node.run([*words, "--sample-seconds", "0.2"])
    assert done.stdout, done.stderr
    bad: dict[str, list[dict[str, Any]]] = {}
    for result in json.loads(done.stdout)["results"]:
        if result["check"] in OWN and result["verdict"] not in ("PASS", "SKIP"):
            bad.setdefault(result["check"], []).append(result)
    return bad


def lines(node: Host) -> list[str]:
    """The same, in words."""
    return [f"{r['check']} {r['subject']}: {r['summary']}" for found in judged(node).values() for r in found]


def test_from_a_fresh_host_over_a_reboot(rig: ProvisionRig, node: Host) -> None:
    shown = apply(rig, "--check", "--diff").must()
    assert shown.changed == {"node": 1} and "mlx5_0 ATS_ENABLED: True(1)" in shown.output
    assert node.run(["test", "-e", "/etc/nodegate/apply/nic.json"]).returncode == 1
    fresh = judged(node)
    assert set(fresh) == OWN - {"roce.cnp"} | ({"roce.cnp"} & set(fresh))
    assert {result["verdict"] for result in fresh["nic.config"]} == {"UNKNOWN"}
    assert apply(rig).must().changed == {"node": 1}
    waiting = judged(node)
    assert set(waiting) == {"nic.config"}, waiting
    assert {result["action"]["kind"] for result in waiting["nic.config"]} == {"reboot"}
    again = apply(rig, "-v", "--diff").must()
    assert again.changed == {"node": 0} and "mlx5_7 ATS_ENABLED = False" in again.output, again.output[:3000]
    node.reboot()
    unit = ["systemctl", "is-active", "nodegate-apply@nic.service"]
    wait_for("the unit has applied it", lambda: node.run(unit).stdout == "active\n")
    assert lines(node) == []
    after = apply(rig, settled=True)
    assert after.must().changed == {"node": 0}, after.output


DRIFT = f"""
set -e
mlnx_qos -i eth1 --dcbx fw --trust pcp --pfc 0,0,0,0,0,1,0,0
ethtool -A eth2 autoneg off rx on tx on
ethtool -G eth3 rx 512
echo 1500 > {SYS}/class/net/eth4/mtu
echo 0 > {SYS}/class/net/eth5/ecn/roce_rp/enable/3
echo 7 > {SYS}/class/net/eth6/ecn/roce_np/cnp_dscp
setpci -s $(basename $(readlink {SYS}/class/infiniband/mlx5_7/device)) CAP_EXP+08.w=2000:7000
mlxconfig -d $(basename $(readlink {SYS}/class/infiniband/mlx5_0/device)) -y set ATS_ENABLED=1
systemctl start nodegate-apply-check@nic.service || true
"""


def test_drift_of_all_kinds_at_once(rig: ProvisionRig, node: Host) -> None:
    node.must(["sh", "-c", DRIFT])
    found = judged(node)
    assert set(found) == OWN
    for check, results in found.items():
        assert {result["action"]["play"] for result in results} == {"nic"}, check
    journal = node.must(["journalctl", "-u", "nodegate-apply-check@nic.service", "-o", "cat"])
    assert "eth2 global pause (fabric.roce.priority): is 'rx on, tx on', wanted 'rx off, tx off'" in journal
    shown = apply(rig, "--check", "--diff").must()
    for line in (
        "eth1 DCBX: firmware", "eth1 trust: pcp", "eth1 PFC: 5", "eth1 DSCP 26: not mapped",
        "eth2 global pause: rx on, tx on", "eth3 rx ring: 512", "eth4 MTU: 1500",
        "eth5 ECN roce_rp priority 3: 0", "eth6 CNP DSCP: 7", "mlx5_7 MaxReadReq: 512",
        "mlx5_0 ATS_ENABLED: True(1)",
    ):  # fmt: skip
        assert line in shown.output
    apply(rig).must()
    assert lines(node) == []
    assert apply(rig).must().changed == {"node": 0}


@pytest.mark.parametrize(
    ("fault", "line"),
    [
        (
            {"tool": "mlnx_qos", "match": "--pfc", "do": "lie"},
            "eth0 PFC (fabric.roce.priority): was set and reads",
        ),
        (
            {"tool": "mlxconfig", "match": "query", "do": "fail", "message": "-E- Failed to open the device"},
            "mlx5_0 LINK_TYPE_P1 (fabric.nic.config.LINK_TYPE_P1): mlxconfig -d",
        ),
    ],
)
def test_a_failure_is_one_line(rig: ProvisionRig, node: Host, fault: dict[str, Any], line: str) -> None:
    node.must(["mlnx_qos", "-i", "eth0", "--pfc", "0,0,0,0,0,0,0,0"])
    rig.order_faults("node", fault)
    run = apply(rig)
    assert run.status != 0 and line in run.output.replace("\n", " "), run.output
    rig.order_faults("node")
    apply(rig).must()
