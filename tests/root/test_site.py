"""A site of eight fresh hosts and their BMCs: brought up by `nodegate fleet bringup`, proven, and kept so.

Hosts, GPUs, NICs and BMCs are SIMULATED (tests/README.md); Ansible, ssh, systemd, TLS and vault are real.
While the runs go on, every process of this machine and of the hosts is looked at for secrets.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pytest
import yaml
from fleet_kit import BMC_FILE, ENGINE_FILE, GROUP_FILE, LOUD, Fleet, Hidden, read_until
from nspawn_rig import Host, wait_for
from process_watch import ProcessWatch
from site_kit import Site, site_of

pytestmark = [pytest.mark.root, pytest.mark.timeout(3600)]
NAMES = tuple(f"n{number}" for number in range(1, 9))
API_PORT = 9470
PHASES = ("bios", "firmware", "kernel", "gpu", "nic", "pins", "nccl_topology", "engine", "agent", "verify")


class Town(NamedTuple):
    """A site, runs over it, its secrets and who looks for them."""

    site: Site
    fleet: Fleet
    hidden: Hidden
    watch: ProcessWatch


@pytest.fixture(scope="module")
def town() -> Iterator[Town]:
    with site_of(*NAMES) as site:
        layer = site.inventory / "profiles/all.yaml"
        tree = yaml.safe_load(layer.read_text())
        tree["engines"]["main"]["launch"]["env_file"] = ENGINE_FILE
        site.layer("all", tree)
        hidden = Hidden(site)
        with ProcessWatch(hidden.all) as watch:
            yield Town(site, Fleet(site), hidden, watch)


def serves(host: Host) -> bool:
    return host.get(API_PORT, "/readyz/main")[0] == 200


def test_bringup_tells_each_phase_and_every_node_serves(town: Town) -> None:
    run = town.fleet.begin()
    said = read_until(run, r"^n1: bios: ")
    assert run.poll() is None, "progress comes while it runs"
    said = town.fleet.finish(run, said, within_s=3000)
    assert run.returncode == 0, said[-6000:]
    for name in NAMES:
        for phase in PHASES:
            assert re.search(rf"^{name}: {phase}: (ok|\d+ changed) \(\d+\.\d s\)$", said, re.MULTILINE), said
        assert re.search(rf"{name}\s+ok\s+verify\s+\d+\s+\d+\.\d", said), said
    # The canary is through before anybody else is touched.
    assert said.index("n1: verify: ok") < said.index("n2: bios: ")
    assert all(serves(town.site.rig[name]) for name in NAMES)


def test_the_second_run_changes_nothing(town: Town) -> None:
    run = town.site.play("site.yml").must()
    assert run.changed == dict.fromkeys(NAMES, 0), run.output[-6000:]


def test_one_bad_profile_stops_that_host_alone(town: Town) -> None:
    path = town.site.inventory / "profiles/n5.yaml"
    good = path.read_text()
    path.write_text(good + "gpuss: {}\n")
    try:
        run = town.site.play(
            "site.yml", "--check", "--tags", "kernel", "-e", "nodegate_max_fail_percentage=99"
        )
    finally:
        path.write_text(good)
    failed = {name for name, tally in run.hosts.items() if tally.failed}
    assert failed == {"n5"} and run.status != 0
    assert "gpuss: unknown key; did you mean gpus?" in run.output


def test_a_second_run_at_the_same_time_is_refused(town: Town) -> None:
    first = town.fleet.begin("--check", "--limit", "n1")
    said = read_until(first, r"^n1: inventory|^n1: agent|^n1: bios")
    second = town.fleet.begin("--check", "--limit", "n1")
    refused = town.fleet.finish(second, within_s=60)
    assert second.returncode == 3 and first.poll() is None
    assert "another fleet run on this inventory is going on" in refused, refused
    said = town.fleet.finish(first, said)
    assert first.returncode == 0 and re.search(r"n1\s+ok\s+\S+\s+0\s", said), said


def test_ctrl_c_ends_it_soon_and_leaves_nothing(town: Town) -> None:
    run = town.fleet.begin("--limit", "n1")
    said = read_until(run, r"^n1: ")
    os.killpg(run.pid, signal.SIGINT)
    said = town.fleet.finish(run, said, within_s=60)
    assert run.returncode == 130, said
    assert "stopped by the operator; run again to go on" in " ".join(said.split()), said
    mine = str(town.site.inventory).encode()

    def left() -> list[bytes]:
        return [one for one in town.watch.now() if mine in one and b"ansible" in one]

    wait_for("Ansible's end", lambda: not left(), 10)
    assert not [*town.fleet.temporary.glob("nodegate-fleet-*")]
    folder = os.open(town.site.inventory, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(folder)


def test_ansible_alone_says_no_secret_even_with_its_loudest_voice(town: Town) -> None:
    """The host as second rank of a model over two nodes; ansible-playbook's own output has no redaction."""
    site, layer = town.site, town.site.inventory / "profiles/n8.yaml"
    good = layer.read_text()
    members = [{"node": "n0", "address": "198.51.100.99"}, {"node": "n8", "address": site.rig.address("n8")}]
    group = {"rank": 1, "members": members, "key_file": GROUP_FILE}
    layer.write_text(good + yaml.safe_dump({"engines": {"main": {"group": group}}}))
    only = ["--limit", "n8", "--tags", "bios,engine,agent", "--skip-tags", "verify", "-vvv", "--diff"]
    town.fleet.said += [site.play("site.yml", *only, *more).output for more in (["--check"], [])]
    assert GROUP_FILE in town.fleet.said[-1], town.fleet.said[-1][-5000:]
    assert town.hidden.group in site.rig["n8"].read(GROUP_FILE)
    layer.write_text(good)
    back = town.fleet.begin("--limit", "n8", "--tags", "agent", **LOUD)
    said = town.fleet.finish(back)
    assert back.returncode == 0, said[-5000:]


def test_all_of_it_outlives_a_reboot(town: Town) -> None:
    """The network namespaces are made anew, volatile settings are lost, and nobody runs a role."""
    hosts = [town.site.rig[name] for name in NAMES]
    with ThreadPoolExecutor(len(hosts)) as pool:
        list(pool.map(lambda host: host.reboot(), hosts))
    for host in hosts:
        wait_for(f"{host.name} to serve", lambda host=host: serves(host), 180)
    run = town.site.play("verify.yml").must()
    assert run.changed == dict.fromkeys(NAMES, 0)


def test_no_secret_is_where_it_must_not_be(town: Town) -> None:
    site, hidden = town.site, town.hidden
    town.watch.close()
    assert town.watch.looks > 50 and town.watch.saw_ansible and not town.watch.leaks, town.watch.leaks
    assert not [hidden.in_text(said) for said in town.fleet.said if hidden.in_text(said)]
    kept = [file for file in town.fleet.artifacts.rglob("*") if file.is_file()]
    assert len(kept) >= 9 and {file.stat().st_mode & 0o777 for file in kept} == {0o600}
    roots = [site.rig.folder / name for name in ("artifacts", "tmp", "home", "inventory", "site")]
    assert not hidden.in_files(roots, {site.folder / "bmc-password", site.folder / "vault-key"})
    for name in ("n1", "n8"):
        host = site.rig[name]
        assert not hidden.in_text(host.must(["journalctl", "--no-pager", "-a", "-o", "export"], timeout=60))
        own = {(BMC_FILE, "BMC password"), (ENGINE_FILE, "engine secret")}
        own |= {(GROUP_FILE, "group key")} if name == "n8" else set()
        assert hidden.on_host(host) == {("0o600", "nodegate", path, what) for path, what in own}
    asked = json.dumps(site.bmc("n1", "GET", "/requests"))
    assert "/redfish/v1" in asked and not hidden.in_text(asked)
