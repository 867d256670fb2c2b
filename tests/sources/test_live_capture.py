"""A capture made on real GPUs replays with the verdicts that the live check gave there."""

from __future__ import annotations

import json

from nodes import node_dir, profile_path

from agent.checks.registry import load_all
from agent.one_shot import run_pass
from agent.profile_loader import load_profile
from agent.sources.replay import replay_sources


def test_replay_says_what_the_live_machine_said() -> None:
    node = node_dir("h200-x2-live")
    live = json.loads((node / "live_verdicts.json").read_text())
    replay = replay_sources(node, None)
    profile = load_profile(profile_path("h200-x2-live"))
    report = run_pass(replay.sources, profile, load_all(), phase=None, only=None, node="test", sample_s=0.05)
    replayed: dict[str, dict[str, str]] = {}
    for result in report.results:
        replayed.setdefault(result.check, {})[result.subject] = str(result.verdict)
    # Checks and subjects that are younger than the capture are left out.
    known = {check: {subject: replayed[check][subject] for subject in live[check]} for check in live}
    assert known == live
    assert len(live) > 80
    assert live["nvlink.links"] == {"gpu0": "PASS", "gpu1": "PASS"}
