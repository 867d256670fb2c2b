"""nodegate.service as shipped, on a host with systemd: privileges, readiness, watchdog, reload, reboot.

The node has no GPU and the engine is the embedded one (SIMULATED), as a process of the agent, so that an end
of the agent that took its engine along would show. NVML devices are not here: nothing of this proves them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from agent_host import UNIT, AgentHost, node_profile
from nspawn_rig import Host, systemd_hosts, wait_for

pytestmark = [pytest.mark.root, pytest.mark.timeout(1200)]
EXPOSURE_AT_MOST = 3.0
CAP_SYSLOG = 1 << 34


@pytest.fixture(scope="module")
def machine() -> Iterator[Host]:
    """A host that sees kernel log and clock discipline, as a real one does: nspawn takes both away."""
    more = ["--bind=/dev/kmsg", "--system-call-filter=adjtimex clock_adjtime"]
    with systemd_hosts("node", more=more) as hosts:
        yield hosts["node"]


@pytest.fixture
def service(machine: Host) -> Iterator[AgentHost]:
    """The hardened service, not started; its host stays."""
    whole = AgentHost(machine)
    whole.install(node_profile(), processes=False)
    yield whole
    machine.must(["systemctl", "stop", UNIT])
    wait_for("no engine", lambda: not whole.engines())
    machine.must(["rm", "-rf", "/var/lib/nodegate", "/etc/nodegate"])


def _started(service: AgentHost) -> list[tuple[int, int]]:
    """Start, wait until traffic is let in; the engine."""
    service.start()
    service.wait_ready()
    engines = service.engines()
    assert len(engines) == 1
    return engines


def _again(service: AgentHost, before: int) -> int:
    """Wait for another agent than that of pid `before`, and for readiness; its pid."""
    wait_for("another agent", lambda: service.main_pid() not in (0, before))
    service.wait_ready()
    return service.main_pid()


def _gate_says(service: AgentHost, state: str) -> dict[str, Any]:
    wait_for(f"the state {state}", lambda: service.gate().get("state") == state)
    return service.gate()


def test_exposure(service: AgentHost) -> None:
    verified = service.host.run(["systemd-analyze", "verify", UNIT])
    assert (verified.returncode, verified.stderr) == (0, "")
    text = service.host.must(["systemd-analyze", "security", "--no-pager", UNIT])
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", text)
    assert found is not None, text
    print(f"exposure {found[1]}")
    assert float(found[1]) <= EXPOSURE_AT_MOST, text


def test_it_is_active_only_when_the_api_answers(service: AgentHost) -> None:
    service.host.must(["systemctl", "start", "--no-block", UNIT])
    seen = set()
    end_s = time.monotonic() + 60
    while "active" not in seen and time.monotonic() < end_s:
        state = service.show("ActiveState")
        seen.add(state)
        if state == "active":
            assert service.get("/livez")[0] == 200
    assert {"activating", "active"} <= seen
    assert service.show("StatusText") == "mode manage"
    service.wait_ready()


def test_privileges_and_doors(service: AgentHost) -> None:
    _started(service)
    pid = service.main_pid()
    status = dict(
        line.split(":\t", 1)
        for line in service.host.read(f"/proc/{pid}/status").splitlines()
        if ":\t" in line
    )
    capabilities = {int(status[name], 16) for name in ("CapPrm", "CapEff", "CapBnd", "CapAmb")}
    assert capabilities == {CAP_SYSLOG}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    user = service.host.must(["id", "-u", "nodegate"]).strip()
    assert status["Uid"].split() == [user] * 4
    # Its status is not asked for: a descriptor may be closed between the list and the look.
    files = service.host.run(["sh", "-c", f"readlink /proc/{pid}/fd/*"]).stdout
    assert "/dev/kmsg" in files.split()
    assert service.show("LimitNOFILE") == "16384"

    door = service.host.must(["stat", "-c", "%a %U:%G", "/run/nodegate/admin.sock"]).strip()
    assert door == "660 nodegate:nodegate"
    for user, groups, allowed in (("helen", "nodegate", True), ("mallory", "nogroup", False)):
        if service.host.run(["id", user]).returncode:
            service.host.must(["useradd", "-G", groups, user])
        words = ["runuser", "-u", user, "--", "nodegate", "gate", "drain", "main", "--reason", "test"]
        done = service.host.run(words)
        assert (done.returncode == 0) is allowed, done
    service.host.must(["nodegate", "gate", "resume", "main", "--reason", "test"])


def test_evidence_comes_through_the_sandbox(service: AgentHost) -> None:
    """What hardening could take away: the clock's state, other units, the truth about file systems."""
    service.write_profile(
        node_profile(host={"time_sync": True, "disks": ["/", "/etc", "/usr"], "services": {UNIT: "active"}})
    )
    service.start()

    def results() -> dict[str, list[dict[str, Any]]]:
        by_check: dict[str, list[dict[str, Any]]] = {}
        for result in service.status().get("results", []):
            by_check.setdefault(result["check"], []).append(result)
        return by_check

    wanted = {"host.time", "host.services", "host.disk"}
    wait_for("results", lambda: wanted <= results().keys())
    found = results()
    unknown = [result for name in wanted for result in found[name] if result["verdict"] == "UNKNOWN"]
    assert unknown == [], unknown
    # The root is an overlay on a tmpfs: writable, whatever the agent itself may write to.
    assert {result["verdict"] for result in found["host.disk"]} == {"PASS"}
    assert {result["verdict"] for result in found["host.services"]} == {"PASS"}


def test_a_hung_agent_is_replaced_and_its_engine_is_not(service: AgentHost) -> None:
    engines = _started(service)
    agent = service.main_pid()
    began_s = time.monotonic()
    service.host.must(["kill", "-STOP", str(agent)])
    _again(service, agent)
    print(f"hung agent replaced and ready after {time.monotonic() - began_s:.1f} s")
    assert service.engines() == engines
    assert "Watchdog timeout" in service.host.journal(UNIT)


def test_restart_leaves_the_engine_and_stop_ends_it(service: AgentHost) -> None:
    engines = _started(service)
    agent = service.main_pid()
    began_s = time.monotonic()
    service.host.must(["systemctl", "restart", UNIT])
    assert _again(service, agent) != agent
    print(f"restarted and ready after {time.monotonic() - began_s:.1f} s")
    assert service.engines() == engines
    history = service.host.must(["nodegate", "history"])
    assert "its engines run on" in history

    service.host.must(["systemctl", "stop", UNIT])
    assert service.show("Result") == "success"
    assert service.engines() == []


def test_reload(service: AgentHost) -> None:
    engines = _started(service)
    agent, old = service.main_pid(), service.status()["profile_hash"]
    service.host.write("/etc/nodegate/profile.yaml", "gpus: [\n")
    service.host.must(["systemctl", "reload", UNIT])
    wait_for("the refusal", lambda: "the old one stays in force" in service.show("StatusText"))
    assert "the new profile is refused, the old one stays in force" in service.host.journal(UNIT)
    assert service.status()["profile_hash"] == old
    assert service.ready()

    service.write_profile(node_profile(host={"time_sync": False, "disks": ["/"]}))
    service.host.must(["systemctl", "reload", UNIT])
    wait_for("the new profile", lambda: service.status().get("profile_hash", old) != old)
    wait_for("the end of the reload", lambda: service.show("StatusText").startswith("profile "))
    assert service.status()["problems"] == []
    assert (service.show("ActiveState"), service.show("SubState")) == ("active", "running")
    assert (service.main_pid(), service.engines()) == (agent, engines)


@pytest.mark.parametrize("supervision", ["process", "systemd"])
def test_a_credential_of_root_reaches_the_engine(service: AgentHost, supervision: str) -> None:
    profile = node_profile(supervision=supervision)
    profile["engines"]["main"]["launch"]["env_file"] = "credential:engine-env"
    service.write_profile(profile)
    service.start()
    wait_for("a word on it", lambda: "put the file engine-env into" in service.gate().get("reason", ""))
    assert service.engines() == []

    service.host.write("/etc/nodegate/engine-credentials/engine-env", "VLLM_API_KEY=of-root-alone\n", 0o600)
    service.host.must(["systemctl", "restart", UNIT])
    service.wait_ready()
    [(pid, _)] = service.engines()
    assert "VLLM_API_KEY=of-root-alone" in service.host.read(f"/proc/{pid}/environ").split("\0")
    assert "of-root-alone" not in service.host.journal(UNIT)


def test_a_bad_profile_is_tried_again_until_it_is_good(service: AgentHost) -> None:
    service.host.write("/etc/nodegate/profile.yaml", "gpus: [\n")
    assert service.host.run(["systemctl", "start", UNIT]).returncode != 0
    assert "profile.yaml:" in service.host.journal(UNIT, "-n", "20")
    service.write_profile(node_profile())
    service.wait_ready()


def test_maintenance_survives_a_reboot(service: AgentHost) -> None:
    service.host.must(["systemctl", "enable", UNIT])
    _started(service)
    service.host.must(["nodegate", "maintenance", "enter", "--reason", "new DIMM"])
    print(f"rebooted in {service.host.reboot():.1f} s")
    wait_for("the service", lambda: service.show("ActiveState") == "active")
    gate = _gate_says(service, "maintenance")
    assert "new DIMM" in gate["reason"]
    assert not service.ready()
    assert service.engines() == []
    service.host.must(["nodegate", "maintenance", "exit", "--reason", "done"])
    service.wait_ready()
