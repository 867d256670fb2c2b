"""The stand-in node of test hosts: wrong when fresh, changed by its tools, and honest over a reboot."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from agent_host import API_PORT, PROFILE, AgentHost
from nspawn_rig import Host, wait_for
from provision_rig import ProvisionRig, provision_hosts
from standin_seed import DEMO, FIRST_FIRMWARE, HOME, PSID, nic_image

# The first user of the shared root makes it.
pytestmark = [pytest.mark.root, pytest.mark.timeout(1200)]

NODE = f"/{HOME}/node"
SYS = f"/{HOME}/sys"
NIC = "0000:18:00.0"
PING = "- hosts: all\n  gather_facts: false\n  tasks:\n    - ansible.builtin.ping:\n"
#: Checks that a fresh host fails under the demo node's profile, and that provisioning makes pass.
WRONG = {
    "driver.fabric_manager", "driver.modules", "gpu.mig", "host.governor", "host.iommu", "host.kernel_args",
    "host.modules", "host.modules_absent", "host.services", "host.swap", "host.sysctl", "host.thp",
    "nic.firmware", "nic.max_read_request", "nic.port", "pci.acs", "pci.aspm", "roce.cnp", "roce.ecn_config",
    "roce.pfc_config",
}  # fmt: skip
#: What warns besides.
DUBIOUS = {"driver.persistenced", "gpu.persistence", "host.numa"}


@pytest.fixture(scope="module")
def rig() -> Iterator[ProvisionRig]:
    with provision_hosts("node", premade=True) as made:
        made["node"].must(["mkdir", "-p", "/var/lib/nodegate"])
        yield made


@pytest.fixture
def node(rig: ProvisionRig) -> Host:
    return rig["node"]


def _judge(host: Host) -> dict[str, set[str]]:
    """Verdicts of the agent's own checks, by check."""
    words = ["nodegate", "check", "--node", NODE, "--format", "json", "--sample-seconds", "0.2"]
    done = host.run(words)
    assert done.stdout, done.stderr
    report = json.loads(done.stdout)
    assert report["simulated"] is True
    verdicts: dict[str, set[str]] = {}
    for result in report["results"]:
        verdicts.setdefault(result["check"], set()).add(result["verdict"])
    return verdicts


def _with(verdicts: dict[str, set[str]], verdict: str) -> set[str]:
    return {check for check, found in verdicts.items() if verdict in found}


def _set_runtime(host: Host) -> None:
    """What is lost at every boot, set as by hand."""
    host.must(["sh", "-c", _POKES])


_POKES = f"""
set -e
nvidia-smi -pm 1
for i in 0 1 2 3 4 5 6 7; do
    mlnx_qos -i eth$i --dcbx os --trust dscp --pfc 0,0,0,1,0,0,0,0
    ethtool -A eth$i autoneg off rx off tx off
    ip link set dev eth$i mtu 9000
    cma_roce_tos -d mlx5_$i -t 106
done
for file in {SYS}/class/net/eth*/ecn/roce_*/enable/3; do echo 1 > $file; done
for file in {SYS}/devices/system/cpu/cpu*/cpufreq/scaling_governor; do echo performance > $file; done
for nic in {SYS}/class/infiniband/mlx5_*; do
    setpci -s $(basename $(readlink $nic/device)) CAP_EXP+08.w=5000:7000
done
for bridge in {SYS}/bus/pci/devices/*; do
    read class < $bridge/class
    case $class in 0x0604*) setpci -s ${{bridge##*/}} ECAP_ACS+6.w=0:2c || true;; esac
done
echo performance > {SYS}/module/pcie_aspm/parameters/policy
"""


def _set_lasting(host: Host) -> None:
    """What outlives a boot or comes with one."""
    host.must(["sh", "-c", "echo 'GRUB_CMDLINE_LINUX=\"iommu=pt\"' > /etc/default/grub.d/60-test.cfg"])
    host.must(["sh", "-c", "sed -i s/quiet/transparent_hugepage=madvise/ /etc/default/grub && update-grub"])
    host.write("/etc/modules-load.d/test.conf", "nvidia-uvm\nnvidia_peermem\n")
    host.write("/etc/modprobe.d/test.conf", "blacklist nouveau\n")
    host.write("/etc/sysctl.d/90-test.conf", "vm.swappiness = 1\nkernel.numa_balancing = 0\n")
    host.write("/etc/fstab", "\n")
    host.write("/var/tmp/fw.bin", nic_image(PSID, "28.43.2566"))
    for port in yaml.safe_load((DEMO / "profile.yaml").read_text())["fabric"]["ports"]:
        address = port["pci_bus_id"]
        host.must(["mlxconfig", "-d", address, "-y", "set", "CNP_DSCP_P1=48", "SRIOV_EN=0"])
        host.must(["flint", "-d", address, "-i", "/var/tmp/fw.bin", "-y", "burn"])
    host.must(["nvidia-smi", "-mig", "0"])
    host.must(["systemctl", "enable", "--now", "nvidia-fabricmanager.service", "nvidia-persistenced.service"])


def test_fresh_hosts_take_ansible_over_checked_ssh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ANSIBLE_CONFIG", "/nowhere")
    monkeypatch.setenv("ANSIBLE_REMOTE_USER", "nobody")
    with provision_hosts("a", "b") as rig:
        play = tmp_path / "ping.yml"
        play.write_text(PING)
        run = rig.ansible(play).must()
        assert {name: tally.ok for name, tally in run.hosts.items()} == {"a": 1, "b": 1}
        assert run.changed == {"a": 0, "b": 0}
        assert rig["a"].run(["test", "-e", "/opt/nodegate"]).returncode == 1
        lists = [rig[name].must(["nvidia-smi", "-L"]) for name in ("a", "b")]
        assert lists[0] != lists[1] and lists[0].count("\n") == lists[1].count("\n") == 8
        keys = rig.folder / "known_hosts"
        lines = keys.read_text().splitlines()
        keys.write_text("".join(f"{line.split()[0]} {lines[0].split(' ', 1)[1]}\n" for line in lines))
        rig.drop_connections()
        refused = rig.ansible(play)
        assert refused.status != 0
        assert (refused.hosts["a"].unreachable, refused.hosts["b"].unreachable) == (0, 1)


def test_a_fresh_host_is_wrong_provisioning_and_a_reboot_make_it_right(node: Host) -> None:
    fresh = _judge(node)
    assert _with(fresh, "FAIL") >= WRONG
    assert _with(fresh, "WARN") >= DUBIOUS
    real = Path("/proc/sys/vm/swappiness").read_text(), Path("/proc/sys/kernel/numa_balancing").read_text()

    _set_lasting(node)
    _set_runtime(node)
    before = _judge(node)
    assert {"host.kernel_args", "host.iommu", "nic.firmware", "host.modules"} <= _with(before, "FAIL")
    assert not {"nic.port", "roce.pfc_config", "pci.acs", "host.governor"} & _with(before, "FAIL")
    assert node.must(["flint", "-d", NIC, "q"]).count("FW Version(Running):") == 1

    node.reboot()
    after = _judge(node)
    lost = {
        "nic.port",
        "nic.max_read_request",
        "pci.acs",
        "roce.ecn_config",
        "roce.pfc_config",
        "host.governor",
    }
    assert lost <= _with(after, "FAIL")
    assert not {"nic.firmware", "host.kernel_args", "host.iommu", "host.sysctl"} & _with(after, "FAIL")
    _set_runtime(node)
    right = _judge(node)
    assert not _with(right, "FAIL") | _with(right, "UNKNOWN"), right
    assert not _with(right, "WARN"), right
    assert real == (
        Path("/proc/sys/vm/swappiness").read_text(), Path("/proc/sys/kernel/numa_balancing").read_text()
    )  # fmt: skip


def test_what_a_boot_resets_loads_and_keeps(node: Host) -> None:
    uuid = node.must(["nvidia-smi", "-i", "0", "--query-gpu=uuid", "--format=csv,noheader"]).strip()
    assert uuid in node.must(["nvidia-smi", "-q"])
    limit = ["nvidia-smi", "-i", uuid, "--query-gpu=power.limit", "--format=csv,noheader,nounits"]
    node.must(["nvidia-smi", "-i", uuid, "-pl", "650"])
    node.must(["nvidia-smi", "-i", uuid, "-e", "0"])
    node.must(["ethtool", "-G", "eth0", "rx", "8192"])
    node.must(["mlxconfig", "-d", NIC, "-y", "set", "NUM_OF_VFS=3"])
    node.must(["cma_roce_tos", "-d", "mlx5_0", "-t", "106"])
    node.must(["sysctl", "-qw", "vm.max_map_count=262144", "net.ipv4.ip_forward=1"])
    assert node.must(limit).strip() == "650.00"
    modes = [
        "nvidia-smi",
        "-i",
        uuid,
        "--query-gpu=ecc.mode.current,ecc.mode.pending",
        "--format=csv,noheader",
    ]
    assert node.must(modes).strip() == "Enabled, Disabled"
    assert _stages(node, "NUM_OF_VFS")[1:] == ["8", "3"]
    boot_id = yaml.safe_load(node.read(f"{NODE}/node.yaml"))["boot_id"]

    node.reboot()
    assert node.must(limit).strip() == "700.00"
    assert node.must(modes).strip() == "Disabled, Disabled"
    assert "RX:\t\t\t1024" in node.must(["ethtool", "-g", "eth0"])
    assert _stages(node, "NUM_OF_VFS") == ["16", "3", "3"]
    assert node.must(["cma_roce_tos", "-d", "mlx5_0"]).strip() == "0"
    assert node.read("/proc/sys/vm/max_map_count").strip() == "65530"
    assert node.read("/proc/sys/net/ipv4/ip_forward").strip() == "0"
    assert yaml.safe_load(node.read(f"{NODE}/node.yaml"))["boot_id"] not in (boot_id, "unset")
    node.must(["nvidia-smi", "-i", uuid, "-e", "1"])


def _stages(host: Host, name: str) -> list[str]:
    """Default, current and next value of a NIC parameter."""
    text = host.must(["mlxconfig", "-d", NIC, "-e", "query", name])
    line = next(line for line in text.splitlines() if f" {name} " in line)
    return line.replace("*", " ").split()[1:]


def test_files_answer_as_sysfs_does(node: Host) -> None:
    def write(path: str, text: str) -> str:
        return node.must(["sh", "-c", f"echo '{text}' > {SYS}/{path}; cat {SYS}/{path}"]).strip()

    thp = "kernel/mm/transparent_hugepage/enabled"
    assert write(thp, "never") == "always madvise [never]"
    assert write(thp, "often") == "always madvise [never]"
    assert write("class/infiniband/mlx5_3/tc/1/traffic_class", "106") == "Global tclass=106"
    assert write("class/infiniband/mlx5_3/tc/1/traffic_class", "-1") == ""
    assert write("class/net/eth3/mtu", "4200") == "4200"
    assert json.loads(node.read(f"{NODE}/net.json"))["eth3"]["link"]["mtu_bytes"] == 4200
    assert write("class/net/eth3/mtu", "99999") == "4200"


def test_tools_fail_hang_and_lie_when_they_are_told_to(rig: ProvisionRig, node: Host) -> None:
    limit = ["nvidia-smi", "-i", "2", "--query-gpu=power.limit", "--format=csv,noheader,nounits"]
    rig.order_faults(
        "node",
        {"tool": "nvidia-smi", "match": "-pl", "do": "lie", "times": 1},
        {"tool": "mlnx_qos", "match": "eth5", "do": "fail", "message": "no such luck", "status": 4},
        {"tool": "mlxconfig", "do": "hang"},
        {"tool": "sysfs", "match": "eth6/mtu", "do": "lie"},
    )
    assert "was set to 600.00 W" in node.must(["nvidia-smi", "-i", "2", "-pl", "600"])
    assert node.must(limit).strip() == "700.00"
    node.must(["nvidia-smi", "-i", "2", "-pl", "600"])
    assert node.must(limit).strip() == "600.00"
    failed = node.run(["mlnx_qos", "-i", "eth5"])
    assert (failed.returncode, failed.stderr) == (4, "no such luck\n")
    node.must(["mlnx_qos", "-i", "eth4"])
    with pytest.raises(subprocess.TimeoutExpired):
        node.run(["timeout", "5", "mlxconfig", "-d", NIC, "query"], timeout=0.5)
    before = node.read(f"{SYS}/class/net/eth6/mtu")
    assert (
        node.must(["sh", "-c", f"echo 2000 > {SYS}/class/net/eth6/mtu; cat {SYS}/class/net/eth6/mtu"])
        == before
    )
    rig.order_faults("node")
    node.must(["mlxconfig", "-d", NIC, "query"])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ["nvidia-smi", "-i", "0", "-pl", "900"],
            "is not a valid power limit which should be between 200.00 W",
        ),
        (["nvidia-smi", "-i", "GPU-nobody", "-pm", "1"], "No devices were found"),
        (["mlxconfig", "-d", NIC, "-y", "set", "NOT_THERE=1"], "-E- Unknown Parameter: NOT_THERE"),
        (["mlxconfig", "-d", "0000:ff:00.0", "query"], "-E- Failed to open the device"),
        (
            ["mlnx_qos", "-i", "eth0", "--trust", "dscp", "--dscp2prio", "set,26,3"],
            "cannot be used at the same",
        ),
        (["mlnx_qos", "-i", "eth99"], "No such device"),
        (["flint", "-d", NIC, "-i", "/var/tmp/other.bin", "-y", "burn"], "PSID mismatch"),
        (["flint", "-i", "/var/tmp/broken.bin", "v"], "verification failed"),
        (["modprobe", "nonsense"], "Module nonsense not found"),
    ],
)
def test_tools_refuse_in_their_own_words(node: Host, words: list[str], says: str) -> None:
    node.write("/var/tmp/other.bin", nic_image("MT_0000000001", "28.43.2566"))
    node.write("/var/tmp/broken.bin", nic_image(PSID, "28.43.2566").replace("2566", "2577"))
    done = node.run(words)
    assert done.returncode != 0 and says in done.stdout + done.stderr


def test_a_reset_loads_burned_firmware_of_one_card(node: Host) -> None:
    running = f"{SYS}/class/infiniband/mlx5_7/fw_ver"
    node.write("/var/tmp/old.bin", nic_image(PSID, FIRST_FIRMWARE))
    before = node.read(running)
    node.must(["flint", "-d", "0000:dc:00.0", "-i", "/var/tmp/old.bin", "-y", "burn"])
    assert node.read(running) == before
    node.must(["mlxfwreset", "-d", "0000:dc:00.0", "-y", "reset"])
    assert node.read(running).strip() == FIRST_FIRMWARE
    assert FIRST_FIRMWARE in node.must(["mlxfwmanager", "-d", "0000:dc:00.0"])


def test_the_running_agent_sees_what_a_tool_changes(node: Host) -> None:
    profile: dict[str, Any] = yaml.safe_load(node.read(f"{NODE}/profile.yaml"))
    profile |= {"mode": "observe", "api": {"host": "127.0.0.1", "port": API_PORT}}
    profile["checks"] = {"roce.pfc_config": {"period_s": 0.5, "fail_for_s": 0, "clear_for_s": 0}}
    agent = AgentHost(node)
    agent.install(profile)
    node.write("/etc/nodegate/agent.env", f"NODEGATE_ARGS=--node {NODE} --profile {PROFILE}\n")
    agent.start()

    def verdict() -> str:
        status, body = node.get(API_PORT, "/status")
        results = json.loads(body)["results"] if status == 200 else []
        found = (r for r in results if (r["check"], r["subject"]) == ("roce.pfc_config", "mlx5_1/1"))
        return str(next(found, {}).get("verdict", ""))

    node.must(["mlnx_qos", "-i", "eth1", "--pfc", "0,0,0,1,0,0,0,0"])
    node.must(["mlnx_qos", "-i", "eth1", "--dcbx", "os", "--trust", "dscp"])
    node.must(["ethtool", "-A", "eth1", "autoneg", "off", "rx", "off", "tx", "off"])
    node.must(["cma_roce_tos", "-d", "mlx5_1", "-t", "106"])
    wait_for("PFC to be right", lambda: verdict() == "PASS", 20)
    node.must(["mlnx_qos", "-i", "eth1", "--pfc", "0,0,0,0,0,0,0,0"])
    wait_for("its loss to be seen", lambda: verdict() == "FAIL", 20)
