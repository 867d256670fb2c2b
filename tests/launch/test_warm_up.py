"""The warm-up's requests, their order, their limits and their curve (a client that answers at once)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest
from fake_sources import FakeClock

from agent.engine_evidence import WarmupCurve
from agent.errors import LaunchError, SourceTimeout, SourceUnavailable
from agent.launch.engine_monitor import EngineMonitor
from agent.launch.warmup_plan import longest_prompt, token_prompt
from agent.node_profile import Engine
from agent.sources.engine import Completion, CompletionRequest, EngineMetrics, ModelCard

GOOD = Completion(200, " four", "length", 1)
VOCABULARY = [100, 101, 102, 103, 104, 105]


@dataclass
class FakeClient:
    """An engine of 4096 tokens; `refuse` makes of a request what it is answered, `slow_s` what it takes."""

    clock: FakeClock
    longest: int | None = 4096
    room: float | None = None
    first_token_s: float | None = 0.2
    refuse: dict[str, Any] = field(default_factory=dict)
    asked: list[CompletionRequest] = field(default_factory=list)
    streamed: int = 0
    at_once: int = 0
    most_at_once: int = 0

    async def model_cards(self, deadline_s: float) -> list[ModelCard]:
        return [ModelCard("other", 7), ModelCard("m", self.longest)]

    async def health(self, deadline_s: float, path: str) -> bool:
        return True

    async def metrics(self, deadline_s: float, kind: object) -> EngineMetrics:
        return EngineMetrics(kv_cache_tokens=self.room)

    async def tokenize(self, model: str, text: str, deadline_s: float) -> list[int]:
        if "tokenize" in self.refuse:
            raise SourceUnavailable("/tokenize answers HTTP 404")
        return VOCABULARY

    async def complete(self, request: CompletionRequest, deadline_s: float) -> Completion:
        self.asked.append(request)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        self.clock.now_s += 0.5
        answer = self.refuse.get("long" if isinstance(request.prompt, tuple) else "short", GOOD)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def stream(self, request: CompletionRequest, deadline_s: float) -> Completion:
        self.streamed += 1
        return self.refuse.get("stream") or Completion(
            200, " four", "length", 1, first_token_s=self.first_token_s
        )


def warmed(client: FakeClient, *, short: bool = False, ours: bool = True, **warmup: Any) -> WarmupCurve:
    """The curve of one warm-up."""
    engine = Engine(gpus=[], port=1, launch={"args": ["--max-num-seqs", "5"]}, warmup=warmup)
    monitor = EngineMonitor(engine, client, client.clock, "m")  # type: ignore[arg-type]

    async def scenario() -> None:
        await monitor.poll()
        await monitor.warm_up(lambda words: None, short=short, ours=ours)

    asyncio.run(scenario())
    assert monitor.curve is not None
    return monitor.curve


def test_all_of_it() -> None:
    client = FakeClient(FakeClock())
    curve = warmed(client)
    assert [step.kind for step in curve.steps] == [
        "short",
        "short",
        "long",
        *["concurrent"] * 5,
        "first_token",
    ]
    (long,) = [request for request in client.asked if isinstance(request.prompt, tuple)]
    assert len(long.prompt) == 4080 == curve.of("long")[0].prompt_tokens and long.max_tokens == 1
    assert set(long.prompt) <= set(VOCABULARY)
    assert client.most_at_once == 5
    prompts = [request.prompt for request in client.asked[:-1]]
    assert len(set(prompts)) == len(prompts)  # or the prefix cache would answer for the model
    assert client.asked[-1].prompt == "Count: one two three"  # the first canary
    assert curve.words() == (
        "short 0.50 s, 0.50 s; prefill of 4080 tokens 0.50 s; 5 at once, the slowest 2.50 s; "
        "first token 0.200 s"
    )
    assert curve.to_dict()["steps"][2] == {
        "kind": "long", "latency_s": 0.5, "prompt_tokens": 4080, "first_token_s": 0.5, "fault": "",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("more", "tokens"),
    [
        ({"long_prompt_tokens": 0}, None),
        ({"long_prompt_tokens": 100}, 100),
        ({"longest": None}, None),
        ({"room": 1000.0}, 984),  # SGLang's cache may hold less than its model takes
        ({"ours": False}, None),  # who knows whom it serves
        ({"ours": False, "long_prompt_tokens": 100}, 100),
        ({"short": True}, None),
    ],
)
def test_which_long_prompt(more: dict[str, Any], tokens: int | None) -> None:
    of_client = {key: more.pop(key) for key in ("longest", "room") if key in more}
    curve = warmed(FakeClient(FakeClock(), **of_client), **more)
    assert [step.prompt_tokens for step in curve.of("long")] == ([] if tokens is None else [tokens])


def test_an_adopted_engine_gets_one_short_request() -> None:
    assert [step.kind for step in warmed(FakeClient(FakeClock()), short=True).steps] == ["short"]


def test_an_engine_may_refuse_a_length_that_nobody_asked_for() -> None:
    refused = {"long": Completion(400, error="too long"), "tokenize": True}
    curve = warmed(FakeClient(FakeClock(), refuse=refused))
    assert "prefill of 4080 tokens (refused with HTTP 400)" in curve.words()
    with pytest.raises(LaunchError, match=r"request 3 \(a prefill of 99 tokens\) failed: HTTP 400: too long"):
        warmed(FakeClient(FakeClock(), refuse=refused), long_prompt_tokens=99)


@pytest.mark.parametrize(
    ("refuse", "error"),
    [
        ({"short": Completion(500, error="boom")}, "request 1 failed: HTTP 500: boom"),
        (
            {"long": SourceTimeout("no answer in 299 s")},
            "raise warmup.deadline_s or lower warmup.long_prompt",
        ),
        ({"long": Completion(200, "", "abort", 0)}, "finish_reason is abort"),
        ({"stream": Completion(503, error="dead")}, "HTTP 503: dead"),
    ],
)
def test_what_fails_it(refuse: dict[str, Any], error: str) -> None:
    with pytest.raises(LaunchError, match=error):
        warmed(FakeClient(FakeClock(), refuse=refuse))


def test_the_first_token_is_bounded_where_the_profile_says_so() -> None:
    slow = FakeClient(FakeClock(), first_token_s=3.0)
    assert "first token 3.000 s" in warmed(slow).words()
    with pytest.raises(LaunchError, match=r"took 3\.00 s, at most 1 s is allowed \(warmup\.first_token_s\)"):
        warmed(slow, first_token_s=1.0)
    no_stream = {"stream": Completion(400, error="no streams here")}
    assert (
        "first token (HTTP 400: no streams here)" in warmed(FakeClient(FakeClock(), refuse=no_stream)).words()
    )
    with pytest.raises(LaunchError, match="cannot be measured: HTTP 400"):
        warmed(FakeClient(FakeClock(), refuse=no_stream), first_token_s=1.0)


def test_prompts_of_tokens() -> None:
    for tokens in (1, 15, 16, 17, 5000):
        assert len(token_prompt(VOCABULARY, tokens, 1)) == tokens
    one, other = (token_prompt((), 64, seed) for seed in (1, 2))
    assert one[:16] != other[:16] and min(one) >= 100
    assert [longest_prompt(*of) for of in ((8, None), (100, None), (100, 50.0), (None, 50.0))] == [
        0,
        84,
        34,
        0,
    ]
