"""The enforced gate in the kernel: a client and a node in network namespaces, the helper as it is shipped.

The engine is a TCP server that echoes and the agent an HTTP server that answers what the test says.
"""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon_rig import wait_until
from enforce_net import (
    CLIENT4,
    ENGINE_PORT,
    FRIEND4,
    NODE4,
    NODE6,
    NODEGATE,
    OTHER_PORT,
    EnforceNet,
)

pytestmark = [pytest.mark.root, pytest.mark.timeout(120)]
TIMEOUT_S, PERIOD_S = 2.0, 0.1
#: What a busy machine may add to a time of the kernel's or the helper's.
SLACK_S = 1.0
OTHER_TABLE = "table inet somebody_elses"


@pytest.fixture
def net(tmp_path: Path) -> Iterator[EnforceNet]:
    made = EnforceNet(tmp_path, timeout_s=TIMEOUT_S, period_s=PERIOD_S, allow=[FRIEND4])
    made.node.run("nft", "add", OTHER_TABLE)
    yield made
    made.close()


def _transfers(connection: socket.socket) -> None:
    """A megabyte there and back."""
    sent = 0
    for _ in range(16):
        connection.sendall(b"x" * 65536)
        sent += 65536
        while sent:
            got = connection.recv(65536)
            assert got, "the connection has ended"
            sent -= len(got)


def _always_reachable(net: EnforceNet) -> None:
    """What no gate changes: the node itself, other ports, and who is let through by name."""
    for address in ("127.0.0.1", "::1", NODE4, NODE6):
        assert not net.node.refused(address), address
    assert not net.client.refused(port=OTHER_PORT)
    assert not net.client.refused(source=FRIEND4)
    assert OTHER_TABLE in net.node.run("nft", "list", "tables").stdout


def test_the_kernel_follows_the_published_answer(net: EnforceNet, capsys: pytest.CaptureFixture[str]) -> None:
    told: list[str] = []
    try:
        _follow(net, told)
        _ends(net, told)
    finally:
        with capsys.disabled():
            print("\n" + "\n".join(told))


def _follow(net: EnforceNet, told: list[str]) -> None:
    assert not net.client.refused(), "nothing is enforced before the helper runs"
    before = net.client.connect(NODE4, ENGINE_PORT)
    net.start_helper()
    net.until(True, 30)
    assert net.client.refused(NODE6) and net.client.refused(source=CLIENT4)
    _transfers(before)
    _always_reachable(net)

    net.agent.status = 200
    told.append(f"gate opens, a new connection is taken: {net.until(False, SLACK_S):.3f} s")
    assert not net.client.refused(NODE6)
    kept = net.client.connect(NODE6, ENGINE_PORT)
    net.agent.status = 503
    told.append(f"gate closes, a new connection is reset: {net.until(True, SLACK_S):.3f} s")
    began_s = time.monotonic()
    assert net.client.refused()
    told.append(f"the reset itself: {(time.monotonic() - began_s) * 1000:.1f} ms")
    for connection in (before, kept):
        _transfers(connection)
    _always_reachable(net)

    net.agent.status = 200
    net.until(False, SLACK_S)
    taken, end_s = 0, time.monotonic() + 2 * TIMEOUT_S
    while time.monotonic() < end_s:
        assert not net.client.refused(), f"refused after {taken} connections while the gate was open"
        taken += 1
    told.append(f"gate open for {2 * TIMEOUT_S:g} s, six renewals: {taken} connections, none refused")
    before.close()
    kept.close()


def _ends(net: EnforceNet, told: list[str]) -> None:
    kept = net.client.connect(NODE4, ENGINE_PORT)
    net.end_helper()
    told.append(f"helper killed, closed by the kernel: {net.until(True, TIMEOUT_S + SLACK_S):.2f} s")
    _transfers(kept)
    _always_reachable(net)
    net.start_helper()
    told.append(f"helper started again, open: {net.until(False, 30):.2f} s")

    net.agent.vanish()
    told.append(f"agent gone, closed by the kernel: {net.until(True, TIMEOUT_S + SLACK_S):.2f} s")
    net.agent.start()
    told.append(f"agent back, open: {net.until(False, SLACK_S):.2f} s")
    net.agent.status = 503
    net.until(True, SLACK_S)

    assert net.node.run("nft", "delete", "table", "inet", "nodegate").returncode == 0
    told.append(f"table deleted by somebody, closed again: {net.until(True, TIMEOUT_S + SLACK_S):.2f} s")
    wait_until("a word on that", lambda: "the table was loaded again" in net.log(), 10)

    net.agent.status = 200
    net.until(False, SLACK_S)
    assert net.end_helper(signal.SIGTERM) == 0
    told.append(f"helper stopped in order, closed by itself: {net.until(True, TIMEOUT_S + SLACK_S):.2f} s")
    _transfers(kept)
    kept.close()
    nodegate = "table inet nodegate"
    assert nodegate in net.node.run(str(NODEGATE), "enforce", "show").stdout
    assert net.node.run(str(NODEGATE), "enforce", "off").returncode == 0
    assert not net.client.refused()
    assert net.node.run(str(NODEGATE), "enforce", "show").returncode == 1
    assert OTHER_TABLE in net.node.run("nft", "list", "tables").stdout


REDIRECT = f"""\
add table ip publish
add chain ip publish prerouting {{ type nat hook prerouting priority -100; }}
add rule ip publish prerouting tcp dport {ENGINE_PORT} redirect to :{OTHER_PORT}
"""


def test_a_published_port_is_a_port_of_the_engine_too(net: EnforceNet) -> None:
    """As container engines publish one: the packet's port is another when it is delivered."""
    (net.folder / "publish.nft").write_text(REDIRECT)
    done = net.node.run("nft", "-f", str(net.folder / "publish.nft"))
    assert done.returncode == 0, done.stderr
    net.start_helper()
    net.until(True, 30)
    assert not net.client.refused(port=OTHER_PORT)
    net.agent.status = 200
    net.until(False, SLACK_S)


def test_disabled_takes_the_table_away_and_ends(net: EnforceNet) -> None:
    net.start_helper()
    net.until(True, 30)
    net.end_helper()
    net.profile.write_text(net.profile.read_text().replace('"enabled": true', '"enabled": false'))
    net.start_helper()
    assert net.helper is not None and net.helper.wait(30) == 0
    assert not net.client.refused()
