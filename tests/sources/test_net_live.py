"""Netlink and ethtool on this machine's loopback, which every machine has; needs no privilege."""

from __future__ import annotations

import fcntl
import resource
import socket

import pytest

from agent.errors import DeviceAbsent, NotSupported, SourceUnavailable
from agent.sources import net_events
from agent.sources.net_events import LinkFollower
from agent.sources.net_wire import open_socket
from agent.sources.netlink import LiveNet

NET = LiveNet()


def test_link_of_loopback() -> None:
    info = NET.link("lo")
    assert (info.name, info.carrier_down_count) == ("lo", 0)
    assert info.operstate in ("unknown", "up", "down")
    assert info.mtu_bytes >= 1280
    assert info.carrier in (True, False)


def test_loopback_has_no_statistics_and_no_dcb() -> None:
    with pytest.raises(NotSupported):
        NET.ethtool_stats("lo")
    with pytest.raises(NotSupported):
        NET.dcb("lo")


def test_loopback_has_no_driver_no_pause_and_no_module() -> None:
    for read in (NET.driver, NET.pause, NET.ring):
        with pytest.raises(NotSupported):
            read("lo")
    # Without CAP_NET_ADMIN the kernel does not even say that there is no module.
    with pytest.raises((NotSupported, SourceUnavailable)):
        NET.module("lo")


@pytest.mark.parametrize("name", ["nope0", "", "x" * 16, "a/b", "a\0b", "\udcff", "."])
def test_no_such_interface(name: str) -> None:
    for read in (NET.link, NET.ethtool_stats, NET.dcb, NET.driver, NET.pause, NET.ring, NET.module):
        with pytest.raises(DeviceAbsent):
            read(name)


def test_follower_starts_and_stops_without_sending_anything() -> None:
    events: list[str] = []
    follower = LinkFollower(events.append)
    follower.start()
    follower.start()
    assert follower.wait_following(20)
    follower.close()
    follower.close()
    assert events == []


def test_the_follower_follows_with_a_thousand_files_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent keeps many files of sysfs open; select(2) would take no descriptor above 1023."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))

    def far_away(groups: int) -> socket.socket:
        with open_socket(groups) as near:
            return socket.socket(fileno=fcntl.fcntl(near, fcntl.F_DUPFD_CLOEXEC, 1500))

    monkeypatch.setattr(net_events, "open_socket", far_away)
    events: list[str] = []
    follower = LinkFollower(events.append)
    try:
        follower.start()
        assert follower.wait_following(10)
        follower.close()  # a thread that had died would have been told of by pytest
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert events == []
