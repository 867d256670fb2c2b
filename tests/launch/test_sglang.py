"""SGLang behind the same interface: names of metrics, paths of health, a whole life (SIMULATED engine)."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest
from fake_h200 import h200_node, h200_profile
from launch_kit import EMBEDDED, engine_profile, rig, session
from ports import free_port

from agent.errors import ParseError
from agent.launch.embedded_engine import EmbeddedEngine, build_app
from agent.launch.embedded_flags import parse
from agent.launch.launch_profile import LaunchPlan, build_plan
from agent.launch.warmup_plan import full_concurrency
from agent.launch_parts import EngineKind
from agent.model import EnginePhase
from agent.sources import CanaryVerdict
from agent.sources.engine import parse_metrics

METRICS = """# TYPE sglang:prompt_tokens_total counter
sglang:prompt_tokens_total{model_name="m}"} 8.128902e+06
sglang:generation_tokens_total{model_name="m"} 7.557572e+06
sglang:cached_tokens_total{cache_source="device",model_name="m"} 3e+06
sglang:cached_tokens_total{cache_source="host",model_name="m"} 1e+06
sglang:realtime_tokens_total{mode="decode",model_name="m"} 10
sglang:realtime_tokens_total{mode="prefill_compute",model_name="m"} 32
sglang:token_usage{tp_rank="0",model_name="m"} 0.28
sglang:token_usage{tp_rank="1",model_name="m"} 0.30
sglang:num_running_reqs{model_name="m"} 2
sglang:num_queue_reqs{model_name="m"} 5
sglang:num_retracted_requests_total{model_name="m"} 4
sglang:time_to_first_token_seconds_sum{model_name="m"} 12.5
sglang:time_to_first_token_seconds_count{model_name="m"} 100
sglang:time_to_first_token_seconds_bucket{le="0.1",model_name="m"} 1
sglang:inter_token_latency_seconds_sum{model_name="m"} 9
sglang:inter_token_latency_seconds_count{model_name="m"} 900
sglang:max_total_num_tokens{tp_rank="0",model_name="m"} 161721
sglang:cache_hit_rate{model_name="m"} NaN
vllm:generation_tokens_total{model_name="m"} 1
"""


def test_its_metrics_are_read_by_its_own_names() -> None:
    found = parse_metrics(METRICS, EngineKind.SGLANG)
    assert found.generation_tokens == 7557572 and found.iterations == 42
    assert (found.prefix_queries, found.prefix_hits) == (8128902, 4e6)
    assert (found.requests_running, found.requests_waiting, found.preemptions) == (2, 5, 4)
    assert (found.kv_cache_used_ratio, found.kv_cache_tokens) == (0.30, 161721)
    assert (found.first_token_sum_s, found.first_token_count) == (12.5, 100)
    assert (found.between_tokens_sum_s, found.between_tokens_count) == (9, 900)
    assert parse_metrics(METRICS).generation_tokens == 1
    assert parse_metrics(METRICS).requests_running is None


@pytest.mark.parametrize("line", ["sglang:token_usage{", "sglang:token_usage", 'sglang:token_usage{a="b"} x'])
def test_garbled_lines_are_refused(line: str) -> None:
    with pytest.raises(ParseError, match="/metrics cannot be read"):
        parse_metrics(line, EngineKind.SGLANG)


def profile(port: int, *arguments: str, **more: Any) -> Any:
    """An embedded engine that stands for SGLang."""
    words = ["--as", "sglang", "--startup-s", "0.05", "--token-s", "0.002", "--context-length", "600"]
    launch = {"kind": "sglang", "command": EMBEDDED, "model": "sim", "args": [*words, *arguments]}
    warmup = {"requests": 1, "max_tokens": 2, "deadline_s": 20, "first_token_s": 10}
    return engine_profile(port, launch=launch, warmup=warmup, **more)


def test_its_whole_life(tmp_path: Path) -> None:
    async def scenario() -> None:
        loaded = profile(free_port(), "--enable-metrics", "--max-running-requests", "4", "--tp-size", "1")
        async with rig(tmp_path, loaded) as r:
            pid = await r.start()
            assert r.phases == [EnginePhase.STARTING, EnginePhase.UP, EnginePhase.WARM]
            curve = r.controller.status.warmup
            assert curve is not None
            assert [len(curve.of(kind)) for kind in ("short", "long", "concurrent", "first_token")] == [
                1,
                1,
                4,
                1,
            ]
            assert curve.of("long")[0].prompt_tokens == 584  # the whole context but a little
            assert curve.of("first_token")[0].first_token_s is not None
            await r.until("token counters", lambda: (r.observation.tokens_total or 0) > 0)
            (core,) = [stat.pid for stat in session(pid) if stat.comm == "SIM::EngineCore"]
            os.kill(core, signal.SIGSTOP)
            await r.until("a dead canary", lambda: r.observation.canary.verdict is CanaryVerdict.DEAD)
            assert r.observation.health_ok is True  # its server answers, as the real one's does
            os.kill(core, signal.SIGCONT)
            await r.until("a good canary", lambda: r.observation.canary.verdict is CanaryVerdict.OK)
            os.kill(core, signal.SIGKILL)
            await r.until("a clean end", lambda: EnginePhase.BACKOFF in r.phases)
            assert not session(pid)

    asyncio.run(scenario())


@pytest.mark.parametrize(("flags", "status"), [([], 404), (["--enable-metrics"], 200)])
def test_the_embedded_engine_has_metrics_only_when_asked(flags: list[str], status: int) -> None:
    async def scenario() -> None:
        app = build_app(EmbeddedEngine(parse(["--as", "sglang", "--model-path", "m", *flags]), None))
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://engine") as http:
            found = await http.get("/metrics")
            assert found.status_code == status
            if status == 200:
                assert parse_metrics(found.text, EngineKind.SGLANG).kv_cache_tokens == 65536
            assert (await http.get("/v1/models")).json()["data"][0]["id"] == "m"

    asyncio.run(scenario())


def test_how_many_at_once_follows_from_its_own_flag() -> None:
    of = profile(1, "--max-running-requests", "48").profile.engines["sim"]
    assert full_concurrency(of) == 48
    assert full_concurrency(profile(1).profile.engines["sim"]) == 2
    assert full_concurrency(profile(1, "--max-running-requests", "2048").profile.engines["sim"]) == 256
    assert full_concurrency(profile(1, "--max-num-seqs", "48").profile.engines["sim"]) == 2


def test_its_golden_launch() -> None:
    launch: dict[str, Any] = {
        "kind": "sglang",
        "command": ["python3", "-m", "sglang.launch_server"],
        "model": "/models/glm",
        "served_model_name": "glm",
        "flags": {
            "context-length": 131072,
            "enable-metrics": True,
            "mem-fraction-static": 0.88,
            "tp-size": 4,
        },
    }
    plan = planned(launch)
    assert plan.argv == (
        "python3", "-m", "sglang.launch_server", "--model-path", "/models/glm", "--host", "127.0.0.1",
        "--port", "8000", "--served-model-name", "glm", "--context-length", "131072", "--enable-metrics",
        "--mem-fraction-static", "0.88", "--tp-size", "4",
    )  # fmt: skip
    assert plan.env["CUDA_VISIBLE_DEVICES"].count("GPU-") == 4
    assert not [note for note in plan.notes if "metrics" in note]
    del launch["flags"]["enable-metrics"]
    launch["args"] = ["--api-key", "k"]
    notes = " ".join(planned(launch).notes)
    assert "no metrics without --enable-metrics" in notes
    assert "visible to every user" in notes and "VLLM_API_KEY" not in notes


def planned(launch: dict[str, Any]) -> LaunchPlan:
    """The plan of an engine on the first four GPUs of an H200 node."""
    profile = h200_profile({"engines": {"kimi": None, "glm": {"peers": None, "launch": launch}}})
    return build_plan(profile, "glm", h200_node().sources, {"PATH": "/usr/bin"})
