"""Engines as units of a real systemd: an unprivileged agent, with polkit's leave."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
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
    return str(process_part(host).get("phase", ""))


def process_part(host: Host) -> dict[str, Any]:
    """What the agent's API says of the engine's process; asked by bash, which starts in no time."""
    ask = "exec 3<>/dev/tcp/127.0.0.1/9470 && printf 'GET /status HTTP/1.0\\r\\n\\r\\n' >&3 && cat <&3"
    _, _, body = host.run(["bash", "-c", ask]).stdout.partition("\n\n")
    if not body.startswith("{"):
        return {}
    gates = [gate for gate in json.loads(body)["gates"] if gate["engine"] == NAME]
    return dict(gates[0]["process"] or {}) if gates else {}


def until_warm(host: Host, other_than: str = "") -> dict[str, str]:
    """Wait until the engine is warm; the unit then. `other_than`: the invocation that it must not be."""
    wait_for("a warm engine", lambda: phase(host) == "warm" and show(host)["InvocationID"] != other_than, 90)
    return show(host)


def group_pids(host: Host, group: str) -> list[int]:
    """The processes of a control group of the host, as the host numbers them."""
    return [int(word) for word in host.read(f"{folder_of(host, group)}/cgroup.procs").split()]


def folder_of(host: Host, group: str) -> str:
    """Where the host, which has this machine's kind of control groups, keeps one."""
    folders = [f"/sys/fs/cgroup{tree}{group}" for tree in ("", "/unified", "/systemd")]
    return next(folder for folder in folders if host.run(["test", "-d", folder]).returncode == 0)


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
    assert "SIMULATED engine: serving" in node.must(["nodegate", "engine", "logs", NAME])


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
    entries = json.loads(node.must(["nodegate", "history", "--json"]))["entries"]
    crashes = [entry for entry in entries if entry.get("check") == f"engine:{NAME}" and "trace" in entry]
    assert " ended" in crashes[-1]["summary"]
    assert "SIMULATED engine: serving" in crashes[-1]["trace"]
    assert "unit-secret" not in json.dumps(crashes)
    assert "crashed" in node.must(["nodegate", "history"])


def test_a_stray_daemon_ends_with_its_engine(node: Host) -> None:
    """It has left session and parents behind; the control group is what it cannot leave."""
    before = until_warm(node)
    folder = folder_of(node, before["ControlGroup"])
    pids = group_pids(node, before["ControlGroup"])
    core = next(pid for pid in pids if pid != int(before["MainPID"]))
    node.must(
        ["sh", "-c", f"echo $$ > '{folder}/cgroup.procs'; "
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


def outside(host: Host, pid: int) -> int:
    """The number that this machine gives a process of the host."""
    own = Path(f"/proc/{host.leader}/ns/pid").readlink()
    for status in Path("/proc").glob("[0-9]*/status"):
        with contextlib.suppress(OSError):
            numbers = status.read_text().partition("NSpid:")[2].partition("\n")[0].split()
            if numbers and int(numbers[-1]) == pid and (status.parent / "ns/pid").readlink() == own:
                return int(status.parent.name)
    raise AssertionError(f"process {pid} of the host is not found")


@contextlib.contextmanager
def frozen(folder: Path, pid: int) -> Iterator[None]:
    """A process that SIGKILL cannot end, as one stuck in a driver: the version 1 freezer holds it."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "cgroup", "-o", "freezer", "nodegate-test", str(folder)], check=True)
    group = folder / f"nodegate-test-{pid}"
    try:
        group.mkdir()
        (group / "cgroup.procs").write_text(str(pid))
        (group / "freezer.state").write_text("FROZEN")
        wait_for(
            "the process to freeze", lambda: (group / "freezer.state").read_text().strip() == "FROZEN", 10
        )
        yield
    finally:
        (group / "freezer.state").write_text("THAWED")
        wait_for("the group to empty", lambda: not (group / "cgroup.procs").read_text(), 30)
        group.rmdir()
        subprocess.run(["umount", str(folder)], check=True)


def test_a_process_that_cannot_be_killed_asks_for_a_reboot(node: Host, tmp_path: Path) -> None:
    before = until_warm(node)
    core = next(p for p in group_pids(node, before["ControlGroup"]) if p != int(before["MainPID"]))
    with frozen(tmp_path / "freezer", outside(node, core)):
        node.must(["nodegate", "engine", "stop", NAME, "--reason", "test"])
        wait_for("the verdict", lambda: phase(node) == "unkillable", 90)
        assert "reboot" in process_part(node)["reason"]
        assert str(core) in process_part(node)["reason"]
        node.must(["nodegate", "engine", "start", NAME, "--reason", "test"])
        assert phase(node) == "unkillable"
    wait_for("the end of it", lambda: node.run(["test", "-e", f"/proc/{core}"]).returncode == 1)
    node.must(["nodegate", "gate", "clear", NAME, "--reason", "test"])
    until_warm(node, other_than=before["InvocationID"])


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
