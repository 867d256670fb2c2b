"""Roles kernel and gpu by Ansible on a host with stand-in GPUs: from fresh, over a reboot, and out of drift.

apt-get and dpkg are real, with a source of two empty packages on the host itself; systemd and mount are, too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from nspawn_rig import Host, wait_for
from provision_rig import ProvisionRig, Run, provision_hosts
from standin_seed import HOME

from agent.profile_loader import profile_from_dict

pytestmark = [pytest.mark.root, pytest.mark.timeout(1200)]

NODE, SYS = f"/{HOME}/node", f"/{HOME}/sys"
VERSION = "580.159.04-0ubuntu1"
PACKAGES = {"nvidia-driver-580-server": VERSION, "nvidia-fabricmanager": VERSION}
OLDER = dict.fromkeys(PACKAGES, "570.86.15-0ubuntu1")
HOST = {
    "kernel_args": ["iommu=pt", "mitigations=off"],
    "kernel_args_absent": ["quiet"],
    "sysctl": {"vm.swappiness": 1, "kernel.numa_balancing": 0, "net.ipv4.conf.*.arp_ignore": 1},
    "hugepages": {"2048": 512},
    "modules": ["nvidia_uvm", "nvidia_peermem", "rdma_cm"],
    "engine_limits": {"Max locked memory": "unlimited", "Max open files": 1048576},
    "mounts": [{"path": "/models", "fs_type": "tmpfs", "source": "weights", "read_only": False}],
    "services": {
        "good.service": "active",
        "bad.service": "inactive",
        "nvidia-fabricmanager.service": "active",
        "nvidia-persistenced.service": "active",
    },
}
#: Checks of what these roles set, and the play that each names.
PLAYS = {
    **dict.fromkeys(
        (
            "host.governor", "host.hugepages", "host.iommu", "host.kernel_args", "host.modules_absent",
            "host.services", "host.swap", "host.sysctl", "host.thp", "pci.acs", "pci.aspm",
        ),
        "kernel",
    ),
    **dict.fromkeys(
        (
            "driver.fabric_manager", "driver.modules", "driver.packages", "driver.persistenced", "gpu.mig",
            "gpu.persistence", "gpu.power_limit", "host.modules",
        ),
        "gpu",
    ),
}  # fmt: skip
#: A source of packages: two that hold nothing, as dpkg-deb builds them and apt-get takes them.
REPOSITORY = f"""
set -e
mkdir -p /srv/packages && cd /srv/packages
for name in {" ".join(PACKAGES)}; do
    for version in {VERSION} 570.86.15-0ubuntu1; do
        mkdir -p $name/DEBIAN
        printf 'Package: %s\\nVersion: %s\\nArchitecture: all\\nMaintainer: test <test@localhost>\\n' \\
            $name $version > $name/DEBIAN/control
        printf 'Description: nothing\\n' >> $name/DEBIAN/control
        dpkg-deb --build $name $name.$version.deb > /dev/null
        {{
            cat $name/DEBIAN/control
            echo "Filename: ./$name.$version.deb"
            echo "Size: $(stat -c %s $name.$version.deb)"
            echo "SHA256: $(sha256sum $name.$version.deb | cut -d' ' -f1)"
            echo
        }} >> Packages
    done
done
rm -rf /etc/apt/sources.list /etc/apt/sources.list.d/*
echo 'deb [trusted=yes] file:/srv/packages ./' > /etc/apt/sources.list.d/packages.list
"""
SERVICE = "[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n"


@pytest.fixture(scope="module")
def rig() -> Iterator[ProvisionRig]:
    with provision_hosts("node", premade=True) as made:
        node = made["node"]
        node.must(["sh", "-c", REPOSITORY])
        for name in ("good", "bad"):
            node.write(f"/etc/systemd/system/{name}.service", SERVICE)
        node.must(["systemctl", "enable", "--now", "bad.service"])
        yield made


@pytest.fixture(scope="module")
def node(rig: ProvisionRig) -> Host:
    return rig["node"]


@pytest.fixture(scope="module")
def profile(node: Host) -> dict[str, Any]:
    """The stand-in's profile, with more of what can be set."""
    data: dict[str, Any] = yaml.safe_load(node.read(f"{NODE}/profile.yaml"))
    data["host"] |= HOST
    data["driver_version"] = "580.159.04"
    data["gpus"] = {**data.get("gpus", {}), "power_limit_w": 650, "packages": PACKAGES}
    return data


def apply(rig: ProvisionRig, profile: dict[str, Any], *words: str, settled: bool = False) -> Run:
    """Run both roles."""
    plain = profile_from_dict(profile).profile.model_dump(mode="json")
    play = {
        "hosts": "all",
        "gather_facts": False,
        "vars": {"nodegate": {"profile": plain}, "kernel_settled": settled, "gpu_settled": settled},
        "roles": [{"role": name, "tags": [name]} for name in ("kernel", "gpu")],
    }
    path = rig.folder / "kernel_gpu.yml"
    path.write_text(yaml.safe_dump([play]))
    return rig.ansible(path, *words)


def judged(node: Host, profile: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """What the agent says of these roles' checks that do not pass."""
    node.write("/var/tmp/profile.yaml", yaml.safe_dump(profile))
    words = ["nodegate", "check", "--node", NODE, "--profile", "/var/tmp/profile.yaml", "--format", "json"]
    done = node.run([*words, "--sample-seconds", "0.2"])
    assert done.stdout, done.stderr
    bad: dict[str, list[dict[str, Any]]] = {}
    for result in json.loads(done.stdout)["results"]:
        if result["check"] in PLAYS and result["verdict"] not in ("PASS", "SKIP"):
            bad.setdefault(result["check"], []).append(result)
    return bad


def reboot(node: Host) -> None:
    node.reboot()
    for name in ("kernel", "gpu"):
        unit = ["systemctl", "is-active", f"nodegate-apply@{name}.service"]
        wait_for(f"{name} has been applied", lambda unit=unit: node.run(unit).stdout == "active\n")


def test_from_a_fresh_host_over_a_reboot(rig: ProvisionRig, node: Host, profile: dict[str, Any]) -> None:
    fresh = judged(node, profile)
    assert set(fresh) >= {"driver.packages", "gpu.mig", "host.sysctl", "host.kernel_args", "pci.acs"}
    node.must(["apt-get", "-qq", "update"])
    shown = apply(rig, profile, "--check", "--diff").must()
    assert shown.changed == {"node": 2} and "vm.swappiness: 60" in shown.output
    assert judged(node, profile).keys() == fresh.keys(), "check mode changes nothing"
    assert apply(rig, profile).must().changed == {"node": 2}
    waiting = judged(node, profile)
    assert set(waiting) <= {"host.kernel_args", "host.iommu", "host.modules_absent"}, waiting
    again = apply(rig, profile, "-v").must()
    assert again.changed == {"node": 0} and "kernel argument mitigations=off" in again.output, again.output
    reboot(node)
    assert judged(node, profile) == {}
    after = apply(rig, profile, settled=True).must()
    assert after.changed == {"node": 0}, after.output
    assert "tmpfs" in node.must(["findmnt", "--noheadings", "/models"])
    drop_in = "/etc/systemd/system/nodegate-engine@.service.d/60-nodegate-limits.conf"
    assert "LimitNOFILE=1048576" in node.read(drop_in)


DRIFT = f"""
set -e
sysctl -qw vm.swappiness=60
echo '[always] madvise never' > {SYS}/kernel/mm/transparent_hugepage/enabled
echo always > {SYS}/kernel/mm/transparent_hugepage/enabled
echo powersave > {SYS}/devices/system/cpu/cpu3/cpufreq/scaling_governor
echo powersave > {SYS}/module/pcie_aspm/parameters/policy
echo 100 > {SYS}/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages
for bridge in {SYS}/bus/pci/devices/*; do
    case $(cat $bridge/class) in 0x0604*) setpci -s $(basename $bridge) ECAP_ACS+6.w=5d:ff || true;; esac
done
printf '/swap.img file 8388604 0 -2\\n' >> /{HOME}/proc/swaps
echo '/swap.img none swap sw 0 0' >> /etc/fstab
modprobe -r nvidia_peermem
modprobe -r nvidia_uvm
modprobe nouveau
sed -i s/iommu=pt/iommu=off/ /boot/grub/grub.cfg /{HOME}/proc/cmdline
for file in {SYS}/kernel/iommu_groups/*/type; do echo DMA-FQ > $file; done
systemctl stop good.service
systemctl enable --now bad.service
umount /models
systemctl stop nvidia-fabricmanager.service nvidia-persistenced.service
systemctl disable nvidia-persistenced.service
nvidia-smi -pm 0
nvidia-smi -pl 400
nvidia-smi -mig 1
apt-mark unhold nvidia-fabricmanager
rm /etc/security/limits.d/60-nodegate.conf
"""


def test_drift_of_all_kinds_at_once(rig: ProvisionRig, node: Host, profile: dict[str, Any]) -> None:
    node.must(["sh", "-c", DRIFT])
    found = judged(node, profile)
    assert set(found) == set(PLAYS)
    for check, results in found.items():
        plays = {"kernel", "gpu"} if check == "host.services" else {PLAYS[check]}
        assert {result["action"]["play"] for result in results} == plays, check
    shown = apply(rig, profile, "--check", "--diff").must()
    for line in (
        "vm.swappiness: 60", "transparent huge pages: always", "CPU governor: performance, powersave",
        "PCIe power saving policy: powersave", "huge pages of 2048 kB: 100", "access control (ACS): 0000:",
        "swap space: /swap.img", "/etc/fstab swap: /swap.img none swap", "module nouveau: live",
        "kernel argument iommu=pt: iommu=off", "IOMMU: on", "service good.service: inactive",
        "service bad.service: active, enabled at boot", "/models: not mounted", "limits.d/60-nodegate.conf",
        "module nvidia_uvm: absent", "module nvidia_peermem: absent",
        "service nvidia-fabricmanager.service: inactive",
        "service nvidia-persistenced.service: inactive, disabled at boot", "gpu7 power limit: 400 W",
        "gpu0 persistence mode: Disabled", "gpu5 MIG mode: Enabled",
        f"package nvidia-fabricmanager: {VERSION}, not held",
    ):  # fmt: skip
        assert line in shown.output, f"{line}\n{shown.output[-6000:]}"
    assert apply(rig, profile, "--tags", "gpu").must().changed == {"node": 1}
    assert set(judged(node, profile)) == {check for check, play in PLAYS.items() if play == "kernel"}
    assert apply(rig, profile, "--tags", "kernel").must().changed == {"node": 1}
    assert set(judged(node, profile)) == {"host.kernel_args", "host.iommu"}
    reboot(node)
    assert judged(node, profile) == {}
    assert apply(rig, profile, settled=True).must().changed == {"node": 0}


def test_a_driver_that_is_loaded_again_gets_its_limits_back(node: Host) -> None:
    uuid = node.must(["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"]).split()[0]
    limit = ["nvidia-smi", "-i", uuid, "--query-gpu=power.limit", "--format=csv,noheader,nounits"]
    node.must(["nvidia-smi", "-i", uuid, "-pl", "500"])
    node.must(["systemctl", "restart", "nvidia-persistenced.service"])
    wait_for("the limit is back", lambda: node.must(limit).strip() == "650.00")


@pytest.mark.parametrize(
    ("change", "fault", "line"),
    [
        ({"host": {"sysctl": {"dev.iommu.enabled": 1}}}, None, "this kernel has no dev.iommu.enabled"),
        ({"gpus": {"power_limit_w": 900}}, None, "900 W cannot be: this GPU takes 200 to 700 W"),
        (
            {"gpus": {"packages": dict.fromkeys(PACKAGES, "580.159.04-9")}}, None,
            "no package source has nvidia-driver-580-server 580.159.04-9",
        ),
        (
            {"gpus": {"packages": OLDER}, "driver_version": "570.86.15"}, None, "Packages were downgraded",
        ),
        (
            {"host": {"kernel_args": ["mitigations=auto"]}},
            {"tool": "update-grub", "do": "fail", "message": "grub-probe: error: no device"},
            "update-grub: grub-probe: error: no device",
        ),
    ],
    ids=["sysctl", "power", "packages", "downgrade", "grub"],
)  # fmt: skip
def test_what_cannot_be_is_one_line(
    rig: ProvisionRig, node: Host, profile: dict[str, Any],
    change: dict[str, Any], fault: dict[str, Any] | None, line: str,
) -> None:  # fmt: skip
    rig.order_faults("node", *([fault] if fault else []))
    changed = dict(profile)
    for key, value in change.items():
        changed[key] = {**profile[key], **value} if isinstance(value, dict) else value
    run = apply(rig, changed, "--tags", "kernel" if "host" in change else "gpu")
    rig.order_faults("node")
    assert run.status != 0 and line in run.output.replace("\n", " "), run.output[-3000:]
