"""The agent is killed with SIGKILL a hundred times at random moments, and its engine does not notice.

Eighty times as a process of its own on a SIMULATED 8-GPU node, twenty times as a service of a systemd host
without GPUs, with the engine as its process and as a unit of its own. The engine is the embedded one.
"""

from __future__ import annotations

import http.client
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from agent_host import API_PORT, ENGINE_PORT, UNIT, AgentHost, node_profile
from daemon_rig import DEMO_NODE, DaemonRig
from kill_watch import KillWatch, embedded_engines
from nspawn_rig import Host, systemd_hosts

pytestmark = [pytest.mark.root, pytest.mark.timeout(1200)]
KILLS = 80
KILLS_OF_A_SERVICE = 10
#: "adoption closes the gate for at most 2 s", counted from when the next agent answers.
CLOSED_AT_MOST_S = 2.0
LONGEST_LIFE_S = 1.7
STARTED_WITHIN_S = 20
KILLS_WITH_EVERY_CHECK = 6
KILL_MAIN = ["systemctl", "kill", "--signal=KILL", "--kill-whom=main", UNIT]


@pytest.fixture
def chance() -> random.Random:
    """Printed, so that a failure can be had again."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    return random.Random(seed)


def _closed_at_most_s() -> float:
    """The limit, longer where this machine has more to do than it has processors for."""
    return CLOSED_AT_MOST_S * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def _serves(port: int, connection: http.client.HTTPConnection | None = None) -> bool:
    """Whether the engine answers on its own port."""
    connection = connection or http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[DaemonRig]:
    whole = DaemonRig(tmp_path, {"main": list(range(8))})
    _let_starts_be_over(whole)
    yield whole
    whole.close()


def _let_starts_be_over(rig: DaemonRig) -> None:
    """Most adoptions are of an engine that has run for longer than its start may take, as in real life."""
    rig.profile["engines"]["main"]["start_deadline_s"] = STARTED_WITHIN_S
    rig.write_profile()


def test_eighty_kills_of_the_process(rig: DaemonRig, chance: random.Random) -> None:
    port = rig.engine_ports["main"]
    watch = KillWatch(
        lambda: rig.get("/readyz/main")[0], lambda: _serves(port), lambda: embedded_engines(port)
    )
    rig.start()
    watch.wait_ready()
    for kill in range(KILLS):
        assert rig.process is not None
        rig.process.kill()
        rig.process.wait(30)
        watch.killed()
        if kill % 16 == 5:  # while nobody looks the engine hangs
            _hang(watch, rig)
            continue
        if kill % 16 == 13:  # ... or dies
            watch.signal_engine(signal.SIGKILL)
            watch.may_change()
        rig.start()
        if kill % 16 == 13 or kill % 4 == 0:
            watch.wait_ready()
            if kill % 16 == 13:
                watch.forget_closing()
            watch.live(chance.uniform(0.0, 0.3))
        else:
            watch.live(chance.uniform(0.0, LONGEST_LIFE_S))
    watch.wait_ready()
    print(f"{watch.summary()}; load {os.getloadavg()[0]:.1f}")
    assert len(watch.closed_s()) >= KILLS // 5
    assert max(watch.closed_s()) <= _closed_at_most_s(), watch.summary()


def test_kills_with_every_check_of_the_node(tmp_path: Path) -> None:
    """The other rigs leave out slow checks: here none is, so that no second sample is waited for unseen."""
    every = yaml.safe_load((DEMO_NODE / "profile.yaml").read_text())["checks"]
    rig = DaemonRig(tmp_path, {"main": list(range(8))}, checks=every)
    port = rig.engine_ports["main"]
    watch = KillWatch(
        lambda: rig.get("/readyz/main")[0], lambda: _serves(port), lambda: embedded_engines(port)
    )
    try:
        rig.start()
        watch.wait_ready()
        for _ in range(KILLS_WITH_EVERY_CHECK):
            watch.live(0.5)
            assert rig.process is not None
            rig.process.kill()
            rig.process.wait(30)
            watch.killed()
            rig.start()
            watch.wait_ready()
        print(f"{watch.summary()}; load {os.getloadavg()[0]:.1f}")
        assert max(watch.closed_s()) <= _closed_at_most_s(), watch.summary()
    finally:
        rig.close()


def _hang(watch: KillWatch, rig: DaemonRig) -> None:
    """An engine that hangs is not ready for the next agent, however well it was, until it answers again."""
    watch.signal_engine(signal.SIGSTOP)
    watch.out_of_order = True
    rig.start()
    watch.live(LONGEST_LIFE_S)
    watch.out_of_order = False
    watch.signal_engine(signal.SIGCONT)
    watch.forget_closing()
    watch.wait_ready()
    watch.forget_closing()


@pytest.fixture(scope="module")
def machine() -> Iterator[Host]:
    with systemd_hosts("killed") as hosts:
        yield hosts["killed"]


@pytest.mark.parametrize("supervision", ["process", "systemd"])
def test_ten_kills_of_the_service(machine: Host, supervision: str, chance: random.Random) -> None:
    service = AgentHost(machine)
    service.install(node_profile(supervision=supervision), processes=supervision == "process")
    service.start()

    def serves() -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", ENGINE_PORT)
        try:
            connection.sock = machine.connect(ENGINE_PORT)
        except OSError:
            return False
        return _serves(ENGINE_PORT, connection)

    def engines() -> dict[tuple[int, int], str]:
        return embedded_engines(ENGINE_PORT, machine.leader)

    watch = KillWatch(
        lambda: machine.get(API_PORT, "/readyz")[0],
        serves,
        engines,
    )
    watch.wait_ready()
    for kill in range(KILLS_OF_A_SERVICE):
        while machine.run(KILL_MAIN).returncode != 0:  # it is being started again just now
            watch.live(0.05)
        watch.killed()
        if kill % 2:
            watch.wait_ready()
        watch.live(chance.uniform(0.0, LONGEST_LIFE_S))
    watch.wait_ready()
    print(f"supervision: {supervision}: {watch.summary()}; load {os.getloadavg()[0]:.1f}")
    assert max(watch.closed_s()) <= _closed_at_most_s(), watch.summary()
    machine.must(["systemctl", "stop", UNIT])
    end_s = time.monotonic() + 30
    while engines():
        assert time.monotonic() < end_s, "the engine outlives a stop"
        time.sleep(0.05)
