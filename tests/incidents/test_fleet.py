"""Eight nodes share one cooling, power or switch event: soft faults degrade and drain none of them.

Were these hard, one warm morning or one full switch would close a whole row at once and leave none to serve.
A hard fault on one node closes that one alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from incident_drill import Drill, virtual_teller

NODES = 8
SICK = 5
TO_SERVING_S = 12.0
LOST: dict[str, Any] = {
    "at_s": 40,
    "set": {"nvml.gpus.6": {"error": "GPU_IS_LOST"}},
}


def cooling(node: int) -> list[dict[str, Any]]:
    """The loop of the row loses flow: every node's coolant and GPUs grow warmer, none alike."""
    flow = {"FlowLitersPerMinute": {"Reading": 21.0}, "ReturnTemperatureCelsius": {"Reading": 41.0}}
    unit = "/redfish/v1/ThermalEquipment/CDUs/CDU_1/SecondaryCoolantConnectors/1"
    margins = {f"nvml.gpus.{gpu}.thermal.margin_c": 1 + (gpu + node) % 3 for gpu in range(8)}
    outlet = {"/redfish/v1/Chassis/Chassis_0/Sensors/Coolant_Outlet_Temp": {"Reading": 40.0 + node / 2}}
    return [
        {"at_s": 1, "bmc": {"cdu-1": {unit: flow}, "node": outlet}},
        {"at_s": 5, "ramp_s": 20, "set": margins},
    ]


def power(node: int) -> list[dict[str, Any]]:
    """The PDU of the row is at its alarm: it brakes all GPUs for two seconds of every eight."""
    steps = []
    for turn in range(8):
        at_s = 2.0 + node * 0.1 + 8 * turn
        braked = {f"nvml.gpus.{gpu}.power.enforced_limit_w": 800.0 for gpu in (1, 2)}
        braked |= {f"nvml.gpus.{gpu}.slowdowns.hw_brake_ns": (turn + 1) * 2 * 10**9 for gpu in (1, 2)}
        braked |= {f"nvml.gpus.{gpu}.power.event_reasons": 0x80 for gpu in (1, 2)}
        free = {f"nvml.gpus.{gpu}.power.enforced_limit_w": 1100.0 for gpu in (1, 2)}
        free |= {f"nvml.gpus.{gpu}.power.event_reasons": 0x4 for gpu in (1, 2)}
        steps += [{"at_s": at_s, "set": braked}, {"at_s": at_s + 2, "set": free}]
    return steps


def switch(node: int) -> list[dict[str, Any]]:
    """A full switch pauses every port of every node for a third of the time; storms are cut off."""
    paused = {}
    for port in range(8):
        ethtool = f"net.eth{port}.ethtool"
        paused[f"{ethtool}.rx_prio3_pause"] = 40_000 + node
        paused[f"{ethtool}.rx_prio3_pause_duration"] = 350_000
        paused[f"{ethtool}.tx_pause_storm_error_events"] = 0.2
    return [{"at_s": 2, "rate": paused}]


EVENTS = {
    "cooling": (cooling, "b300-roce", ("bmc.coolant", "gpu.thermal_margin", "gpu.throttle", "gpu.lost")),
    "power": (power, "b300-roce", ("gpu.power*", "gpu.throttle", "gpu.lost")),
    "switch": (switch, "h200-roce", ("roce.*", "nic.port", "nic.flap", "gpu.lost")),
}


@pytest.mark.parametrize("event", EVENTS)
def test_a_shared_event_drains_nobody(event: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps, node_name, only = EVENTS[event]
    told: dict[int, str] = {}
    for node in range(NODES):
        scenario = tmp_path / f"{node}.yaml"
        sick = [LOST] if node == SICK else []
        scenario.write_text(yaml.safe_dump({"name": event, "steps": [*steps(node), *sick]}))
        drill = Drill(node_name, scenario=scenario, only=only)
        virtual_teller(monkeypatch, drill.clock)
        drill.beat_s = 1.0
        [engine] = drill.engines
        try:
            drill.run(TO_SERVING_S)
            assert drill.state(engine) == "serving"
            drill.begin()
            drill.run(65)
            told[node] = drill.agent_check(engine)
            faults = {r.check for r in drill.results().values() if r.verdict.value == "FAIL"}
            assert faults, "the event must be seen at all"
            assert ("quarantined" in drill.seen[engine]) == (node == SICK)
            assert "failed" not in drill.seen[engine], drill.records[engine].reason
        finally:
            drill.close()
    assert told.pop(SICK) == "down #gpu.lost"
    assert set(told.values()) == {"up ready 50%"}
