"""The scenes that alert_series.py writes: incidents 7 and 15, and a row whose cooling fails (2)."""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from unittest.mock import patch

import yaml
from alert_series import STEP_S, SeriesLog, fires, scene_file
from gate_kit import Bench
from group_kit import World
from incident_drill import Drill
from incident_shows import shown
from metrics_pages import SHORT_WINDOWS, page_of
from repo_files import ROOT
from runner_kit import snapshot
from stage_time import START_MONO_S

from agent.group.state import Mine
from agent.metrics import GateSample, render_metrics
from agent.metrics_more import More
from agent.metrics_view import group_sample
from agent.model import GateState
from agent.sources.group_reading import GroupObservation


def target(node: str, **labels: str) -> dict[str, str]:
    """The labels that a scrape gives."""
    return {"node": node, "instance": f"{node}:9470", "job": "nodegate", **labels}


def pass_time(drill: Drill, seconds: float) -> None:
    """Let virtual time pass; results are told by the clock that jumps, too."""
    with patch("agent.teller.time", SimpleNamespace(monotonic=drill.clock.mono_s)):
        drill.run(seconds)


def prompts_changed() -> str:
    """Incident 7: the scene of tests/incidents, from the engine's counters to the alert."""
    scene = yaml.safe_load((ROOT / "tests/incidents/scenes/07-prefix-cliff.yaml").read_text())
    log = SeriesLog()
    with TemporaryDirectory() as folder:
        overlay = Path(folder) / "overlay.yaml"
        overlay.write_text(SHORT_WINDOWS)
        drill = Drill(scene["node"], overlays=(overlay,), only=("engine.prefix_cache",))
        with closing(drill):
            drill.beat_s = float(STEP_S) / 3
            begun_s = drill.clock.now_s
            drill.engines["main"].shows = shown(dict(scene["engines"]["main"]), begun_s - START_MONO_S)
            for _ in range(20 * 60 // STEP_S):
                pass_time(drill, STEP_S)
                log.take({"h200-1": page_of(drill)})
    cliff = target("h200-1", engine="main", **{"$value": "7%"})
    tests = [
        fires("14m", "NodegatePromptsChanged"),
        fires("18m30s", "NodegatePromptsChanged", cliff),
        # It is no fault of the node: the gate stays open.
        *(
            fires("18m30s", alert)
            for alert in ("NodegateCheckFailing", "NodegateGateClosed", "NodegateDegraded")
        ),
    ]
    why = "SIMULATED. The hit rate is 89 % for 15 min, then a release puts a session id first: 7 %."
    return scene_file("incident 7: prompts changed", log, tests, why)


def row_grows_warm() -> str:
    """Incident 2 for a row: flow is lost, every GPU of two nodes grows warm; one alert, not 16."""
    log = SeriesLog(row="a")
    with TemporaryDirectory() as folder, ExitStack() as stack:
        drills = {f"b300-{number + 1}": _growing_warm(number, Path(folder)) for number in range(2)}
        for drill in drills.values():
            stack.enter_context(closing(drill))
            drill.begin()
        for _ in range(26 * 60 // STEP_S):
            for drill in drills.values():
                pass_time(drill, STEP_S)
            log.take({node: page_of(drill) for node, drill in drills.items()})
    tests = [
        fires("19m", "NodegateRowMarginShrinks"),
        fires("26m", "NodegateRowMarginShrinks", {"row": "a", "$value": "2"}),
        fires("26m", "NodegateGateClosed"),
    ]
    why = "SIMULATED. Coolant fails after 20 min and the margin of 16 GPUs falls to under 10 degrees."
    return scene_file("incident 2: a row grows warm", log, tests, why)


def _growing_warm(number: int, folder: Path) -> Drill:
    """A B300 node whose GPUs lose their margin from the twentieth minute on, none quite like the other."""
    overlay = folder / "overlay.yaml"
    overlay.write_text("checks: {gpu.thermal_margin: {period_s: 15}, engine.health: {period_s: 10}}\n")
    margins = {f"nvml.gpus.{gpu}.thermal.margin_c": 4 + (gpu + number) % 3 for gpu in range(8)}
    scenario = folder / f"{number}.yaml"
    steps = [{"at_s": 1200, "ramp_s": 240, "set": margins}]
    scenario.write_text(yaml.safe_dump({"name": "warm", "steps": steps}))
    drill = Drill("b300-roce", scenario=scenario, overlays=(overlay,), only=("gpu.thermal_margin",))
    drill.beat_s = float(STEP_S)
    return drill


def two_members() -> str:
    """Incident 15: a group is one instance; two open gates in it, or a rank that is gone, are told."""
    log, world = SeriesLog(), World()
    world.until_open()
    alone = Bench()  # the gate of a node that was told that it is a head
    for step in range(16 * 60 // STEP_S):
        minute = step * STEP_S / 60
        world.nodes[1].alive = minute < 11
        world.second(STEP_S)
        split = 5 <= minute < 9
        if split and alone.record.state is GateState.BOOTING:
            alone.serve()
        pages: dict[str, bytes | None] = {}
        for node in world.nodes:
            gate = alone.record.state if split and node.rank == 1 else node.gate
            pages[f"h20-{node.rank + 1}"] = _page(world, node.rank, gate) if node.alive else None
        log.take(pages)
    both = {"engine": "glm", "group": "n0"}
    tests = [
        fires("4m", "NodegateGroupSplit"),
        fires("4m", "NodegatePoolBelowMinimum"),
        fires("4m", "NodegateGateClosed"),
        fires("8m", "NodegateGroupSplit", both),
        fires("10m30s", "NodegateGroupSplit"),
        fires("14m", "NodegatePoolBelowMinimum", {"pool": "glm", "$value": "0"}),
        fires("14m", "NodegateAgentDown", target("h20-2")),
    ]
    why = "SIMULATED. 5 to 9 min: node 2 takes itself for a head and both gates are open. From 11 min: dead."
    return scene_file("incident 15: two members are no two replicas", log, tests, why)


def _page(world: World, rank: int, state: GateState) -> bytes:
    """The page of one member."""
    node = world.nodes[rank]
    seen = GroupObservation(
        world.now, None, node.record, Mine(node.phase, (), ""), node.status(), tuple(node.peers.values())
    )  # type: ignore[arg-type]
    gate = GateSample("glm", state, state in (GateState.SERVING, GateState.DEGRADED))
    more = More(groups=(group_sample("glm", seen),), mode="manage")
    shot = snapshot(mono_s=world.now)
    return render_metrics(
        shot, (gate,), durations_s={}, now_mono_s=world.now, journal_healthy=True, more=more
    )
