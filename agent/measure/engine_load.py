"""load.engine: requests through an engine that runs, by the soak's own client, while the hardware is watched.

On a replayed node requests go to an engine that says itself that it is SIMULATED (the demo's); where there is
none the load is only played, and the outcome says so: nothing is sent to what may be somebody's real service.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, Field

from agent.checklist.measure import MeasureContext, MeasureOutcome, measure
from agent.checklist.record import Value
from agent.checks import advice
from agent.checks.registry import load_all
from agent.engine_evidence import SoakResult
from agent.errors import LaunchError, SourceError
from agent.launch.engine_argv import served_name
from agent.launch.engine_monitor import HTTP_DEADLINE_S, EngineMonitor
from agent.launch.launch_profile import engine_api_key
from agent.launch.soak import SoakRun
from agent.measure.attend import TURN_S, Attendance, Attendant
from agent.measure.gpu_load import GpuLoad, judge_load
from agent.measure.load_watch import CoolingWatch, LoadWatch, Strictness
from agent.measure.outcome import NOT_MEASURED, Evidence, unknown
from agent.measure.throughput import Throughput
from agent.model import Basis, Finding, Verdict, worst
from agent.node_profile import Engine, Soak
from agent.sources.engine import EngineClient

NAME = "load.engine"
_SIMULATED = "SIMULATED"
_LOOK = advice.person("Look at the engine: nodegate status, and the last lines of its log.")


class EngineLoad(BaseModel):
    """Parameters of load.engine."""

    model_config = ConfigDict(extra="forbid")

    engine: str | None = Field(
        None, description="Engine that is loaded; null = each of the node, one after another"
    )
    duration_s: float = Field(description="Seconds of load", gt=0, le=172_800)
    concurrent: int = Field(8, description="Completions at the same time", ge=1, le=4096)
    prompt_tokens: int = Field(256, description="Tokens of each prompt", ge=1)
    max_tokens: int = Field(64, description="Tokens asked for in each", ge=1, le=4096)
    max_temperature_c: float | None = Field(
        None, description="Highest GPU temperature; null = only the limits of the checks", ge=30, le=120
    )
    no_throttle: bool = Field(True, description="A single moment of throttling for heat or power fails")


@measure(NAME, "Load through the engine", EngineLoad)
def engine_load(context: MeasureContext, params: EngineLoad) -> MeasureOutcome:
    """Send requests for a while and judge what was seen, engine by engine."""
    engines = context.profile.profile.engines
    names = [params.engine] if params.engine is not None else list(engines)
    if strange := [name for name in names if name not in engines]:
        known = ", ".join(engines) or "none"
        return unknown(f"{NOT_MEASURED}: the profile has no engine {strange[0]}; it has: {known}")
    led_here = [name for name in names if not engines[name].follows]
    if not led_here:
        return MeasureOutcome(Verdict.SKIP, "no engine of this node takes requests here")
    outcomes = {name: asyncio.run(_load(context, params, name, engines[name])) for name in led_here}
    return outcomes[led_here[0]] if len(led_here) == 1 else _together(outcomes)


def _together(outcomes: Mapping[str, MeasureOutcome]) -> MeasureOutcome:
    """The outcomes of several engines as one."""
    verdict = worst([outcome.verdict for outcome in outcomes.values()])
    return MeasureOutcome(
        verdict,
        "; ".join(f"{name}: {outcome.summary}" for name, outcome in outcomes.items()),
        tuple(value for outcome in outcomes.values() for value in outcome.values),
        tuple(finding for outcome in outcomes.values() for finding in outcome.findings),
        next((each.hint for each in outcomes.values() if each.verdict is verdict and each.hint), ""),
    )


async def _load(context: MeasureContext, params: EngineLoad, name: str, engine: Engine) -> MeasureOutcome:
    sources = context.sources
    strict = Strictness(params.no_throttle, params.max_temperature_c)
    watch = LoadWatch(
        context.profile, engine.gpus, sources, load_all(), params.duration_s, context.keep, strict,
        rdma=engine.launch.rdma,
    )  # fmt: skip
    cooling = CoolingWatch(context.profile, sources, load_all(), params.duration_s, context.keep)
    try:
        client = EngineClient(engine.host, engine.port, api_key=engine_api_key(engine))
    except LaunchError as cause:
        return unknown(f"{NOT_MEASURED}: {cause}")
    attendant = Attendant(context, watch, cooling=cooling)
    late = await attendant.begin()
    if late:
        return unknown(f"{NOT_MEASURED}: {late}")
    if sources.simulated and not await _is_simulated(client):
        words = f"{_SIMULATED} load (no {_SIMULATED} engine answers at {engine.host} port {engine.port})"
        context.say(f"{words} for {params.duration_s:g} s")
        found = await attendant.attend(None, params.duration_s)
        return _judge(params, name, found, watch, cooling, words, None)
    context.say(f"{params.concurrent} requests at once through {name} for {params.duration_s:g} s")
    return await _requests(context, params, name, client, watch, attendant, cooling)


async def _is_simulated(client: EngineClient) -> bool:
    """Whether the engine at this address says that it is no real one."""
    try:
        return _SIMULATED in await client.version(HTTP_DEADLINE_S)
    except SourceError:
        return False


async def _requests(
    context: MeasureContext,
    params: EngineLoad,
    name: str,
    client: EngineClient,
    watch: LoadWatch,
    attendant: Attendant,
    cooling: CoolingWatch,
) -> MeasureOutcome:
    """The soak's requests; ended when it is called off or its time is over."""
    soak = Soak(
        duration_s=params.duration_s, concurrent=params.concurrent, prompt_tokens=params.prompt_tokens,
        max_tokens=params.max_tokens,
    )  # fmt: skip
    clock, engine = context.sources.clock, context.profile.profile.engines[name]
    monitor = EngineMonitor(engine, client, clock, served_name(engine))
    run = SoakRun(engine.model_copy(update={"soak": soak}), monitor, watch, clock)
    started_s, found = clock.mono_s(), Attendance()
    task = asyncio.create_task(run.run())
    try:
        while not task.done():
            await asyncio.sleep(TURN_S)
            attendant.look_beside()
            if context.cancelled() or cooling.faults or clock.mono_s() >= context.until_mono_s:
                break
        result, broken = await _result(task)
    finally:
        task.cancel()
        attendant.drop()
    found.seconds = clock.mono_s() - started_s
    found.cancelled = context.cancelled()
    if result is None and not broken and not found.cancelled and not cooling.faults:
        found.problem = "not done when the step's time was over"
    words = f"requests through the engine{f' ({_SIMULATED})' if context.sources.simulated else ''}"
    return _judge(params, name, found, watch, cooling, words, result, broken)


async def _result(task: asyncio.Task[SoakResult]) -> tuple[SoakResult | None, str]:
    """What the soak says; None and why where the engine failed, None and nothing where it was ended."""
    if not task.done():
        return None, ""
    try:
        return task.result(), ""
    except LaunchError as cause:
        return None, str(cause).removeprefix("soak: ").removeprefix("soak failed: ")


def _judge(
    params: EngineLoad,
    name: str,
    found: Attendance,
    watch: LoadWatch,
    cooling: CoolingWatch,
    words: str,
    result: SoakResult | None,
    broken: str = "",
) -> MeasureOutcome:
    evidence = Evidence()
    if broken:
        basis = Basis.standard("an engine answers under load")
        finding = Finding(f"engine:{name}", Verdict.FAIL, broken, action=_LOOK, basis=basis)
        evidence.judge(NAME, finding)
    if result is not None:
        if not result.passed and not watch.faults:
            evidence.missing += result.faults
        rate = round(result.tokens / max(result.seconds, 1e-3), 1)
        value = Value(name="throughput", subject=f"engine:{name}", value=rate, unit="tokens/s")
        evidence.values.append(value)
        words += f", {result.completions} completions"
    asked = GpuLoad(duration_s=min(params.duration_s, found.seconds or params.duration_s))
    return judge_load(asked, found, watch, cooling, Throughput(), words, 0, evidence)
