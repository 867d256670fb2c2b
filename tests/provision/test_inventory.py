"""The example inventory: every host's profile is valid, and its words about secrets work as they stand."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import yaml
from repo_files import ROOT

from agent.launch.preset import preset_names
from agent.profile_loader import load_profile
from agent.provision.profile_vars import profile_vars

SITE = ROOT / "inventories" / "example"
PROFILES = SITE / "profiles"


@cache
def groups_of() -> dict[str, list[str]]:
    """Groups of each host of the example as Ansible orders them, less `all`."""
    from ansible.inventory.helpers import sort_groups
    from ansible.inventory.manager import InventoryManager
    from ansible.parsing.dataloader import DataLoader

    inventory = InventoryManager(DataLoader(), [str(SITE / "hosts.yml")])
    return {
        host.name: [group.name for group in sort_groups(host.get_groups()) if group.name != "all"]
        for host in inventory.get_hosts()
    }


@cache
def profile(host: str) -> dict:
    return profile_vars(PROFILES, host, groups_of()[host])["profile"]


def nodes() -> list[str]:
    return [host for host, groups in groups_of().items() if "nodes" in groups]


def test_every_node_has_a_valid_profile_of_its_own() -> None:
    for host in nodes():
        found = profile_vars(PROFILES, host, groups_of()[host])
        assert found["profile"]["node"] == host
        assert found["layers"][-1].endswith(f"/{host}.yaml")
        assert "fault" not in found


def test_what_the_node_gets_is_the_same_profile(tmp_path: Path) -> None:
    """The text for /etc/nodegate/profile.yaml is whole by itself, on a node without the site's layers."""
    for host in ("d1-b300-1", "d4-h20-2", "d2b-gb10-07"):
        found = profile_vars(PROFILES, host, groups_of()[host])
        alone = tmp_path / "profile.yaml"
        alone.write_text(found["rendered"])
        assert load_profile(alone).hash == found["hash"]


@pytest.mark.parametrize(
    ("deployment", "count", "platform", "gpus"),
    [("d1", 1, "b300", 8), ("d2", 16, "h200", 8), ("d2b", 16, "gb10", 1), ("d3", 1, "b300", 16),
     ("d4", 2, "h20", 8), ("d5", 2, "b300", 8)],
)  # fmt: skip
def test_deployments(deployment: str, count: int, platform: str, gpus: int) -> None:
    hosts = [host for host in nodes() if deployment in groups_of()[host]]
    assert len(hosts) == count
    for host in hosts:
        data = profile(host)
        assert (data["platform"], data["gpus"]["count"], data["mode"]) == (platform, gpus, "manage")
        presets = [engine["launch"]["preset"] for engine in data["engines"].values()]
        assert presets and all(
            name in preset_names() and name.startswith(f"{deployment}-") for name in presets
        )


def test_what_is_special_about_each() -> None:
    assert profile("d1-b300-1")["bmc"]["cooling"]["outlet_max_c"] == 35
    assert len(profile("d3-b300-1")["engines"]) == len(profile("d3-b300-1")["nvlink"]["domains"]) == 2
    heads = [profile(host)["engines"]["kimi"]["group"] for host in ("d4-h20-1", "d4-h20-2")]
    assert [group["rank"] for group in heads] == [0, 1]
    assert heads[0]["members"] == heads[1]["members"] and len(heads[0]["members"]) == 2
    assert profile("d4-h20-1")["engines"]["kimi"]["host"] == "127.0.0.1"
    assert profile("d5-b300-2")["fabric"]["kind"] == "ib"
    ranks = [profile(f"d2b-gb10-{i:02}")["engines"]["kimi"]["group"]["rank"] for i in range(1, 17)]
    assert ranks == list(range(16))


def test_addresses_are_examples_and_there_are_no_pins_and_no_secrets() -> None:
    text = "".join(path.read_text() for path in sorted(SITE.rglob("*")) if path.is_file())
    for address in re.findall(r"\b\d+\.\d+\.\d+\.\d+\b", text):
        # A driver version (580.95.05) has three parts; 198.51.100.x is the data network.
        assert address.startswith(("192.0.2.", "198.51.100.")), address
    for url in re.findall(r"https?://[^\"\s}]+", text):
        assert url.endswith(".example"), url
    assert not list(PROFILES.glob("*.pins.yaml"))
    assert not (SITE / "group_vars" / "all" / "vault.yml").exists()
    assert all(
        profile(host)["bmc"]["redfish"]["url"] == f"https://bmc-{host}.example"
        for host in nodes()
        if profile(host)["platform"] != "gb10"
    )


def _commands() -> list[str]:
    """The lines of the section on secrets that are commands."""
    section = (ROOT / "inventories" / "README.md").read_text().partition("## Secrets\n")[2]
    return [line[4:] for line in section.splitlines() if line.startswith("    ")]


@pytest.mark.root
def test_the_words_about_secrets_work_as_they_stand(tmp_path: Path) -> None:
    """Every command of the README, in its order, with an editor that writes the secret."""
    site = tmp_path / "inventories" / "SITE"
    shutil.copytree(SITE, site)
    editor = tmp_path / "editor"
    secret = "s3cret-of-the-test"
    editor.write_text(f"#!/bin/sh\nsed -i 's/the BMC.s password/{secret}/' \"$1\"\n")
    editor.chmod(0o755)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "HOME": str(tmp_path), "EDITOR": str(editor), "PATH": path}
    commands = _commands()
    making, using = commands[:5], commands[5:]
    done = subprocess.run(
        ["bash", "-euc", "\n".join(making)],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    key = tmp_path / ".config" / "nodegate" / "vault.key"
    assert key.stat().st_mode & 0o777 == 0o600
    vault = site / "group_vars" / "all" / "vault.yml"
    assert vault.read_text().startswith("$ANSIBLE_VAULT;1.1;AES256\n")
    files = [file for file in tmp_path.rglob("*") if file.is_file() and file != editor]
    assert not [file for file in files if secret in file.read_text("latin1")]
    assert _opened(vault, key)["nodegate_bmc_password"] == secret
    assert [line.split()[0] for line in using] == ["nodegate", "export"]
    shown = subprocess.run(
        ["bash", "-euc", f"{using[1]}; ansible-vault view {vault}"],
        cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert secret in shown.stdout


def _opened(vault: Path, key: Path) -> dict:
    """The vault's content, by Ansible's own code."""
    from ansible.parsing.dataloader import DataLoader
    from ansible.parsing.vault import FileVaultSecret, VaultLib

    loader = DataLoader()
    secret = FileVaultSecret(filename=str(key), loader=loader)
    secret.load()
    return yaml.safe_load(VaultLib([("default", secret)]).decrypt(vault.read_bytes()))
