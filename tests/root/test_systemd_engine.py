"""Engines as units of a real systemd: an unprivileged agent, with polkit's leave."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from nspawn_rig import Host, wait_for

pytestmark = [pytest.mark.root, pytest.mark.timeout(600)]

NAME = "sim-a"
UNIT = f"nodegate-engine@{NAME}.service"
UNITS = "/opt/repo/agent/units"
PROFILE: dict[str, Any] = {
    "node": "unit-host",
    "mode": "manage",
    "gpus": {"count": 0},
    "nvlink": {"links_per_gpu": 0},
    "fabric": {"kind": "none"},
    "host": {"time_sync": False},
    "checks": {"engine.flags": {"enabled": False}},  # a SIMULATED engine has no flags to be looked up
    "engines": {
        NAME: {
            "gpus": [],
            "port": 8101,
            "agent_check_port": 8102,
            "launch": {
                "command": ["/opt/nodegate/bin/python", "-P", "-m", "agent.launch.embedded_engine"],
                "model": "sim",
                "args": ["--startup-s", "0.2", "--token-s", "0.002"],
                "env_file": "/etc/nodegate/engine.env",
            },
            "canary": {"period_s": 0.5, "deadline_s": 2.0},
            "warmup": {"requests": 1, "concurrent": 1, "max_tokens": 2},
            "backoff": {"first_s": 0.2, "jitter": 0.0, "crashes": 20},
            "gate": {"drain_grace_s": 0.2},
            "stop_deadline_s": 2,
        }
    },
}


def show(host: Host, unit: str = UNIT) -> dict[str, str]:
    """The unit's properties."""
    text = host.must(["systemctl", "show", "--property=ActiveState,MainPID,InvocationID,ControlGroup", unit])
    return dict(line.split("=", 1) for line in text.splitlines())


def phase(host: Host) -> str:
    """The engine's phase as the agent tells it."""
    done = host.run(["nodegate", "status", "--json"])
    if done.returncode not in (0, 1, 2) or not done.stdout.startswith("{"):
        return ""
    gates = [gate for gate in json.loads(done.stdout)["gates"] if gate["engine"] == NAME]
    return str((gates[0]["process"] or {}).get("phase", "")) if gates else ""


def until_warm(host: Host, other_than: str = "") -> dict[str, str]:
    """Wait until the engine is warm; the unit then. `other_than`: the invocation that it must not be."""
    wait_for("a warm engine", lambda: phase(host) == "warm" and show(host)["InvocationID"] != other_than, 90)
    return show(host)


def group_pids(host: Host, group: str) -> list[int]:
    """The processes of a control group of the host, as the host numbers them."""
    done = host.run(["cat", f"/sys/fs/cgroup{group}/cgroup.procs"])
    return [int(word) for word in done.stdout.split()]


@pytest.fixture(scope="module")
def node(host: Host) -> Iterator[Host]:
    for name in ("nodegate.service", "nodegate-engine@.service"):
        host.must(["install", "-m644", f"{UNITS}/{name}", f"/etc/systemd/system/{name}"])
    host.must(["install", "-m644", f"{UNITS}/50-nodegate.rules", "/etc/polkit-1/rules.d/50-nodegate.rules"])
    host.must(["systemd-sysusers", f"{UNITS}/nodegate.sysusers"])
    host.must(["systemd-tmpfiles", "--create", f"{UNITS}/nodegate.tmpfiles"])
    host.write("/etc/nodegate/node.yaml", yaml.safe_dump(PROFILE))
    host.write("/etc/nodegate/agent.env", "NODEGATE_ARGS=--profile /etc/nodegate/node.yaml\n")
    host.write("/etc/nodegate/engine.env", "VLLM_API_KEY=unit-secret\n", 0o600)
    host.must(["chown", "nodegate:", "/etc/nodegate/engine.env"])
    host.must(["systemctl", "daemon-reload"])
    host.must(["systemctl", "start", "nodegate"], 90)
    until_warm(host)
    yield host


def test_the_engine_is_a_unit_with_the_environment_of_its_plan(node: Host) -> None:
    unit = show(node)
    assert unit["ActiveState"] == "active"
    pids = group_pids(node, unit["ControlGroup"])
    assert int(unit["MainPID"]) in pids and len(pids) >= 2  # the API server and its core
    environment = node.read(f"/proc/{unit['MainPID']}/environ").split("\0")
    assert "VLLM_API_KEY=unit-secret" in environment
    assert not [line for line in environment if line.startswith(("INVOCATION_ID", "JOURNAL_STREAM", "PWD"))]
    plan = node.read(f"/run/nodegate/engines/{NAME}.json")
    assert "unit-secret" not in plan and json.loads(plan)["env_file"] == "/etc/nodegate/engine.env"
    assert node.must(["stat", "-c", "%a %U", f"/run/nodegate/engines/{NAME}.json"]) == "600 nodegate\n"
    assert "Uvicorn" in node.must(["nodegate", "engine", "logs", NAME])


def test_a_killed_agent_takes_its_engine_over(node: Host) -> None:
    before = until_warm(node)
    for _ in range(3):
        agent = show(node, "nodegate.service")["MainPID"]
        node.must(["kill", "-KILL", agent])
        wait_for(
            "another agent", lambda old=agent: show(node, "nodegate.service")["MainPID"] not in ("0", old)
        )
        assert until_warm(node) == before
    assert f"adopted as pid {before['MainPID']}" in node.journal("nodegate") + node.must(
        ["nodegate", "history", "--json"]
    )


def test_a_unit_that_somebody_else_stops_is_a_fault(node: Host) -> None:
    before = until_warm(node)
    node.must(["systemctl", "stop", UNIT])
    until_warm(node, other_than=before["InvocationID"])
    history = node.must(["nodegate", "history"])
    assert "crashed" in history
    assert "ended" in history


def test_a_stray_daemon_ends_with_its_engine(node: Host) -> None:
    """It has left session and parents behind; the control group is what it cannot leave."""
    before = until_warm(node)
    pids = group_pids(node, before["ControlGroup"])
    core = next(pid for pid in pids if pid != int(before["MainPID"]))
    node.must(
        ["sh", "-c", f"echo $$ > /sys/fs/cgroup{before['ControlGroup']}/cgroup.procs; "
         "setsid sleep 600 > /dev/null 2>&1 < /dev/null &"]
    )  # fmt: skip
    strays = [pid for pid in group_pids(node, before["ControlGroup"]) if pid not in pids]
    assert len(strays) == 1
    node.must(["kill", "-KILL", str(core)])
    until_warm(node, other_than=before["InvocationID"])
    assert node.run(["test", "-e", f"/proc/{strays[0]}"]).returncode == 1


def test_a_stop_ends_the_unit_and_a_start_by_hand_is_refused(node: Host) -> None:
    until_warm(node)
    node.must(["nodegate", "engine", "stop", NAME, "--reason", "test"])
    wait_for(
        "the end of the unit", lambda: show(node)["ActiveState"] == "inactive" and phase(node) == "absent"
    )
    assert node.run(["ls", "/run/nodegate/engines"]).stdout == ""
    node.run(["systemctl", "start", UNIT])
    wait_for("the refusal", lambda: show(node)["ActiveState"] == "failed")
    assert f"/run/nodegate/engines/{NAME}.json: cannot be read" in node.journal(UNIT)
    node.must(["nodegate", "engine", "start", NAME, "--reason", "test"])
    until_warm(node)


def test_an_engine_of_another_launch_is_ended_not_kept(node: Host) -> None:
    before = until_warm(node)
    changed = json.loads(json.dumps(PROFILE))
    changed["engines"][NAME]["launch"]["env"] = {"CHANGED": "1"}
    node.write("/etc/nodegate/node.yaml", yaml.safe_dump(changed))
    agent = show(node, "nodegate.service")["MainPID"]
    node.must(["kill", "-KILL", agent])
    after = until_warm(node, other_than=before["InvocationID"])
    assert "CHANGED=1" in node.read(f"/proc/{after['MainPID']}/environ").split("\0")


def test_polkit_lets_the_user_at_engines_alone(node: Host) -> None:
    until_warm(node)
    as_user = ["setpriv", "--reuid=nodegate", "--regid=nodegate", "--clear-groups", "systemctl"]
    for words in (
        ["stop", "dbus.service"],
        ["start", "nodegate-engine@../x.service"],
        ["kill", "nodegate.service"],
        ["restart", UNIT],
        ["set-property", "--runtime", UNIT, "CPUWeight=1"],
        ["daemon-reload"],
        ["start", "nodegate-engine@BIG.service"],
    ):
        done = node.run([*as_user, "--no-ask-password", *words])
        assert done.returncode != 0, words
        assert "authentication required" in done.stderr.lower() or "denied" in done.stderr.lower(), (
            done.stderr
        )
    for words in (["kill", "--signal=SIGURG", UNIT], ["reset-failed", UNIT]):
        node.must([*as_user, "--no-ask-password", *words])


def test_a_stopped_agent_stops_its_engine(node: Host) -> None:
    until_warm(node)
    node.must(["systemctl", "stop", "nodegate"], 90)
    assert show(node)["ActiveState"] == "inactive"
