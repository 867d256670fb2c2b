"""Role firmware under a real Ansible: BMC emulator over TLS, stand-in NICs and their tools. SIMULATED."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from bmc_emulator import PASSWORD, USER, BmcEmulator, Times, make_image
from redfish_server import Certificates, make_certificates
from repo_files import ROOT
from standin_seed import FIRST_FIRMWARE, HOME, PSID, make_common, make_own, nic_image

pytestmark = [pytest.mark.root, pytest.mark.timeout(900)]

NEW = "28.43.2566"
PLAY = """
- hosts: all
  gather_facts: false
  tasks:
    - block:
        - ansible.builtin.import_role:
            name: firmware
      always:
        - ansible.builtin.copy:
            content: >-
              {{ {'bmc': firmware_result | default({}), 'nic': firmware_nic_result | default({})} | to_json }}
            dest: "{{ inventory_dir }}/results.json"
            mode: "0600"
          check_mode: false
"""
GPU = "HGX_FW_GPU_SXM_1"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("tls"))


@dataclass
class Site:
    """A site with one host, whose BMC is the emulator and whose NICs are stand-ins."""

    folder: Path
    bmc: BmcEmulator
    certificates: Certificates

    @property
    def machine(self) -> dict[str, Any]:
        return dict(json.loads((self.folder / "root" / HOME / "machine.json").read_text()))

    def cards(self, what: str) -> set[str]:
        """Burned or running versions of all cards."""
        return {nic[what] for nic in self.machine["nics"].values()}

    def play(self, *arguments: str, **variables: Any) -> tuple[int, dict[str, Any], str]:
        """Exit code, results of the two tasks, and everything that was printed."""
        tools = self.folder / "root/usr/local/sbin"
        environment = {
            "PATH": f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "STANDIN": str(self.folder / "root" / HOME),
            "HOME": str(self.folder),
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_FORKS": "1",
            "LC_ALL": "C.UTF-8",
        }
        given = {"nodegate_bmc_patience_s": 30, **variables}
        done = subprocess.run(
            ["ansible-playbook", "-i", "hosts.yml", "play.yml", "-e", json.dumps(given), *arguments],
            cwd=self.folder, env=environment, capture_output=True, text=True, timeout=400,
        )  # fmt: skip
        printed = done.stdout + done.stderr
        assert PASSWORD not in printed
        written = self.folder / "results.json"
        assert written.exists(), printed
        told = json.loads(written.read_text())
        assert PASSWORD not in written.read_text()
        written.unlink()
        return done.returncode, told, printed


def _image(folder: Path, name: str, data: bytes) -> dict[str, str]:
    (folder / name).write_bytes(data)
    return {"image": name, "sha256": hashlib.sha256(data).hexdigest()}


def _profile(folder: Path, url: str) -> dict[str, Any]:
    hgx = {"HGX_FW_GPU_SXM_*": "97.10.1A.00.01"}
    ports = [{"device": f"mlx5_{n}", "netdev": f"eth{n}", "rate_gbps": 400} for n in range(2)]
    nic = {"board_id": PSID, "version": NEW, **_image(folder, "cx7.bin", nic_image(PSID, NEW).encode())}
    baseboard = {
        "kind": "hgx",
        "versions": hgx,
        "activation": "ac_power_cycle",
        **_image(folder, "hgx.fwpkg", make_image(hgx)),
    }
    return {
        "gpus": {"count": 0},
        "nvlink": {"links_per_gpu": 0},
        "fabric": {"kind": "roce", "ports": ports, "nic": {"images": [nic]}},
        "bmc": {"redfish": {"url": url}, "images": {"hgx": baseboard}},
    }


@pytest.fixture
def site(tmp_path: Path, certificates: Certificates, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.syspath_prepend(ROOT / "tests/standin/machine")
    times = Times(post_s=60.0, off_s=10.0, bmc_start_s=60.0, task_s=120.0)
    with BmcEmulator("generic", certificate=certificates.here, times=times) as bmc:
        make_common(tmp_path / "root")
        make_own(tmp_path / "own", "b1", 1)
        shutil.copytree(tmp_path / "own", tmp_path / "root", dirs_exist_ok=True)
        (tmp_path / "profiles").mkdir()
        (tmp_path / "profiles/all.yaml").write_text(yaml.safe_dump(_profile(tmp_path, bmc.url)))
        (tmp_path / "play.yml").write_text(PLAY)
        variables = {
            "ansible_connection": "local",
            "nodegate_bmc_username": USER,
            "nodegate_bmc_password": PASSWORD,
            "nodegate_bmc_ca_file": str(certificates.ca),
            "nodegate_sys_root": str(tmp_path / "root" / HOME / "sys"),
        }
        (tmp_path / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": {"b1": variables}}}))
        yield Site(tmp_path, bmc, certificates)
        assert bmc.record.leaks == []


BY_BMC, BY_FLINT = "bmc", "nic"


def test_from_check_mode_to_a_node_that_runs_it(site: Site) -> None:
    code, told, _ = site.play("--check", "--diff")
    assert code == 0, told
    assert (site.bmc.record.writes(), site.cards("burned")) == ([], {FIRST_FIRMWARE})
    assert told[BY_BMC]["changed"] and told[BY_FLINT]["changed"]
    assert f"{GPU}: 96.00.89.00.01" in told[BY_BMC]["diff"]["before"]
    assert f"firmware: {NEW}" in told[BY_FLINT]["diff"]["after"]

    code, told, _ = site.play()
    assert code == 0
    assert told[BY_BMC]["pending"] == ["hgx (ac_power_cycle)"] and told[BY_BMC]["reboot_required"]
    assert told[BY_FLINT]["changed"] and told[BY_FLINT]["reboot_required"]
    assert (NEW in site.cards("burned"), NEW in site.cards("running")) == (True, False)

    site.bmc.record.clear()
    code, told, _ = site.play()
    assert (code, told[BY_BMC]["changed"], told[BY_FLINT]["changed"]) == (0, False, False)
    assert site.bmc.record.writes() == []

    code, told, _ = site.play(firmware_allow_reset=True)
    assert code == 0 and told[BY_BMC]["activated"]
    assert site.bmc.machine.firmware[GPU].version == "97.10.1A.00.01"
    assert NEW in site.cards("running")

    code, told, _ = site.play(firmware_allow_reset=True)
    assert [told[name]["changed"] for name in (BY_BMC, BY_FLINT)] == [False, False]
    assert [told[name]["pending"] for name in (BY_BMC, BY_FLINT)] == [[], []]


def test_a_nic_image_with_another_hash_is_not_copied_and_nothing_is_burned(site: Site) -> None:
    (site.folder / "cx7.bin").write_text(nic_image(PSID, "28.99.1"))
    for arguments in (["--check"], []):
        code, told, _ = site.play(*arguments)
        assert code != 0 and told[BY_FLINT].get("failed"), told
        assert "SHA-256 is" in told[BY_FLINT]["msg"] and "\n" not in told[BY_FLINT]["msg"]
    assert site.cards("burned") == {FIRST_FIRMWARE}


def test_a_certificate_that_nobody_vouches_for(site: Site) -> None:
    code, told, _ = site.play(nodegate_bmc_ca_file="/etc/ssl/certs/ca-certificates.crt")
    assert code != 0 and told[BY_BMC]["failed"] and "\n" not in told[BY_BMC]["msg"]
    assert site.bmc.record.writes() == []
