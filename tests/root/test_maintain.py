"""Two hosts of one pool: drained for maintenance without a lost request, the second refused, given back.

Engines are the embedded one (SIMULATED), hosts have no GPUs; Ansible, ssh, systemd and the agents are real.
"""

from __future__ import annotations

import http.client
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from agent_host import API_PORT, ENGINE_PORT, UNIT, AgentHost, node_profile
from nspawn_rig import Host
from provision_rig import ProvisionRig, provision_hosts

pytestmark = [pytest.mark.root, pytest.mark.timeout(600)]
OWN = "/etc/nodegate/checklists"
#: A site's own checklist: the shipped one soaks for three minutes, and a shortened run gives no node back.
BACK = """
name: back
title: Proof of a test node after work
why: The shipped checklist soaks for three minutes.
needs: closed
steps:
  - id: coolant-seen
    title: Coolant, as a person sees it
    why: There is no sensor.
    question: Does coolant flow?
    choices:
      - {answer: flows, means: it flows, verdict: PASS}
      - {answer: "no", means: it does not, verdict: FAIL}
    timeout_s: 60
    on_fail: Leave the node idle.
  - id: gate
    title: Maintenance ends and the engine serves
    why: Only the engine shows that it serves.
    gate: {soak_s: 1}
    timeout_s: 120
    on_fail: Read nodegate status.
"""
REASON = "coolant pump of rack 7"
BOOT_ID = "/proc/sys/kernel/random/boot_id"
#: nspawn lays a boot id of its own over the kernel's, but not in the /proc of a unit with a mount namespace:
#: the agent and a command beside it would speak of two boots.
ONE_BOOT = f"[Service]\nBindReadOnlyPaths=/run/boot-id:{BOOT_ID}\n"


class Pair:
    """Both hosts, and the command as an operator gives it."""

    def __init__(self, rig: ProvisionRig) -> None:
        self.rig = rig
        self.agents = {name: AgentHost(rig[name]) for name in ("n1", "n2")}
        profiles = rig.inventory / "profiles"
        profiles.mkdir()
        api = {"api": {"host": "0.0.0.0", "port": API_PORT}}
        for name, agent in self.agents.items():
            profile = node_profile(node=name, checklists_dir=OWN, **api)
            profile["engines"]["main"]["gate"]["drain_grace_s"] = 5.0
            agent.install(profile)
            (profiles / f"{name}.yaml").write_text(yaml.safe_dump(profile))
            rig[name].write(f"{OWN}/back.yaml", BACK)
            rig[name].must(["cp", BOOT_ID, "/run/boot-id"])
            rig[name].write("/etc/systemd/system/nodegate.service.d/boot.conf", ONE_BOOT)
            rig[name].must(["systemctl", "daemon-reload"])
            rig[name].must(["systemctl", "start", "--no-block", UNIT])
        rig.write_inventory(everywhere={"nodegate_min_ready": "50%"})
        for agent in self.agents.values():
            agent.wait_ready(240)

    def fleet(self, *words: str, limit: str | None = None) -> tuple[int, str]:
        """Exit code and all that it says."""
        argv = ["nodegate", "fleet", words[0], "-i", str(self.rig.inventory), *words[1:]]
        argv += ["--limit", limit] if limit else []
        argv += ["--artifacts", str(self.kept)] if words[0] == "maintain" else []
        done = self.rig.run(*argv)
        return done.returncode, done.stdout

    @property
    def kept(self) -> Path:
        """Where runs are kept."""
        return self.rig.folder / "kept"

    def states(self) -> dict[str, str]:
        """State of each node by `fleet status --json`."""
        _, said = self.fleet("status", "--json")
        return {row["hosts"][0]: row["state"] for row in json.loads(said)["rows"]}

    def history(self, name: str) -> str:
        """The journal of a node."""
        return self.rig[name].must(["nodegate", "history", "--since", "1h"])


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with provision_hosts("n1", "n2", premade=True) as rig:
        yield Pair(rig)


def complete(host: Host) -> tuple[int, Any]:
    """One request to the engine of a host."""
    connection = http.client.HTTPConnection("127.0.0.1", ENGINE_PORT)
    try:
        connection.sock = host.connect(ENGINE_PORT)
        body = json.dumps({"model": "sim", "prompt": "a b c", "max_tokens": 100, "ignore_eos": True})
        connection.request("POST", "/v1/completions", body, {"content-type": "application/json"})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    except (OSError, http.client.HTTPException, ValueError) as cause:
        return 0, str(cause)
    finally:
        connection.close()


@contextmanager
def clients(host: Host, count: int = 2) -> Iterator[list[tuple[int, Any]]]:
    """Clients behind a load balancer that asks before each request; ends when the gate has closed."""
    answers: list[tuple[int, Any]] = []

    def send() -> None:
        while host.get(API_PORT, "/readyz/main")[0] == 200:
            answers.append(complete(host))

    threads = [threading.Thread(target=send) for _ in range(count)]
    for thread in threads:
        thread.start()
    yield answers
    for thread in threads:
        thread.join(60)


def test_a_node_is_drained_without_a_lost_request_and_handed_over(pair: Pair) -> None:
    code, said = pair.fleet("maintain", "--reason", REASON, "--check", limit="n1")
    assert code == 0 and "n1: not in maintenance: main serving" in said, said
    with clients(pair.rig["n1"]) as answers:
        code, said = pair.fleet("maintain", "--reason", REASON, "--who", "ada", limit="n1")
    assert code == 0, said
    assert "pool main: 1 of 2 engines stay ready, nodegate_min_ready is 50% (1)" in said
    assert re.search(
        r"n1: in maintenance \(coolant pump of rack 7 \(ada, .*\)\); no engine runs: safe to reboot", said
    )
    assert answers and {status for status, _ in answers} == {200}, answers
    assert all(answer["usage"]["completion_tokens"] == 100 for _, answer in answers)
    assert pair.agents["n1"].engines() == [] and REASON in pair.history("n1")
    assert pair.states() == {"n1": "maintenance", "n2": "serving"}


def test_the_second_is_refused_with_the_numbers(pair: Pair) -> None:
    code, said = pair.fleet("maintain", "--reason", "next", limit="n2")
    assert code == 3 and said.count("\n") == 1
    assert "2 nodes would be in maintenance at once (n2 asked for, n1 is already (coolant pump" in said
    # The play alone refuses it as well.
    run = pair.rig.ansible("maintenance.yml", "--limit", "n2", "-e", "maintain_reason=next")
    assert run.hosts["n2"].failed == 1 and run.changed == {"n2": 0}
    assert "2 nodes would be in maintenance at once" in run.output
    assert pair.states() == {"n1": "maintenance", "n2": "serving"}


def test_a_checklist_that_fails_keeps_the_node_and_names_the_step(pair: Pair) -> None:
    code, said = pair.fleet("maintain", "--finish", "--answer", "coolant-seen=no", "--who", "ada", limit="n1")
    assert code == 1, said
    assert re.search(r"post-maintenance: step coolant-seen is FAIL: .*Leave the node idle", said), said
    assert "n1: in maintenance (coolant pump" in said
    assert pair.states() == {"n1": "maintenance", "n2": "serving"}
    reports = sorted(path.name for path in pair.kept.glob("*/reports/n1/*"))
    assert reports == ["report.html", "report.json", "report.xml"]


def test_one_that_passes_gives_the_node_back(pair: Pair) -> None:
    words = (
        "--finish",
        "--answer",
        "coolant-seen=flows",
        "--who",
        "ada",
        "-e",
        "post_maintenance_checklist=back",
    )
    code, said = pair.fleet("maintain", *words, limit="n1")
    assert code == 0, said
    assert "n1: not in maintenance: main serving" in said
    assert pair.states() == {"n1": "serving", "n2": "serving"}
    code, said = pair.fleet("maintain", "--finish", "--who", "ada", limit="n1")
    assert code == 0 and re.search(r"n1 +ok +\S+ +0 ", said), said
