"""The embedded engine: vLLM's interface and faults, all of it SIMULATED."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
from launch_kit import EMBEDDED
from ports import free_port

from agent.sources.engine import parse_metrics


@asynccontextmanager
async def engine(
    *arguments: str, **env: str
) -> AsyncIterator[tuple[asyncio.subprocess.Process, httpx.AsyncClient]]:
    """A running one and a client."""
    port = free_port()
    words = ["m", "--port", str(port), "--startup-s", "0.1", "--token-s", "0.002", *arguments]
    process = await asyncio.create_subprocess_exec(*EMBEDDED, *words, env={**os.environ, **env})
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=20) as http:
        try:
            async with asyncio.timeout(30):
                while True:
                    try:
                        await http.get("/health")
                        break
                    except httpx.ConnectError:
                        await asyncio.sleep(0.02)
            yield process, http
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
            await process.wait()


def test_its_endpoints_are_vllms_and_say_simulated() -> None:
    async def scenario() -> None:
        async with engine("--tensor-parallel-size", "8", "--enforce-eager", "--served-model-name", "s") as (
            _,
            http,
        ):
            models = (await http.get("/v1/models")).json()
            assert [model["id"] for model in models["data"]] == ["s"]
            assert "SIMULATED" in (await http.get("/version")).json()["version"]
            body = {"model": "s", "prompt": "a b", "max_tokens": 3, "temperature": 0}
            plain = await http.post("/v1/completions", json=body)
            assert plain.headers["x-nodegate-simulated"] == "true"
            assert plain.json()["choices"][0]["text"] == "SIMULATED one two"
            assert plain.json()["usage"] == {"prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5}
            chat = {"model": "s", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
            message = (await http.post("/v1/chat/completions", json=chat)).json()["choices"][0]["message"]
            assert message == {"role": "assistant", "content": "SIMULATED one"}
            metrics = parse_metrics((await http.get("/metrics")).text)
            assert metrics.generation_tokens == 5 and metrics.iterations == 5
            assert metrics.requests_running == 0 and metrics.kv_cache_used_ratio == 0
            assert (await http.post("/v1/completions", json={**body, "model": "x"})).status_code == 404
            assert (await http.post("/v1/completions", json={**body, "max_tokens": 0})).status_code == 422

    asyncio.run(scenario())


def test_a_key_is_asked_for() -> None:
    async def scenario() -> None:
        async with engine(VLLM_API_KEY="k") as (_, http):
            assert (await http.get("/v1/models")).status_code == 401
            assert (await http.get("/health")).status_code == 200
            given = await http.get("/v1/models", headers={"Authorization": "Bearer k"})
            assert given.status_code == 200

    asyncio.run(scenario())


def test_a_hung_core_looks_as_in_vllm() -> None:
    async def scenario() -> None:
        async with engine() as (_, http):
            body = {"model": "m", "prompt": "a", "max_tokens": 2}
            assert (await http.post("/simulated/hang")).status_code == 200
            hanging = asyncio.create_task(http.post("/v1/completions", json=body))
            await asyncio.sleep(0.3)
            assert not hanging.done()
            assert (await http.get("/health")).status_code == 200
            assert parse_metrics((await http.get("/metrics")).text).requests_running == 0
            await http.post("/simulated/resume")
            assert (await hanging).status_code == 200
            assert (await http.post("/simulated/nonsense")).status_code == 404

    asyncio.run(scenario())


def test_a_killed_core_ends_the_server_with_exit_code_0() -> None:
    async def scenario() -> None:
        async with engine("--token-s", "5") as (process, http):
            body = {"model": "m", "prompt": "a", "max_tokens": 2}
            pending = asyncio.create_task(http.post("/v1/completions", json=body))
            await asyncio.sleep(0.2)
            await http.post("/simulated/kill")
            assert (await pending).status_code == 500
            assert await asyncio.wait_for(process.wait(), 30) == 0

    asyncio.run(scenario())


def test_an_unknown_flag_ends_with_2() -> None:
    async def scenario() -> int:
        process = await asyncio.create_subprocess_exec(
            *EMBEDDED, "m", "--swap-space", "8", stderr=asyncio.subprocess.DEVNULL
        )
        return await process.wait()

    assert asyncio.run(scenario()) == 2
