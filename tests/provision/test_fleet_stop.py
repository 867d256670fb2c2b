"""Ctrl-C of a fleet run: Ansible is asked, asked again if it has not heard, and killed in the end."""

from __future__ import annotations

import signal

import pytest

from agent.fleet import bringup
from agent.fleet.bringup import ASK_AGAIN_S, GRACE_S, Stop

PID = 4242


class Time:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(bringup.os, "kill", lambda pid, number: sent.append((pid, number)))
    return sent


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    clock = Time()
    monkeypatch.setattr(bringup, "time", clock)
    return clock


def running() -> Stop:
    stop = Stop()
    stop.saw({"pid": PID})
    return stop


def test_nothing_is_stopped_unasked(asked: list[tuple[int, int]]) -> None:
    assert not running().kill_now() and not asked


def test_an_interrupt_that_was_not_heard_is_repeated_until_the_grace_is_over(
    asked: list[tuple[int, int]], time: Time
) -> None:
    stop = running()
    stop.handle(signal.SIGINT, None)
    assert asked == [(PID, signal.SIGINT)] and not stop.kill_now()
    time.now_s += ASK_AGAIN_S + 0.1
    assert not stop.kill_now() and asked == [(PID, signal.SIGINT)] * 2
    assert not stop.kill_now() and len(asked) == 2
    time.now_s += GRACE_S
    assert stop.kill_now()


def test_the_second_time_it_is_killed_at_once(asked: list[tuple[int, int]], time: Time) -> None:
    stop = running()
    stop.handle(signal.SIGINT, None)
    stop.handle(signal.SIGINT, None)
    assert stop.kill_now() and len(asked) == 1


def test_before_ansible_has_begun_there_is_nobody_to_ask(asked: list[tuple[int, int]]) -> None:
    stop = Stop()
    stop.handle(signal.SIGINT, None)
    assert stop.kill_now() and not asked
