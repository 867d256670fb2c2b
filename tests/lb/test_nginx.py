"""Debian's nginx, which asks nobody, before two nodes whose kernels enforce the gate (nftables).

These nodes have no GPU and are no replays, for the enforced gate opens for no agent that is one; their
engines are embedded ones (SIMULATED). What nginx loses is counted by its own log.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from daemon_rig import wait_until
from lb_front import Nginx
from lb_node import PlainNode
from lb_scene import PATIENCE_S, Fleet, fleet_of

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    with fleet_of(PlainNode, 2, Nginx) as made:
        yield made


def test_drain(fleet: Fleet) -> None:
    node = fleet.nodes[0]
    with fleet.scene("drain", node, planned=True) as scene:
        scene.fault()
        node.order("/gate/drain")
        scene.wait_out()
        wait_until("stopped", lambda: node.state() == "stopped")
        scene.over()
        node.order("/gate/resume")


def test_engine_hang(fleet: Fleet) -> None:
    """Until the agent has found out, nginx sends more to it; those are lost with the core."""
    node = fleet.nodes[1]
    with fleet.scene("engine hangs", node, note="SIGSTOP of the core; restarted") as scene:
        (core,) = node.cores()
        scene.fault()
        node.signal_core(signal.SIGSTOP)
        scene.wait_out()
        wait_until("another core", lambda: node.cores() not in ([], [core]))
        scene.over()


def test_engine_crash(fleet: Fleet) -> None:
    node = fleet.nodes[0]
    with fleet.scene("engine crashes", node, note="SIGKILL of the core; restarted") as scene:
        scene.fault()
        scene.over()
        node.signal_core(signal.SIGKILL)
        scene.wait_out()


def test_agent_killed(fleet: Fleet) -> None:
    """The permission in the kernel ends by itself; the engine finishes what it has."""
    node = fleet.nodes[1]
    with fleet.scene("agent killed", node, planned=True, note="permission ends after 10 s") as scene:
        scene.fault()
        node.kill_agent()
        scene.wait_out()
        scene.over()
        node.start()
        node.wait_serving(PATIENCE_S)
