"""The vars plugin: layers in Ansible's order, the right site, a fault for one host, nothing read in vain."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from repo_files import ROOT

from agent.errors import ConfigError
from agent.fleet.targets import BESIDE
from agent.provision import profile_vars as module

PLUGIN = ROOT / "playbooks" / "vars_plugins" / "nodegate_profile.py"
HOSTS = """
all:
  children:
    region:
      children:
        zebra: {hosts: {n1: {}}}
        apple: {hosts: {n1: {}, n2: {}}}
"""
NODE = "gpus: {count: 0}\nnvlink: {links_per_gpu: 0}\nfabric: {kind: none}\n"


def plugin() -> Any:
    """A fresh instance of the plugin class."""
    spec = importlib.util.spec_from_file_location("nodegate_profile_tested", PLUGIN)
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded.VarsModule()


def inventory(*sources: Path) -> Any:
    from ansible.inventory.manager import InventoryManager
    from ansible.parsing.dataloader import DataLoader

    return InventoryManager(DataLoader(), [str(source) for source in sources])


def site(folder: Path, layers: dict[str, str], hosts: str = HOSTS) -> Path:
    """A site with these layers."""
    (folder / "profiles").mkdir(parents=True)
    (folder / "hosts.yml").write_text(hosts)
    for name, text in layers.items():
        (folder / "profiles" / f"{name}.yaml").write_text(text)
    return folder


def ask(one: Any, folder: Path, host: Any) -> dict[str, Any]:
    return one.get_vars(None, str(folder), [host])


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Hosts whose profile was merged anew."""
    seen: list[str] = []
    real = module._load
    monkeypatch.setattr(
        module, "_load", lambda folder, host, files: (seen.append(host), real(folder, host, files))[1]
    )
    module._known.clear()
    yield seen
    module._known.clear()


def test_layers_have_the_order_of_groups(tmp_path: Path) -> None:
    order = ["all", "region", "apple", "zebra", "n1.pins", "n1"]
    swap = {
        name: f"host: {{sysctl: {{vm.swappiness: {i}, vm.layer{i}: {i}}}}}\n" for i, name in enumerate(order)
    }
    folder = site(tmp_path / "s", {**swap, "all": NODE + swap["all"]})
    hosts = inventory(folder / "hosts.yml")
    found = ask(plugin(), folder, hosts.get_host("n1"))["nodegate"]
    names = [Path(layer).stem for layer in found["layers"]]
    assert names == order
    sysctl = {"vm.swappiness": 5, **{f"vm.layer{i}": i for i in range(6)}}
    assert found["profile"]["host"]["sysctl"] == sysctl
    assert found["site"] == str(folder) and len(found["hash"]) == 64
    assert "vm.swappiness: 5" in found["rendered"]
    other = ask(plugin(), folder, hosts.get_host("n2"))["nodegate"]
    assert [Path(layer).stem for layer in other["layers"]] == ["all", "region", "apple"]
    assert other["pins_file"] == str(folder / "profiles" / "n2.pins.yaml")


def test_priority_of_a_group_counts(tmp_path: Path) -> None:
    first = "a: {hosts: {n1: {}}, vars: {ansible_group_priority: 9}}"
    hosts = f"all:\n  children:\n    {first}\n    b: {{hosts: {{n1: {{}}}}}}\n"
    folder = site(tmp_path / "s", {"a": NODE, "b": NODE}, hosts)
    found = ask(plugin(), folder, inventory(folder / "hosts.yml").get_host("n1"))["nodegate"]
    assert [Path(layer).stem for layer in found["layers"]] == ["b", "a"]


def test_a_bad_profile_stops_its_host_alone(tmp_path: Path, loads: list[str]) -> None:
    folder = site(tmp_path / "s", {"all": NODE, "n1": "gpus: {cuont: 3}\n"})
    hosts, one = inventory(folder / "hosts.yml"), plugin()
    for _ in range(3):
        bad = ask(one, folder, hosts.get_host("n1"))["nodegate"]
    assert set(bad) == {"fault", "site"}
    assert (
        f"{folder}/profiles/n1.yaml:1" in bad["fault"]
        and "\n" not in bad["fault"]
        and "count" in bad["fault"]
    )
    assert "profile" in ask(one, folder, hosts.get_host("n2"))["nodegate"]
    assert loads == ["n1", "n2"]


def test_a_host_without_any_layer_is_told(tmp_path: Path) -> None:
    folder = site(tmp_path / "s", {})
    found = ask(plugin(), folder, inventory(folder / "hosts.yml").get_host("n2"))["nodegate"]
    assert "n2 has no profile" in found["fault"] and "n2.yaml" in found["fault"]


def test_it_is_read_again_only_when_a_layer_changes(tmp_path: Path, loads: list[str]) -> None:
    folder = site(tmp_path / "s", {"all": NODE})
    host, one = inventory(folder / "hosts.yml").get_host("n1"), plugin()
    first = ask(one, folder, host)["nodegate"]
    assert ask(one, folder, host)["nodegate"] == first and loads == ["n1"]
    file = folder / "profiles" / "all.yaml"
    file.write_text(NODE + "host: {swap: false}\n")
    assert ask(one, folder, host)["nodegate"]["hash"] != first["hash"]
    (folder / "profiles" / "n1.pins.yaml").write_text("host: {swap: true}\n")
    assert ask(one, folder, host)["nodegate"]["hash"] not in (first["hash"],)
    assert loads == ["n1"] * 3


def test_of_several_inventories_the_one_that_lists_the_host_counts(tmp_path: Path) -> None:
    both = "host: {sysctl: {vm.swappiness: %d}}\n"
    one = site(tmp_path / "a", {"all": NODE + both % 1})
    two = site(tmp_path / "b", {"all": NODE + both % 2}, "all: {hosts: {n9: {}, n1: {}}}\n")
    hosts = inventory(one / "hosts.yml", two / "hosts.yml")
    plug = plugin()
    found = [ask(plug, folder, hosts.get_host(name)) for name in ("n1", "n9") for folder in (one, two)]
    assert [bool(given) for given in found] == [True, False, False, True]
    assert found[0]["nodegate"]["site"] == str(one) and found[3]["nodegate"]["site"] == str(two)


def test_groups_and_folders_without_profiles_get_nothing(tmp_path: Path) -> None:
    folder = site(tmp_path / "s", {"all": NODE})
    hosts = inventory(folder / "hosts.yml")
    assert plugin().get_vars(None, str(folder), [hosts.groups["apple"]]) == {}
    assert ask(plugin(), ROOT / "playbooks", hosts.get_host("n1")) == {}


def test_a_large_inventory_costs_what_is_asked_for(tmp_path: Path, loads: list[str]) -> None:
    """Through Ansible's own variable manager: one of 1000 hosts reads one profile."""
    from ansible.plugins.loader import vars_loader
    from ansible.vars.manager import VariableManager

    names = [f"h{i:04}" for i in range(1000)]
    folder = site(tmp_path / "s", {"all": NODE}, json.dumps({"all": {"hosts": dict.fromkeys(names)}}))
    hosts = inventory(folder / "hosts.yml")
    hosts.subset("h0500")
    vars_loader.add_directory(str(PLUGIN.parent))
    manager = VariableManager(loader=hosts._loader, inventory=hosts)
    manager._safe_basedir = str(folder)
    (host,) = hosts.get_hosts()
    assert manager.get_vars(host=host)["nodegate"]["profile"]["gpus"]["count"] == 0
    assert manager.get_vars(host=host)["nodegate"]["site"] == str(folder)
    assert loads == ["h0500"]


@pytest.mark.root
def test_ansible_finds_it_from_anywhere_and_templates_nothing(tmp_path: Path) -> None:
    """One real run, with the folder as the inventory, from another folder; a profile holds no templates."""
    sly = 'engines: {e: {gpus: [], port: 1, canary: {prompt: "{{ 6 * 7 }}"}}}\n'
    folder = site(tmp_path / "s", {"all": NODE + sly, "n2": "gpus: {count: many}\n"})
    (tmp_path / "elsewhere").mkdir()
    env = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "HOME": str(tmp_path)}
    script = Path(sys.executable).parent / "ansible-inventory"
    done = subprocess.run(
        [str(script), "-i", str(folder), "--list"],
        cwd=tmp_path / "elsewhere", env=env, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    given = json.loads(done.stdout)["_meta"]["hostvars"]
    prompt = given["n1"]["nodegate"]["profile"]["engines"]["e"]["canary"]["prompt"]
    assert prompt == {"__ansible_unsafe": "{{ 6 * 7 }}"}
    assert "n2.yaml:1" in given["n2"]["nodegate"]["fault"]["__ansible_unsafe"]
    assert "WARNING" not in done.stderr, done.stderr


@pytest.mark.parametrize("name", ["../n1", "n1.pins", ".n1"])
def test_a_name_that_would_be_another_file_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "all.yaml").write_text("{}\n")
    with pytest.raises(ConfigError, match="cannot be the name of a host's layer"):
        module.layer_files(tmp_path, name, [])


@pytest.mark.parametrize("play", ["site", "verify", "pins", "upgrade_agent"])
def test_plays_for_nodes_leave_machines_beside_them_alone(play: str) -> None:
    (found,) = yaml.safe_load((ROOT / "playbooks" / f"{play}.yml").read_text())
    assert all(f"'{group}'" in found["hosts"] for group in BESIDE)
