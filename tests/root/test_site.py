"""site.yml over eight fresh hosts and their BMCs: everything is made so, proven, and stays so over a reboot.

Hosts, GPUs, NICs and BMCs are SIMULATED (tests/README.md); Ansible, ssh, systemd, TLS and vault are real.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from nspawn_rig import Host, wait_for
from site_kit import Site, site_of

pytestmark = [pytest.mark.root, pytest.mark.timeout(1200)]
NAMES = tuple(f"n{number}" for number in range(1, 9))
API_PORT = 9470


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with site_of(*NAMES) as made:
        run = made.play("site.yml", timeout=900).must()
        assert set(run.hosts) == set(NAMES)
        # The canary is through before anybody else is touched.
        assert run.output.index("changed: [n1]") < run.output.index("changed: [n2]")
        yield made


def serves(host: Host) -> bool:
    return host.get(API_PORT, "/readyz/main")[0] == 200


def test_every_node_serves_after_the_first_run(site: Site) -> None:
    assert all(serves(site.rig[name]) for name in NAMES)


def test_the_second_run_changes_nothing(site: Site) -> None:
    run = site.play("site.yml").must()
    assert run.changed == dict.fromkeys(NAMES, 0), run.output[-4000:]


def test_one_bad_profile_stops_that_host_alone(site: Site) -> None:
    path = site.inventory / "profiles/n5.yaml"
    good = path.read_text()
    path.write_text(good + "gpuss: {}\n")
    try:
        run = site.play("site.yml", "--check", "--tags", "kernel", "-e", "nodegate_max_fail_percentage=99")
    finally:
        path.write_text(good)
    failed = {name for name, tally in run.hosts.items() if tally.failed}
    assert failed == {"n5"} and run.status != 0
    assert "gpuss: unknown key; did you mean gpus?" in run.output


def test_all_of_it_outlives_a_reboot(site: Site) -> None:
    """The network namespaces are made anew, volatile settings are lost, and nobody runs a role."""
    threads = [threading.Thread(target=site.rig[name].reboot) for name in NAMES]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name in NAMES:
        wait_for(f"{name} to serve", lambda host=site.rig[name]: serves(host), 120)
    run = site.play("verify.yml").must()
    assert run.changed == dict.fromkeys(NAMES, 0)
