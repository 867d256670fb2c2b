"""On one host, role by role: all settings are spoilt at once, shown, judged with the role's tag, repaired.

Drift is made by the stand-in machine's own tools and files and at the side door of its BMC (SIMULATED).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from drift_kit import widen
from provision_rig import REPOSITORY
from site_drifts import AT_BMC, ON_HOST
from site_kit import Site, site_of

pytestmark = [pytest.mark.root, pytest.mark.timeout(1200)]
APPLIED: dict[str, dict[str, Any]] = yaml.safe_load((REPOSITORY / "agent/provision/fields.yaml").read_text())[
    "applied"
]
#: Applied fields that no drift of their own shows here, and why.
CANNOT = {
    "nvlink.imex": "one node alone has no NVLink domain over several nodes",
    "fabric.kind": "says which settings the ports have: it drifts as they do",
    "fabric.ports.*.device": "says which port it is: it drifts as the port's settings do",
    "fabric.ports.*.netdev": "says which port it is: it drifts as the port's settings do",
    "fabric.nic.images.*.board_id": "says for which card an image is",
    "fabric.nic.images.*.match": "says how versions are compared",
    "bmc.images.*.match": "says how versions are compared",
    "host.time_sync": "the clock is this machine's",
    "host.mounts.*.path": "says where it is: it drifts as being mounted does",
    "bmc.firmware": "what an image brings is told of that image; the check names both",
}
#: Checks that see nothing of such a drift on a stand-in host, and why.
UNSEEN = {
    "host.limits": "the captured node has no engine process whose limits could be read",
    "nvlink.fabric": "the simulated GPUs stay registered when the fabric manager stops",
    "nic.present": "no drift takes a device away",
}
ROLES = ("bios", "firmware", "kernel", "gpu", "nic", "nccl_topology", "engine", "agent")
CHECK = [
    "/opt/nodegate/bin/nodegate", "check", "--node", "/var/lib/standin/node",
    "--profile", "/etc/nodegate/profile.yaml", "--format", "json",
]  # fmt: skip


@pytest.fixture(scope="module")
def made() -> Iterator[tuple[Site, dict[str, Any]]]:
    with site_of("n1") as site:
        profile = widen(site, "n1")
        site.play("site.yml").must()
        yield site, profile


@pytest.fixture
def site(made: tuple[Site, dict[str, Any]]) -> Site:
    return made[0]


@pytest.fixture
def profile(made: tuple[Site, dict[str, Any]]) -> dict[str, Any]:
    return made[1]


def spoil(site: Site, role: str) -> None:
    if role in ON_HOST:
        site.rig["n1"].must(["sh", "-ec", ON_HOST[role]], timeout=120)
    if role in AT_BMC:
        site.bmc("n1", "POST", "/set", **AT_BMC[role])


def compared(site: Site, role: str, folder: Path) -> tuple[int, set[str], dict[str, Any]]:
    """verify.yml of one role: exit status, fields that differ, the whole report."""
    words = ["--diff", "--tags", role, "-e", f"nodegate_report={folder}", "-e", "nodegate_wait_s=0"]
    run = site.play("verify.yml", *words)
    assert run.changed == {"n1": 0} or run.hosts["n1"].failed, run.output[-4000:]
    report = json.loads((folder / "n1.json").read_text())
    return run.status, {one["field"] for one in report["drift"] if one["role"] == role}, report


def judged(site: Site) -> dict[str, set[str]]:
    """By tag of the play: the checks that do not pass."""
    answer = json.loads(site.rig["n1"].run(CHECK, timeout=120).stdout)
    found: dict[str, set[str]] = {}
    for result in answer["results"]:
        if result["verdict"] in ("FAIL", "WARN"):
            found.setdefault(str(result["action"]["play"]), set()).add(result["check"])
    return found


def missing(role: str, fields: set[str], profile: dict[str, Any]) -> list[str]:
    """Applied fields of the role that the profile sets and no drift shows."""
    wanted = [field for field, row in APPLIED.items() if role in row["by"] and field not in CANNOT]
    wanted = [field for field in wanted if is_set(profile, field.split("."))]
    return [field for field in wanted if not any(shows(one, field) for one in fields)]


def shows(drift: str, field: str) -> bool:
    """Whether a drift is that of a field, of one thing below it, or of the whole that it is a part of."""
    words = field.split(".")
    whole = words[:-1] if "*" in words or words[0] == "engines" else words
    return any(re.match(pattern(part), drift) for part in (words, whole))


def pattern(words: list[str]) -> str:
    return r"\.".join("[^.]+" if word == "*" else re.escape(word) for word in words) + r"(\.|$)"


def is_set(tree: Any, words: list[str]) -> bool:
    """Whether the site's own layers have it."""
    if not words:
        return tree not in (None, {}, [])
    if words[0] == "*":
        rest = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else []
        return any(is_set(one, words[1:]) for one in rest)
    return isinstance(tree, dict) and words[0] in tree and is_set(tree[words[0]], words[1:])


def test_the_profile_of_the_site_has_something_for_every_role(profile: dict[str, Any]) -> None:
    for role in set(ROLES) - {"agent", "firmware", "nccl_topology"}:  # the site adds images of its own
        assert missing(role, set(), profile), role


@pytest.mark.parametrize("role", ROLES)
def test_drift_is_shown_judged_and_repaired(
    role: str, site: Site, profile: dict[str, Any], tmp_path: Path
) -> None:
    spoil(site, role)
    status, fields, _report = compared(site, role, tmp_path)
    assert status != 0 and fields and not missing(role, fields, profile), fields
    if role != "agent":  # its own profile and units are proven by its answer, not by a check
        seen = judged(site).get(role, set())
        wanted = {
            check
            for field, row in APPLIED.items()
            if role in row["by"] and any(shows(one, field) for one in fields)
            for check in row["checks"]
        }
        of_role = {check for check in wanted if check not in UNSEEN}
        assert seen and not of_role - seen - others(role), (of_role - seen, seen)
    site.play("site.yml", "--tags", role, "-e", "nodegate_drain=true").must()
    _status, fields, report = compared(site, role, tmp_path)
    assert (fields, report["pending"], report["faults"]) == (set(), [], [])
    assert not judged(site).get(role)


def others(role: str) -> set[str]:
    """Checks of fields that two roles share: the other one's part drifts with the other."""
    return {
        check
        for row in APPLIED.values()
        if role in row["by"] and len(row["by"]) > 1
        for check in row["checks"]
    }


def test_another_gpu_is_never_accepted_by_itself(site: Site, tmp_path: Path) -> None:
    host, node = site.rig["n1"], "/var/lib/standin/node/nvml.json"
    before = host.read(node)
    nvml = json.loads(before)
    nvml["gpus"][3]["identity"]["serial"] = "9999999999999"
    host.write(node, json.dumps(nvml))
    assert "gpu.pins" in judged(site)["pins"]
    run = site.play("site.yml", "--tags", "pins")
    assert run.status != 0 and "9999999999999" in run.output and "replace_pins" in run.output, run.output
    assert "9999999999999" not in (site.inventory / "profiles/n1.pins.yaml").read_text()
    host.write(node, before)
    site.play("site.yml", "--tags", "pins").must()


def test_after_all_of_it_a_full_run_ends_well_and_the_next_changes_nothing(site: Site) -> None:
    site.play("site.yml").must()
    assert site.play("site.yml").must().changed == {"n1": 0}
