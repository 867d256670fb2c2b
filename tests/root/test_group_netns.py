"""One model over two nodes (network namespaces): management and data link cut separately, ranks killed."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon_rig import wait_until
from netns_pair import ENGINE, NODES, NetnsPair, NsRig, Watch

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]


@pytest.fixture
def net() -> Iterator[NetnsPair]:
    made = NetnsPair()
    yield made
    made.close()


@pytest.fixture
def key(tmp_path: Path) -> Path:
    return _key(tmp_path / "group.key", "one-key-for-all-members-0123456789")


def _key(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o600)
    return path


@pytest.fixture
def pair(tmp_path: Path, net: NetnsPair, key: Path) -> Iterator[tuple[NsRig, NsRig]]:
    rigs = NsRig(tmp_path / "a", net, 0, key), NsRig(tmp_path / "b", net, 1, key)
    yield rigs
    for rig in rigs:
        rig.close()


def _member(rig: NsRig) -> None:
    wait_until("member", lambda: rig.state == "member", 60)


def test_the_head_is_ready_only_with_all_and_heals_by_itself(
    net: NetnsPair, pair: tuple[NsRig, NsRig], capsys: pytest.CaptureFixture[str]
) -> None:
    head, follower = pair
    told: list[str] = []
    watch = Watch(head, told)
    try:
        _walk(net, head, follower, watch)
    finally:
        with capsys.disabled():
            print("\n" + "\n".join(told))


def _walk(net: NetnsPair, head: NsRig, follower: NsRig, watch: Watch) -> None:
    head.start()
    wait_until("the head waits", lambda: "no status from node-b (rank 1)" in head.why(), 60)
    watch.never(200, 1)
    assert not head.ranks(), "no rank starts before all are armed"
    follower.start()
    watch.until(200, "second agent started, head ready", 60)
    assert (follower.state, follower.code(), follower.agent_line(ENGINE)) == ("member", 503, "down #member\n")
    generation = head.view()["generation"]
    assert generation == follower.view()["generation"]

    net.cut("data")
    assert watch.until(503, "data link cut, head closed", 12) > 2
    assert "data path to node-b" in head.why()
    net.heal("data")
    watch.until(200, "data link healed after that, head ready", 30)
    assert head.view()["generation"] == generation, "the ranks were kept"

    net.cut("mgmt")
    watch.never(503, 5)
    net.heal("mgmt")
    watch.never(503, 1)

    net.cut("mgmt")
    began = time.monotonic()
    closed_s = watch.until(503, "management link cut, head closed", 25)
    assert 12 <= closed_s <= 18
    wait_until("the ranks have ended", lambda: not head.ranks() and not follower.ranks(), 20)
    time.sleep(max(0.0, began + 20 - time.monotonic()))
    net.heal("mgmt")
    watch.until(200, "management link healed after 20 s, head ready", 60)

    follower.kill_rank()
    watch.until(503, "rank 1 killed, head closed", 5)
    watch.until(200, "rank 1 killed, head ready again", 60)
    head.kill_rank()
    watch.until(503, "rank 0 killed, head closed", 5)
    watch.until(200, "rank 0 killed, head ready again", 60)
    _member(follower)

    _restart_agents(head, follower, watch)


def _restart_agents(head: NsRig, follower: NsRig, watch: Watch) -> None:
    generation, ranks = head.view()["generation"], (head.ranks(), follower.ranks())
    follower.stop(signal.SIGKILL)
    follower.start()
    watch.never(503, 4)
    _member(follower)
    head.stop(signal.SIGKILL)
    head.start()
    watch.until(200, "head's agent killed and started, head ready", 60)
    assert (head.ranks(), follower.ranks()) == ranks, "both ranks were adopted"
    assert head.view()["generation"] == follower.view()["generation"] == generation


def test_profiles_that_differ_and_a_wrong_key_start_nothing(
    pair: tuple[NsRig, NsRig], tmp_path: Path, key: Path
) -> None:
    head, follower = pair
    follower.profile["engines"][ENGINE]["launch"]["args"] += ["--max-num-seqs", "8"]
    follower.write_profile()
    head.start()
    follower.start()
    both = "launch.args of the profile differ from those of {} (rank {})"
    wait_until("head says so", lambda: both.format(NODES[1], 1) in head.why(), 60)
    wait_until("follower says so", lambda: both.format(NODES[0], 0) in follower.why(), 60)
    assert (head.code(), head.ranks(), follower.ranks()) == (503, [], [])

    follower.stop()
    follower.profile["engines"][ENGINE]["launch"]["args"] = head.profile["engines"][ENGINE]["launch"]["args"]
    follower.group["key_file"] = str(_key(tmp_path / "other.key", "another-key-than-the-others-have-000"))
    follower.write_profile()
    follower.start()
    wait_until("head refuses", lambda: "signed with another key" in head.why(), 60)
    assert (head.code(), head.ranks(), follower.ranks()) == (503, [], [])
    for rig in pair:
        assert "one-key-for-all" not in rig.log() and "another-key" not in rig.log()

    follower.stop()
    follower.group["key_file"] = str(key)
    follower.write_profile()
    follower.start()
    wait_until("ready once they agree", lambda: head.code() == 200, 60)
