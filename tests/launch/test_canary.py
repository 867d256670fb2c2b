"""What a canary's answer proves."""

from __future__ import annotations

import asyncio
import json

import pytest
from odd_server import http, odd_server
from ports import free_port

from agent.launch.canary import CanaryRunner, fault_of, progress_window_s
from agent.node_profile import Canary
from agent.sources import CanaryReport, CanaryVerdict
from agent.sources.clock import LiveClock
from agent.sources.engine import Completion, EngineClient


def completion(**changes: object) -> Completion:
    """A good one, changed."""
    good = {"http_status": 200, "text": " four", "finish_reason": "length", "completion_tokens": 2}
    return Completion(**{**good, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize("changes", [{}, {"finish_reason": "stop"}, {"text": "", "completion_tokens": 1}])
def test_proof(changes: dict[str, object]) -> None:
    assert fault_of(completion(**changes)) is None


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"finish_reason": "abort"}, "finish_reason is abort"),
        ({"finish_reason": None}, "finish_reason is None"),
        ({"completion_tokens": 0}, "no tokens"),
        ({"completion_tokens": None}, "no tokens"),
        ({"http_status": 404, "error": "no model"}, "HTTP 404: no model"),
        ({"http_status": 500}, "HTTP 500"),
        ({"error": "not a completion: x"}, "not a completion"),
    ],
)
def test_no_proof(changes: dict[str, object], text: str) -> None:
    fault = fault_of(completion(**changes))
    assert fault is not None and text in fault


def test_an_expected_text() -> None:
    assert fault_of(completion(text="three four"), "four") is None
    fault = fault_of(completion(text="garbage\n"), "four")
    assert fault == "the text 'garbage\\n' does not contain 'four'"


@pytest.mark.parametrize(("period_s", "deadline_s", "window_s"), [(10, 10, 5), (2, 10, 2), (60, 10, 5)])
def test_a_freeze_is_found_within_period_plus_deadline(
    period_s: float, deadline_s: float, window_s: float
) -> None:
    canary = Canary(period_s=period_s, deadline_s=deadline_s)
    assert progress_window_s(canary) == window_s
    # Worst case: frozen just after tokens moved that still count at this canary's deadline; the next one is
    # dead.
    worst_s = max(period_s, deadline_s) + deadline_s - (deadline_s - window_s)
    assert worst_s <= period_s + deadline_s


async def report(port: int, *, moved_ago_s: float | None = None, deadline_s: float = 0.4) -> CanaryReport:
    """One canary."""
    client = EngineClient("127.0.0.1", port)
    runner = CanaryRunner(Canary(period_s=10, deadline_s=deadline_s), client, LiveClock())
    if moved_ago_s is not None:
        runner.moved_mono_s = LiveClock().mono_s() + deadline_s - moved_ago_s
    try:
        return await runner.run("m")
    finally:
        await client.close()


def test_no_answer_and_no_progress_is_dead() -> None:
    async def scenario() -> None:
        async with odd_server(None) as port:
            found = await report(port)
            assert found.verdict is CanaryVerdict.DEAD
            assert 0.4 <= found.latency_s < 5
            assert (await report(port, moved_ago_s=30)).verdict is CanaryVerdict.DEAD

    asyncio.run(scenario())


def test_no_answer_but_progress_is_busy() -> None:
    async def scenario() -> None:
        async with odd_server(None) as port:
            found = await report(port, moved_ago_s=0.0)
            assert found.verdict is CanaryVerdict.BUSY
            assert "token counters move" in found.reason

    asyncio.run(scenario())


GOOD = {"choices": [{"text": "x", "finish_reason": "length"}], "usage": {"completion_tokens": 1}}
ABORTED = {"choices": [{"text": "", "finish_reason": "abort"}], "usage": {"completion_tokens": 0}}


@pytest.mark.parametrize(
    ("status", "body", "verdict"),
    [
        (200, json.dumps(GOOD), CanaryVerdict.OK),
        (200, json.dumps(ABORTED), CanaryVerdict.WRONG),
        (200, "hello", CanaryVerdict.WRONG),
        (404, "no such model", CanaryVerdict.WRONG),
        (401, "", CanaryVerdict.WRONG),
        (500, "EngineDeadError", CanaryVerdict.DEAD),
        (503, "overloaded", CanaryVerdict.DEAD),
    ],
)
def test_answers(status: int, body: str, verdict: CanaryVerdict) -> None:
    async def scenario() -> None:
        async with odd_server(http(status, body)) as port:
            assert (await report(port, deadline_s=10)).verdict is verdict

    asyncio.run(scenario())


@pytest.mark.parametrize("status", [429, 503])
def test_an_overloaded_engine_is_busy(status: int) -> None:
    async def scenario() -> None:
        async with odd_server(http(status, "too much")) as port:
            assert (await report(port, moved_ago_s=0.0)).verdict is CanaryVerdict.BUSY

    asyncio.run(scenario())


def test_nothing_there_is_dead() -> None:
    found = asyncio.run(report(free_port(), moved_ago_s=0.0))
    assert found.verdict is CanaryVerdict.DEAD
    assert "cannot be reached" in found.reason
