"""Debian's HAProxy as the role configures it, before three SIMULATED nodes, under load that waits for nobody.

Planned changes lose no request. A fault loses at most requests that had been sent to the failing node before
HAProxy took it out: each lost one is looked up in HAProxy's own log. Times are printed, none is asserted.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from functools import partial

import pytest
from daemon_rig import wait_until
from lb_front import HaProxy
from lb_node import DRAIN_GRACE_S, LbNode
from lb_scene import PATIENCE_S, Fleet, Scene, fleet_of

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]
#: With fewer nodes than this the service answers 503.
MIN_LIVE = 2


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    with fleet_of(LbNode, 3, partial(HaProxy, main=MIN_LIVE)) as made:
        yield made


def _state(node: LbNode, state: str) -> None:
    wait_until(f"{node.name} {state}", lambda: node.state() == state)


def test_drain(fleet: Fleet) -> None:
    node = fleet.nodes[1]
    with fleet.scene("drain", node, planned=True, note=f"grace {DRAIN_GRACE_S:g} s") as scene:
        scene.fault()
        node.order("/gate/drain")
        scene.wait_out()
        _state(node, "stopped")
        scene.over()
        node.order("/gate/resume")


def test_maintenance(fleet: Fleet) -> None:
    node = fleet.nodes[2]
    with fleet.scene("maintenance", node, planned=True) as scene:
        scene.fault()
        node.order("/maintenance/enter")
        scene.wait_out()
        _state(node, "maintenance")
        scene.over()
        node.order("/maintenance/exit")


def test_degradation(fleet: Fleet) -> None:
    node = fleet.nodes[0]
    with fleet.scene("one degraded", planned=True) as scene:
        scene.fault()
        node.cue("braked")
        fleet.wait_weight(50, node)
        share = _share(scene, node)
        scene.note = f"weight 50 %, share {share:.0%}"
        scene.over()
        node.cue("well")
    assert 0.05 < share < 0.31, "a third of the requests would be its part at full weight"


def _share(scene: Scene, node: LbNode) -> float:
    """The node's part of the next 120 requests."""
    now_s = time.time()

    def counted() -> list[str]:
        servers = [one.server for one in scene.sent().values() if one.at_s > now_s]
        return servers if len(servers) >= 120 else []

    servers = wait_until("120 requests", counted)
    return servers.count(node.name) / len(servers)


def test_one_event_on_all_nodes(fleet: Fleet) -> None:
    """What touches a whole row at once (a power brake here) must be no outage."""
    with fleet.scene("all degraded", planned=True, note="weight 50 % everywhere, all served") as scene:
        scene.fault()
        for node in fleet.nodes:
            node.cue("braked")
        fleet.wait_weight(50, *fleet.nodes)
        scene.wait_for_traffic()
        scene.over()
        for node in fleet.nodes:
            node.cue("well")


def test_overheating(fleet: Fleet) -> None:
    """The engine goes on behind the closed gate, so what is in it is answered."""
    node = fleet.nodes[1]
    with fleet.scene("overheating", node, planned=True, note="confirmed for 2 s") as scene:
        scene.fault()
        node.cue("hot")
        scene.wait_out()
        _state(node, "failed")
        scene.over()
        node.cue("well")


def test_fatal_xid(fleet: Fleet) -> None:
    """A GPU that falls off the bus takes its engine's requests with it: the core stands still."""
    node = fleet.nodes[2]
    with fleet.scene("Xid 79", node, note="quarantine; back after `gate clear`") as scene:
        scene.fault()
        node.signal_core(signal.SIGSTOP)
        node.cue("xid")
        scene.wait_out()
        _state(node, "quarantined")
        wait_until("its engine has ended", lambda: not node.engine_pids() and not node.cores())
        scene.over()
        node.cue("well")
        node.order("/gate/clear")


def test_engine_hang(fleet: Fleet) -> None:
    node = fleet.nodes[0]
    with fleet.scene("engine hangs", node, note="SIGSTOP of the core; restarted") as scene:
        (core,) = node.cores()
        scene.fault()
        node.signal_core(signal.SIGSTOP)
        scene.wait_out()
        wait_until("another core", lambda: node.cores() not in ([], [core]))
        scene.over()


def test_engine_crash(fleet: Fleet) -> None:
    node = fleet.nodes[1]
    with fleet.scene("engine crashes", node, note="SIGKILL of the core; restarted") as scene:
        scene.fault()
        scene.over()
        node.signal_core(signal.SIGKILL)
        scene.wait_out()


def test_agent_killed(fleet: Fleet) -> None:
    """The engine serves on; nobody vouches for it, so it is taken out and nothing is lost."""
    node = fleet.nodes[2]
    with fleet.scene("agent killed", node, planned=True, note="engine adopted by the next agent") as scene:
        engine = node.engine_pids()
        scene.fault()
        node.kill_agent()
        scene.wait_out()
        scene.over()
        node.start()
        node.wait_serving(PATIENCE_S)
        assert node.engine_pids() == engine


def test_power_off(fleet: Fleet) -> None:
    """No reset comes from a node without power: keepalive ends what waits for it."""
    node = fleet.nodes[0]
    with fleet.scene("node without power", node, note="from boot on") as scene:
        scene.fault()
        node.power_off()
        scene.wait_out()
        scene.over()
        node.power_on()
        node.start()


def test_fewer_nodes_than_the_minimum(fleet: Fleet) -> None:
    """With one of three left, requests are refused at once and clearly, and nobody else's are lost."""
    first, second = fleet.nodes[:2]
    name = "below the minimum"
    with fleet.scene(name, first, second, planned=True, note=f"{MIN_LIVE} of 3 must be ready") as scene:
        scene.may_refuse = True
        assert fleet.front_status() == 200
        scene.fault()
        for node in (first, second):
            node.order("/gate/drain")
        scene.wait_out()
        wait_until("the service is not ready", lambda: fleet.front_status() == 503)
        wait_until("a refusal", lambda: 503 in {one.status for one in scene.sent().values()})
        for node in (first, second):
            _state(node, "stopped")
        scene.over()
        for node in (first, second):
            node.order("/gate/resume")
