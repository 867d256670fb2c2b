"""Link events in a network namespace of the test's own: a link that goes down is told within milliseconds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.root
REPOSITORY = Path(__file__).resolve().parents[2]
#: Runs inside the namespace. Prints link states and how long after each `ip` command its event had come.
INSIDE = """
import json, subprocess, threading, time
from agent.sources.net_events import LinkFollower
from agent.sources.netlink import LiveNet

came = threading.Event()
follower = LinkFollower(lambda kind: came.set())
follower.start()
assert follower.wait_following(20)
net, out = LiveNet(), []
for state in ("up", "down", "up"):
    came.clear()
    subprocess.run(["ip", "link", "set", "veth1", state], check=True)
    begun = time.monotonic()
    assert came.wait(20), "no event"
    late_s = time.monotonic() - begun
    end = time.monotonic() + 20
    while net.link("veth0").carrier is not (state == "up"):
        assert time.monotonic() < end, "carrier did not follow"
        time.sleep(0.001)
    info = net.link("veth0")
    out.append([state, late_s, info.operstate, info.carrier, info.carrier_down_count])
came.clear()
subprocess.run(["ip", "link", "set", "veth0", "mtu", "9000"], check=True)
assert came.wait(20), "no event for the MTU"
stats = net.ethtool_stats("veth0")
follower.close()
print(json.dumps({"out": out, "mtu": net.link("veth0").mtu_bytes, "stats": len(stats)}))
"""


@pytest.fixture
def namespace() -> Iterator[str]:
    name = f"nodegate-{os.getpid()}"

    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True, timeout=30)

    ip("netns", "add", name)
    try:
        ip("-n", name, "link", "add", "veth0", "type", "veth", "peer", "name", "veth1")
        ip("-n", name, "link", "set", "veth0", "up")
        yield name
    finally:
        ip("netns", "del", name)


def test_link_down_is_told_at_once(namespace: str) -> None:
    argv = ["ip", "netns", "exec", namespace, sys.executable, "-c", INSIDE]
    done = subprocess.run(argv, cwd=REPOSITORY, check=True, capture_output=True, text=True, timeout=100)
    told = json.loads(done.stdout)
    assert [(state, operstate, carrier) for state, _, operstate, carrier, _ in told["out"]] == [
        ("up", "up", True),
        ("down", "lowerlayerdown", False),
        ("up", "up", True),
    ]
    assert told["out"][1][4] == told["out"][0][4] + 1
    assert max(late_s for _, late_s, *_ in told["out"]) < 0.2
    assert told["mtu"] == 9000
    assert told["stats"] > 0
