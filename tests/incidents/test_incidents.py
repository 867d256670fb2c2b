"""Incidents that sites have had, each as a scene on a replayed node: the right verdict, action and gate.

A scene (scenes/NN-name.yaml) has the scenario's `steps` and what must hold at moments after its start.
`begins: serving` lets the gates open first; `begins: boot` starts with an engine that is not there and
evidence that is as the first step leaves it. `repeat` are steps that come again, $N counts by `turn`.

    expect:
      - at_s: 30
        gates: {kimi: failed}            # state of each gate
        told: {kimi: "down #gpu.throttle"}   # HAProxy's agent check
        not_seen: [serving]              # states that no gate has been in since the scene began
        asked: {kimi: [stop]}            # what the engines have been asked for
        results:
          - {check: gpu.throttle, subject: gpu3, verdict: FAIL, summary: regex, action: kind, hint: regex,
             class: hard}
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from incident_drill import Drill, virtual_teller
from incident_shows import shown
from stage_time import START_MONO_S

SCENES = Path(__file__).parent / "scenes"
#: Seconds in which a healthy node opens its gates.
TO_SERVING_S = 15.0
INCIDENTS = {*range(1, 10), 13, 16, 19, 20, 21, 22, 23, 24, 25, 26}


def scenes() -> list[Path]:
    return sorted(SCENES.glob("*.yaml"))


def open_scene(path: Path, folder: Path) -> tuple[Drill, dict[str, Any]]:
    """The drill of a scene, its gates open if the scene begins so."""
    scene = yaml.safe_load(path.read_text())
    scenario = folder / "scenario.yaml"
    steps = [*scene["steps"], *(step for turns in scene.get("repeat", ()) for step in repeated(turns))]
    scenario.write_text(yaml.dump({"name": path.stem, "steps": steps}, Dumper=NoAliases))
    overlays: tuple[Path, ...] = ()
    if "profile" in scene:
        overlays = (folder / "overlay.yaml",)
        overlays[0].write_text(yaml.safe_dump(scene["profile"]))
    serving = scene["begins"] == "serving"
    drill = Drill(
        scene["node"],
        scenario=scenario,
        overlays=overlays,
        only=tuple(scene.get("only", ["*"])),
        warm=serving,
    )
    return drill, scene


class NoAliases(yaml.SafeDumper):
    """A scenario may hold none."""

    def ignore_aliases(self, data: Any) -> bool:
        del data
        return True


def repeated(turns: dict[str, Any]) -> list[dict[str, Any]]:
    """A step once a turn."""
    found = []
    for turn in range(turns["times"]):
        count = str((turn + 1) * turns.get("turn", 1))
        step = json.loads(re.sub(r'"\$N"|\$N', count, json.dumps(turns["step"])))
        found.append({"at_s": turns["from_s"] + turn * turns["every_s"], **step})
    return found


def play(drill: Drill, scene: dict[str, Any]) -> None:
    """Run a scene and check each of its moments."""
    if scene["begins"] == "serving":
        drill.run(TO_SERVING_S)
        assert {name: drill.state(name) for name in drill.engines} == dict.fromkeys(drill.engines, "serving")
    for name, states in drill.seen.items():
        drill.seen[name] = states[-1:] if scene["begins"] == "serving" else states
    drill.beat_s = scene.get("beat_s", drill.beat_s)
    drill.begin()
    begun_s = drill.clock.now_s
    for name, values in scene.get("engines", {}).items():
        drill.engines[name].shows = shown(dict(values), begun_s - START_MONO_S)
    for moment in scene["expect"]:
        drill.run(begun_s + moment["at_s"] - drill.clock.now_s)
        look(drill, moment)


def look(drill: Drill, moment: dict[str, Any]) -> None:
    at = f"at {moment['at_s']} s"
    for wanted in moment.get("results", ()):
        assert_result(drill, wanted, at)
    for name, state in moment.get("gates", {}).items():
        record = drill.records[name]
        assert record.state.value == state, f"{at} {name}: {record.state}: {record.reason}"
    for name, line in moment.get("told", {}).items():
        assert drill.agent_check(name) == line, at
    for name, states in drill.seen.items():
        assert not set(moment.get("not_seen", ())) & set(states[1:]), f"{at} {name}: {states}"
    for name, asked in moment.get("asked", {}).items():
        assert drill.engines[name].asked == asked, at


def assert_result(drill: Drill, wanted: dict[str, Any], at: str) -> None:
    result = drill.result(wanted["check"], wanted["subject"])
    finding = result.finding
    told = (
        f"{at} {wanted['check']} {wanted['subject']}: {result.verdict} {finding.summary} ({finding.action})"
    )
    assert result.verdict.value == wanted["verdict"], told
    if "summary" in wanted:
        assert re.search(wanted["summary"], finding.summary), told
    if "class" in wanted:
        assert result.serving_class.value == wanted["class"], f"{told}: {result.serving_class}"
    if "action" in wanted:
        assert finding.action.kind.value == wanted["action"], told
    if "hint" in wanted:
        assert re.search(wanted["hint"], finding.action.hint), told
    if wanted["verdict"] in ("WARN", "FAIL"):
        assert finding.basis is not None and finding.expected is not None, told
        assert finding.action.hint, told


@pytest.mark.parametrize("path", scenes(), ids=lambda path: path.stem)
def test_scene(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drill, scene = open_scene(path, tmp_path)
    virtual_teller(monkeypatch, drill.clock)
    try:
        play(drill, scene)
    finally:
        drill.close()


def test_every_incident_has_a_scene() -> None:
    shown = {yaml.safe_load(path.read_text())["incident"] for path in scenes()}
    assert shown == INCIDENTS
