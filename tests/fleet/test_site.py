"""The inventory as fleet commands read it: Ansible's rules for variables, profiles remembered."""

from __future__ import annotations

from pathlib import Path

import pytest
from repo_files import ROOT

from agent.errors import ConfigError
from agent.fleet import profile_facts
from agent.fleet.profile_facts import FactsStore
from agent.fleet.site import Site, read_site
from agent.provision.profile_vars import profile_vars

CONFIG = ROOT / "ansible.cfg"
HOSTS = """
all:
  vars: {nodegate_min_ready: 1, domain: example}
  children:
    nodes:
      vars: {nodegate_pool: inline}
      hosts:
        n1: {ansible_host: 192.0.2.1}
        n2: {ansible_host: "{{ inventory_hostname }}.{{ domain }}", nodegate_maintain_at_once: 3}
    loadbalancers: {hosts: {lb: {}}}
"""
LAYER = """
platform: generic-8gpu
gpus: {count: 0}
nvlink: {links_per_gpu: 0}
fabric: {kind: none}
mode: gate
engines: {main: {gpus: [], port: 8000, launch: {model: sim}}}
"""


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ANSIBLE_CONFIG", str(CONFIG))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    site = tmp_path / "site"
    (site / "profiles").mkdir(parents=True)
    (site / "hosts.yml").write_text(HOSTS)
    (site / "profiles/all.yaml").write_text(LAYER)
    (site / "profiles/n1.yaml").write_text("node: first\napi: {port: 9000}\n")
    (site / "profiles/n2.yaml").write_text("node: n2\n")
    return site


def read(folder: Path, limit: str | None = None) -> Site:
    return read_site([folder], limit, CONFIG)


def test_addresses_ports_and_variables_are_those_of_the_plays(folder: Path) -> None:
    (folder / "group_vars/nodes").mkdir(parents=True)
    (folder / "group_vars/nodes/pool.yml").write_text("nodegate_pool: files\n")
    (folder / "group_vars/nodes/vault.yml").write_text("$ANSIBLE_VAULT;1.1;AES256\n6162\n")
    (folder / "host_vars").mkdir()
    (folder / "host_vars/n1.yml").write_text("nodegate_min_ready: 50%\n")
    site = read(folder)
    assert site.asked == ("n1", "n2")
    n1, n2 = site.hosts.values()
    assert (n1.address, n1.port, n1.node) == ("192.0.2.1", 9000, "first")
    assert (n2.address, n2.port, n2.node) == ("n2.example", 9470, "n2")
    assert (n1.given["nodegate_min_ready"], n2.given["nodegate_min_ready"]) == ("50%", 1)
    assert n2.given["nodegate_maintain_at_once"] == 3
    assert [(one.engine, one.pool, one.hosts) for one in site.instances] == [
        ("main", "files", ("n1",)),
        ("main", "files", ("n2",)),
    ]
    assert n1.facts.hash == profile_vars(folder / "profiles", "n1", ["nodes"])["hash"]


def test_a_limit_leaves_the_others_in_the_site(folder: Path) -> None:
    site = read(folder, "n2")
    assert site.asked == ("n2",) and list(site.hosts) == ["n1", "n2"]
    with pytest.raises(ConfigError, match="no host of it matches --limit zebra"):
        read(folder, "zebra")


def test_a_bad_profile_is_a_fault_of_its_host_alone(folder: Path) -> None:
    (folder / "profiles/n2.yaml").write_text("nood: n2\n")
    site = read(folder)
    assert "nood" in site.hosts["n2"].facts.fault and not site.hosts["n1"].facts.fault


def test_a_host_name_that_looks_like_a_template_is_a_name(tmp_path: Path) -> None:
    """What a garbled inventory holds is told of as a host, not as a defect of nodegate."""
    (tmp_path / "garbage").write_text("n1\n{{{\n")
    assert [host.address for host in read(tmp_path / "garbage").hosts.values()] == ["n1", "{{{"]


def test_an_inventory_without_profiles_has_the_default_port(folder: Path) -> None:
    for file in (folder / "profiles").iterdir():
        file.unlink()
    (folder / "profiles").rmdir()
    site = read(folder)
    assert {host.port for host in site.hosts.values()} == {9470} and site.instances == ()


def test_profiles_are_worked_out_once_and_anew_when_a_layer_changes(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worked: list[Path] = []
    original = FactsStore._worked_out

    def counted(self, layers):
        worked.append(layers[-1])
        return original(self, layers)

    monkeypatch.setattr(profile_facts.FactsStore, "_worked_out", counted)
    first = read(folder)
    assert [path.name for path in worked] == ["n1.yaml", "n2.yaml"]
    assert read(folder) == first and len(worked) == 2
    (folder / "profiles/n2.yaml").write_text("node: n2\napi: {port: 9100}\n")
    assert read(folder).hosts["n2"].port == 9100 and [path.name for path in worked[2:]] == ["n2.yaml"]


@pytest.mark.parametrize(
    "spoilt", ["", "{", "[]", '{"meaning": 1}', '{"meaning": MEANING, "hosts": {"n1": {"state": []}}}']
)
def test_a_spoilt_cache_is_no_evidence(folder: Path, tmp_path: Path, spoilt: str) -> None:
    import json

    first = read(folder)
    (file,) = (tmp_path / "cache/nodegate/fleet").iterdir()
    meaning = json.loads(file.read_text())["meaning"]
    file.write_text(spoilt.replace("MEANING", json.dumps(meaning)))
    assert read(folder) == first


def test_groups_of_the_example_site_are_one_instance_each() -> None:
    site = read(ROOT / "inventories/example", "d4-h20-2")
    assert site.mates("d4-h20-2") == ("d4-h20-1", "d4-h20-2")
    ours = [one for one in site.instances if "d4-h20-1" in one.hosts]
    assert [(one.head, one.strangers) for one in ours] == [("d4-h20-1", ())]
    assert not [host.name for host in site.hosts.values() if host.facts.fault]
