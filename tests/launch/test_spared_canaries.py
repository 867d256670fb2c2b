"""When a canary is sent, and when tokens that move by themselves stand for it (pure)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest
from fake_sources import FakeClock

from agent.errors import SourceTimeout
from agent.launch.canary import CanaryRunner, odd_text
from agent.launch.engine_monitor import EngineMonitor
from agent.launch.own_tokens import OwnTokens
from agent.node_profile import Canary, Engine
from agent.sources import CanaryVerdict
from agent.sources.engine import Completion, CompletionRequest, EngineMetrics

GOOD = Completion(200, " four five six", "length", 4)
GARBAGE = Completion(200, "!!!!", "length", 4)


@dataclass
class FakeClient:
    """An engine whose token counter tests move; its answers are given."""

    clock: FakeClock
    tokens: float | None = 100.0
    answers: list[Completion | None] = field(default_factory=list)
    sent: int = 0

    async def health(self, deadline_s: float, path: str = "/health") -> bool:
        return True

    async def metrics(self, deadline_s: float, kind: object = None) -> EngineMetrics:
        return EngineMetrics(generation_tokens=self.tokens)

    async def complete(self, request: CompletionRequest, deadline_s: float) -> Completion:
        self.sent += 1
        answer = self.answers.pop(0) if self.answers else GOOD
        if answer is None:
            self.clock.now_s += deadline_s
            raise SourceTimeout("no answer")
        if self.tokens is not None:
            self.tokens += 4
        return answer


def monitored(**canary: float) -> tuple[EngineMonitor, FakeClient, FakeClock]:
    clock = FakeClock()
    client = FakeClient(clock)
    engine = Engine(gpus=[], port=1, canary=Canary(**{"period_s": 10, "deadline_s": 10, **canary}))
    return EngineMonitor(engine, client, clock, "m"), client, clock  # type: ignore[arg-type]


def seconds(monitor: EngineMonitor, client: FakeClient, clock: FakeClock, count: int, tokens: int) -> None:
    """Let time pass with a poll each second, in which the engine makes tokens for its clients."""
    for _ in range(count):
        clock.now_s += 1
        client.tokens = None if client.tokens is None else client.tokens + tokens
        asyncio.run(monitor.poll())


def test_an_idle_engine_is_asked_each_period() -> None:
    monitor, client, clock = monitored()
    seconds(monitor, client, clock, 3, 0)
    sent = clock.now_s
    asyncio.run(monitor.canary())
    seconds(monitor, client, clock, 3, 0)  # its own tokens are seen here and are no traffic
    assert monitor.canary_due_mono_s(sent) == sent + 10


def test_an_engine_without_counters_is_asked_each_period() -> None:
    monitor, client, clock = monitored()
    client.tokens = None
    sent = clock.now_s
    asyncio.run(monitor.canary())
    seconds(monitor, client, clock, 9, 5)
    assert monitor.canary_due_mono_s(sent) == sent + 10


def test_moving_tokens_stand_for_a_canary_but_not_for_ever() -> None:
    monitor, client, clock = monitored(busy_period_s=60)
    sent = clock.now_s
    asyncio.run(monitor.canary())
    seconds(monitor, client, clock, 9, 5)
    assert monitor.canary_due_mono_s(sent) >= clock.now_s + 8
    report = monitor.spare_canary()
    assert report.verdict is CanaryVerdict.MOVING
    assert clock.now_s - 2 <= report.ended_mono_s <= clock.now_s
    assert client.sent == 1
    seconds(monitor, client, clock, 70, 5)
    assert monitor.canary_due_mono_s(sent) == sent + 60  # its text is looked at all the same


def test_a_freeze_is_found_a_period_and_a_deadline_after_the_last_token() -> None:
    monitor, client, clock = monitored()
    sent = clock.now_s
    asyncio.run(monitor.canary())
    seconds(monitor, client, clock, 25, 5)
    frozen = clock.now_s
    seconds(monitor, client, clock, 5, 0)
    due = monitor.canary_due_mono_s(sent)
    assert frozen < due <= frozen + 10
    clock.now_s = due
    client.answers = [None]
    report = asyncio.run(monitor.canary())
    assert report.verdict is CanaryVerdict.DEAD
    assert report.ended_mono_s <= frozen + 20


def test_a_request_of_the_agents_own_stands_for_a_canary_and_ages_like_one() -> None:
    monitor, _, clock = monitored()
    asyncio.run(monitor.canary())
    clock.now_s += 60
    monitor.witness("requests of the soak are answered")
    answered_s = clock.now_s
    clock.now_s += 5
    report = monitor.report
    assert report is not None and report.verdict is CanaryVerdict.MOVING
    assert report.ended_mono_s == answered_s and report.reason == "requests of the soak are answered"


def test_a_canary_that_looked_like_garbage_is_not_forgotten_beside_such_requests() -> None:
    monitor, client, clock = monitored()
    client.answers = [Completion(200, "!!!!", "length", 4)]
    assert asyncio.run(monitor.canary()).verdict is CanaryVerdict.ODD
    clock.now_s += 3
    monitor.witness("requests of the soak are answered")
    assert monitor.report is not None and monitor.report.verdict is CanaryVerdict.ODD
    assert monitor.report.ended_mono_s == clock.now_s


def test_a_failed_canary_is_repeated_although_tokens_move() -> None:
    monitor, client, clock = monitored()
    client.answers = [Completion(200, "", "abort", 0)]
    sent = clock.now_s
    assert asyncio.run(monitor.canary()).verdict is CanaryVerdict.WRONG
    seconds(monitor, client, clock, 5, 5)
    assert monitor.canary_due_mono_s(sent) == sent + 10


def test_a_busy_engine_stays_busy_while_none_is_sent() -> None:
    monitor, client, clock = monitored(deadline_s=2)
    seconds(monitor, client, clock, 3, 5)

    async def with_traffic(request: CompletionRequest, deadline_s: float) -> Completion:
        for _ in range(2):
            clock.now_s += 1
            client.tokens = (client.tokens or 0) + 5
            await monitor.poll()
        raise SourceTimeout("no answer")

    client.complete = with_traffic  # type: ignore[method-assign]
    sent = clock.now_s
    assert asyncio.run(monitor.canary()).verdict is CanaryVerdict.BUSY
    assert monitor.canary_due_mono_s(sent) > sent + 10  # its clients' tokens count
    assert monitor.spare_canary().verdict is CanaryVerdict.BUSY


def test_progress_that_a_poll_saw_while_a_request_of_ours_was_in_flight_is_ours() -> None:
    clock = FakeClock()
    own = OwnTokens(clock)
    with own.request():
        own.polled(clock.now_s + 1, moved=True)
        clock.now_s += 2
    own.polled(clock.now_s - 0.5, moved=True)  # began before the request had ended
    assert own.traffic_mono_s is None
    own.polled(clock.now_s + 1, moved=True)  # may still count what it made at its end
    assert own.traffic_mono_s is None
    own.polled(clock.now_s + 2, moved=True)
    assert own.traffic_mono_s == clock.now_s + 1
    assert own.progress_mono_s == clock.now_s + 1


@pytest.mark.parametrize(
    ("text", "tokens", "odd"),
    [
        (" four five six", 4, ""),
        ("", 1, ""),
        ("1 1", 2, ""),
        ("", 4, "no visible text"),
        (" \n\n ", 4, "no visible text"),
        ("!!!!", 4, "one character"),
        ("\ufffd\ufffd\ufffd", 3, "no text"),
        (" the the the", 3, "one word"),
        ("!!?!", 4, ""),
    ],
)
def test_what_looks_like_garbage(text: str, tokens: int, odd: str) -> None:
    found = odd_text(Completion(200, text, "length", tokens))
    assert odd in found and bool(odd) == bool(found)


def verdicts(*answers: Completion, expect_text: str | None = None) -> list[str]:
    clock = FakeClock()
    client = FakeClient(clock, answers=[*answers])
    runner = CanaryRunner(Canary(expect_text=expect_text), client, clock)  # type: ignore[arg-type]
    return [asyncio.run(runner.run("m")).verdict.value for _ in answers]


def test_garbage_is_wrong_only_of_an_engine_that_can_do_better() -> None:
    assert verdicts(GARBAGE, GARBAGE, GARBAGE) == ["odd", "odd", "odd"]
    assert verdicts(GOOD, GARBAGE, GARBAGE, GOOD) == ["ok", "odd", "wrong", "ok"]
    assert verdicts(GOOD, GARBAGE, GOOD, GARBAGE) == ["ok", "odd", "ok", "odd"]
    assert verdicts(GARBAGE, expect_text="four") == ["wrong"]
    assert verdicts(GARBAGE, expect_text="!!") == ["ok"]
