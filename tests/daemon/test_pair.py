"""A prefill and a decode engine (embedded, SIMULATED) on one node: two gates and one pair."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon_rig import DaemonRig, wait_until
from ports import free_ports

PAIR = {"prefill": ["p0"], "decode": ["d0"]}


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[DaemonRig]:
    made = DaemonRig(tmp_path, {"p0": [0, 1], "d0": [4, 5]})
    (made.check_ports["glm"],) = free_ports(1)
    made.profile["pairs"] = {"glm": {**PAIR, "agent_check_port": made.check_ports["glm"]}}
    made.write_profile()
    yield made
    made.close()


def test_the_pair_is_ready_with_both_and_closes_with_one(rig: DaemonRig) -> None:
    rig.start()
    wait_until("the first answer", lambda: rig.get("/readyz/glm")[0] == 503)
    rig.wait_ready("glm")
    assert rig.ready("p0") and rig.ready("d0") and rig.ready()
    assert rig.agent_line("glm") == "up ready 100%\n"
    assert rig.get("/readyz/glm", "HEAD")[0] == 200
    assert b'nodegate_pair_ready{pair="glm"} 1.0' in rig.get("/metrics")[1]
    assert rig.json("/status")["pairs"][0]["decode"] == {"need": 1, "ready": ["d0"], "missing": []}
    assert b'<section id="pairs" aria-labelledby="h-pairs">' in rig.get("/")[1]

    rig.admin.post("/gate/drain", {"engine": "d0", "reason": "test"})
    wait_until("the pair closes", lambda: not rig.ready("glm"))
    status, body, headers = rig.get("/readyz/glm")
    assert (status, headers["x-envoy-immediate-health-check-fail"]) == (503, "true")
    blocking = json.loads(body)["blocking"]
    assert (blocking[0]["check"], blocking[0]["subject"]) == ("pair.decode", "pair:glm")
    assert rig.ready("p0"), "the prefill engine's own gate stays as it is"
    assert rig.agent_line("glm") in ("drain\n", "down #stopped\n")
    assert rig.stop() == 0
