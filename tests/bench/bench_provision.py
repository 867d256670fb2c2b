"""Second runs over test hosts: site.yml against a playbook with a module call for each setting."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from bench_table import Ratio

NAIVE = Path(__file__).parent / "naive"
HOSTS = 8
GOAL = 0.6
#: Nothing here fails for being slow.
PATIENCE_S = 1800.0
#: What the naive playbook sets, too; what runs always (installation, proof by the agent) is in neither.
WORDS = ("--tags", "kernel,gpu,nic", "--skip-tags", "always", "-e", "nodegate_serial=100%")


def reason_against() -> str | None:
    """Why this machine cannot measure it; None when it can."""
    if os.geteuid() != 0:
        return "second runs of site.yml need hosts with systemd: run `sudo make bench` to measure them"
    missing = [name for name in ("systemd-nspawn", "mmdebstrap") if shutil.which(name) is None]
    return f"second runs of site.yml need {', '.join(missing)}: install them" if missing else None


def measure(hosts: int = HOSTS) -> list[Ratio]:
    """Boot the hosts, make them so with site.yml, and time both again: neither may change anything."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "standin" / "machine"))
    from provision_rig import provision_hosts

    with provision_hosts(*(f"n{i}" for i in range(1, hosts + 1)), premade=True) as rig:
        profiles = rig.inventory / "profiles"
        profiles.mkdir(exist_ok=True)
        shutil.copyfile(NAIVE / "profile.yaml", profiles / "all.yaml")
        rig.ansible("site.yml", *WORDS, timeout=PATIENCE_S).must()
        own = rig.ansible("site.yml", *WORDS, timeout=PATIENCE_S).must()
        rig.ansible(NAIVE / "site.yml", timeout=PATIENCE_S).must()
        naive = rig.ansible(NAIVE / "site.yml", timeout=PATIENCE_S).must()
    changed = {**own.changed, **{f"{name} (naive)": count for name, count in naive.changed.items()}}
    assert not any(changed.values()), f"a second run changed something: {changed}\n{naive.output}"
    what = f"site.yml again over {hosts} hosts (kernel, gpu, nic)"
    return [Ratio(what, own.took_s, naive.took_s, "a module call for each setting", GOAL)]
