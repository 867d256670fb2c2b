"""Role bios under a real Ansible, over TLS, password from a vault; the BMC is the emulator (SIMULATED)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from bmc_emulator import PASSWORD, USER, BmcEmulator
from redfish_server import Certificates, make_certificates
from repo_files import ROOT

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]

PLAY = """
- hosts: all
  gather_facts: false
  roles: [bios]
"""
PROFILE = """
gpus: {{count: 0}}
nvlink: {{links_per_gpu: 0}}
fabric: {{kind: none}}
bmc:
  redfish: {{url: "{url}"}}
  bios: {{LogicalProc: Disabled}}
  bios_intent: {{numa_nodes_per_socket: 2, aspm: disabled, sriov: enabled}}
"""
ASKED = {
    "LogicalProc": "Disabled", "NumaNodesPerSocket": "2", "PcieAspmL1": "Disabled",
    "SriovGlobalEnable": "Enabled", "SysProfile": "Custom",
}  # fmt: skip


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("tls"))


@dataclass
class Site:
    """A site with one host, whose BMC is the emulator."""

    folder: Path
    bmc: BmcEmulator
    certificates: Certificates

    def play(self, *arguments: str, **variables: Any) -> tuple[int, dict[str, Any], str]:
        """Exit code, result of the role's task, and everything that was printed."""
        environment = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(self.folder),
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_CALLBACKS_ENABLED": "ansible.builtin.tree",
            "ANSIBLE_CALLBACK_TREE_DIR": str(self.folder / "results"),
            "ANSIBLE_FORKS": "1",
            "LC_ALL": "C.UTF-8",
        }
        given = {"nodegate_bmc_ca_file": str(self.certificates.ca), "nodegate_bmc_patience_s": 3, **variables}
        done = subprocess.run(
            [
                "ansible-playbook", "-i", self.folder / "hosts.yml", self.folder / "play.yml",
                "--vault-password-file", self.folder / "vault-key", "-e", json.dumps(given), *arguments,
            ],
            cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        printed = done.stdout + done.stderr
        assert PASSWORD not in printed
        last = self.folder / "results" / "b1"
        assert last.exists(), printed
        result = json.loads(last.read_text())
        assert PASSWORD not in last.read_text()
        return done.returncode, result, printed


@pytest.fixture
def site(tmp_path: Path, certificates: Certificates) -> Iterator[Site]:
    with BmcEmulator("dell", cpu="amd", certificate=certificates.here) as bmc:
        (tmp_path / "profiles").mkdir()
        (tmp_path / "profiles" / "all.yaml").write_text(PROFILE.format(url=bmc.url))
        (tmp_path / "vault-key").write_text("key of the test's vault")
        (tmp_path / "play.yml").write_text(PLAY)
        (tmp_path / "hosts.yml").write_text(_hosts(tmp_path))
        yield Site(tmp_path, bmc, certificates)


def _hosts(folder: Path) -> str:
    sealed = subprocess.run(
        [
            Path(sys.executable).parent / "ansible-vault", "encrypt_string",
            "--vault-password-file", folder / "vault-key", "--name", "nodegate_bmc_password", PASSWORD,
        ],
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "LC_ALL": "C.UTF-8"},
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    variables = f"ansible_connection: local\nnodegate_bmc_username: {USER}\n{sealed.stdout}"
    return "all:\n  hosts:\n    b1:\n" + "".join(f"      {line}\n" for line in variables.splitlines())


def test_from_check_mode_to_a_machine_that_runs_with_the_settings(site: Site) -> None:
    code, told, printed = site.play("--check", "--diff")
    assert (code, told["changed"], site.bmc.record.writes()) == (0, True, [])
    assert "-PcieAspmL1: Enabled" in printed and "+PcieAspmL1: Disabled" in printed

    code, told, _ = site.play("-vvv")
    assert (code, told["changed"], told["reboot_required"]) == (0, True, True)
    assert site.bmc.machine.pending == ASKED and site.bmc.machine.scheduled

    code, told, _ = site.play()
    assert (code, told["changed"], told["reboot_required"]) == (0, False, True)
    assert told["pending"] == sorted(ASKED)

    code, told, _ = site.play(bios_allow_reset=True)
    assert (code, told["changed"], told["reboot_required"], told["drift"] != []) == (0, True, False, True)
    assert site.bmc.machine.resets == ["GracefulRestart"]
    assert site.bmc.machine.bios | ASKED == site.bmc.machine.bios

    code, told, printed = site.play("--diff", bios_allow_reset=True)
    assert (code, told["changed"], told["drift"]) == (0, False, [])
    assert "changed=0" in printed
    assert site.bmc.record.leaks == []


def test_failures_are_one_line_and_nothing_is_written(site: Site, tmp_path: Path) -> None:
    def line(**variables: Any) -> str:
        code, told, _ = site.play("-vvv", **variables)
        assert code != 0 and not told["changed"]
        assert "\n" not in told["msg"] and site.bmc.record.writes() == []
        return str(told["msg"])

    assert "certificate is refused" in line(nodegate_bmc_ca_file=str(site.certificates.other_ca))
    assert "nodegate_bmc_ca_file" in line(nodegate_bmc_ca_file=str(tmp_path / "none.pem"))
    site.bmc.faults.add("drop-handshake")
    assert "no usable answer" in line()
    site.bmc.faults.clear()
    site.bmc.faults.add("hang", "*/Bios*")
    assert "no answer in" in line()
    site.bmc.faults.clear()
    assert "nodegate_bmc_patience_s: is no number" in line(nodegate_bmc_patience_s="long")
    assert "refuses user and password" in line(nodegate_bmc_username="stranger")
