"""Records of runs for the tests of reports: a small one, and one as a real node would leave."""

from __future__ import annotations

import math

from agent.checklist.record import Answer, Curve, RunRecord, StepFinding, StepRecord, Value
from agent.model import Verdict

START_S = 1_796_026_500.0


def small_record(**changes: object) -> RunRecord:
    """Three steps, one curve of two GPUs; passed."""
    steps = [
        StepRecord(
            id="loop", title="Liquid loop", kind="question", verdict=Verdict.PASS, attempts=1,
            started_wall_s=START_S, ended_wall_s=START_S + 41, summary="confirmed by an operator",
            answer=Answer(text="flow 38 l/min on the CDU", who="mira", at_wall_s=START_S + 40),
        ),
        StepRecord(
            id="gpus", title="Temperatures and links", kind="check", verdict=Verdict.PASS, attempts=1,
            started_wall_s=START_S + 41, ended_wall_s=START_S + 44.2, summary="96 results",
        ),
        StepRecord(
            id="soak", title="Three minutes of load", kind="measure", verdict=Verdict.PASS, attempts=2,
            started_wall_s=START_S + 50, ended_wall_s=START_S + 230, summary="no throttle",
            values=[
                Value(name="gpu_temperature", subject=f"gpu{gpu}", value=71.0 + gpu, unit="C",
                      expected="<= 85")
                for gpu in range(2)
            ],
        ),
    ]  # fmt: skip
    curves = [
        Curve(
            step="soak", name="gpu_temperature", subject=f"gpu{gpu}", unit="C",
            points=[(50.0 + 20 * at, 40.0 + gpu + 3.5 * at) for at in range(10)],
        )
        for gpu in range(2)
    ]  # fmt: skip
    record = RunRecord(
        run_id="20261130T081500Z-post-maintenance", checklist="post-maintenance",
        title="After maintenance", node="rack4-node2", simulated=False, profile_hash="4f1c" * 16,
        boot_id="7d1b3b7c-0000-4000-8000-000000000001", hardware="9a3e" * 16, who="mira",
        reason="coolant loop flushed", started_wall_s=START_S, ended_wall_s=START_S + 232,
        verdict=Verdict.PASS, outcome=["maintenance ended"], origin="shipped",
        parts={"gpu0": "GPU-b5c0ffee-4e2d-5b7a-9c3f-0d19ea5e0000", "board": "SN-1"},
        steps=steps, curves=curves,
    )  # fmt: skip
    return record.model_copy(update=changes)


def failed_record(*, simulated: bool = False) -> RunRecord:
    """Eleven steps of a real node: the soak failed after two minutes, with curves of eight GPUs."""
    steps = _steps_before_the_soak()
    at_s = steps[-1].ended_wall_s or START_S
    steps.append(
        StepRecord(
            id="soak", title="Three minutes of small-batch load without throttling", kind="measure",
            verdict=Verdict.FAIL, attempts=1, started_wall_s=at_s, ended_wall_s=at_s + 180,
            summary="gpu5 throttled after 118 s (hardware thermal slowdown)",
            hint="Have the cooling team check flow and the cold plate of gpu5.",
            findings=_soak_findings(), values=_soak_values(),
        )
    )  # fmt: skip
    steps.append(StepRecord(id="gate", title="End maintenance, open the gate, watch", kind="gate"))
    return small_record(
        simulated=simulated, verdict=Verdict.FAIL, steps=steps, curves=_soak_curves(at_s - START_S),
        outcome=["maintenance is kept: failed at step soak"], ended_wall_s=at_s + 181, resumed=1,
    )  # fmt: skip


def _steps_before_the_soak() -> list[StepRecord]:
    titles = (
        ("loop", "Liquid loop: flow and inlet/outlet difference", "check", 3.2, "4 results, all PASS"),
        ("loop-asked", "Is the loop free of air, and is no joint wet?", "question", 64.0, "answered yes"),
        ("temperatures", "Temperatures at rest", "check", 4.1, "24 results, all PASS"),
        ("topology", "Topology, pins and PCIe", "check", 9.8, "61 results: 60 PASS, 1 WARN"),
        ("firmware", "Firmware pairs", "check", 2.2, "12 results, all PASS"),
        ("network", "NICs, ports and RoCE", "check", 12.7, "130 results, all PASS"),
        ("nccl", "NCCL all-reduce inside the node", "measure", 38.4, "bus bandwidth 331.2 GB/s"),
        ("nccl-nodes", "NCCL all-reduce between nodes", "measure", 0.1, "the profile has one node"),
        ("flags", "Flags, checkpoint and memory of the engine", "check", 6.0, "3 results, all PASS"),
    )
    steps, at_s = [], START_S
    for id_, title, kind, seconds, summary in titles:
        verdict = {"topology": Verdict.WARN, "nccl-nodes": Verdict.SKIP}.get(id_, Verdict.PASS)
        steps.append(
            StepRecord.model_validate(
                {
                    "id": id_, "title": title, "kind": kind, "verdict": verdict, "attempts": 1,
                    "started_wall_s": at_s, "ended_wall_s": at_s + seconds, "summary": summary,
                }
            )
        )  # fmt: skip
        at_s += seconds + 1
    by_id = {step.id: step for step in steps}
    by_id["loop-asked"].answer = Answer(
        text="yes; flow 38 l/min, vented twice", who="Mira Novak", at_wall_s=START_S + 67
    )
    by_id["topology"].findings = [
        StepFinding(
            check="gpu.pcie", subject="gpu2", verdict=Verdict.WARN, observed="gen 4", expected="gen 5",
            summary="link at gen 4 x16 while idle", hint="Look again under load; reseat if it stays.",
        )
    ]  # fmt: skip
    by_id["nccl"].values = [
        Value(name="bus_bandwidth", subject="node", value=331.2, unit="GB/s", expected=">= 300"),
        Value(name="roce_errors", subject="node", value=0, unit="", expected="0"),
    ]
    return steps


def _soak_findings() -> list[StepFinding]:
    return [
        StepFinding(
            check="gpu.throttle", subject="gpu5", verdict=Verdict.FAIL, observed="hw_thermal_slowdown",
            expected="none", summary="clocks held back by heat for 62 s",
            hint="Check coolant flow and the cold plate of gpu5.",
        ),
        StepFinding(
            check="gpu.thermal_margin", subject="gpu5", verdict=Verdict.FAIL, observed="-3", expected=">= 5",
            unit="C", summary="3 C above its own limit",
            hint="Check coolant flow and the cold plate of gpu5.",
        ),
    ]  # fmt: skip


def _soak_values() -> list[Value]:
    values = []
    for gpu in range(8):
        hot = gpu == 5
        values += [
            Value(
                name="gpu_temperature_highest", subject=f"gpu{gpu}", value=92.0 if hot else 61.0 + gpu,
                unit="C", expected="<= 85", verdict=Verdict.FAIL if hot else Verdict.PASS,
            ),
            Value(
                name="gpu_sm_clock_lowest", subject=f"gpu{gpu}", value=1215.0 if hot else 1905.0 - gpu,
                unit="MHz", expected=">= 1600", verdict=Verdict.FAIL if hot else Verdict.PASS,
            ),
            Value(name="gpu_power_mean", subject=f"gpu{gpu}", value=512.4 if hot else 664.0 + 3 * gpu,
                unit="W",
            ),
        ]  # fmt: skip
    return values


def _soak_curves(start_s: float) -> list[Curve]:
    made = []
    for gpu in range(8):
        hot = gpu == 5
        temperature, clock, power = [], [], []
        for second in range(180):
            ramp = 1 - math.exp(-second / (60 if hot else 22))
            noise = math.sin(second * (1.3 + gpu)) * 0.6
            heat = (38 + 58 * ramp) if hot else (36 + gpu + 25 * ramp)
            throttled = hot and second > 118
            temperature.append((start_s + second, round(min(heat, 92) + noise, 1)))
            clock.append((start_s + second, 1215.0 + 20 * noise if throttled else 1905.0 + 10 * noise - gpu))
            power.append(
                (
                    start_s + second,
                    round((430 if throttled else 664 + 3 * gpu) * min(1, second / 4) + 4 * noise, 1),
                )
            )
        for name, unit, points in (
            ("gpu_temperature", "C", temperature), ("gpu_sm_clock", "MHz", clock), ("gpu_power", "W", power),
        ):  # fmt: skip
            made.append(Curve(step="soak", name=name, subject=f"gpu{gpu}", unit=unit, points=points))
    flow = [(start_s + 5 * at, 38.0 - 0.02 * at) for at in range(36) if not 12 < at < 20]
    made.append(Curve(step="soak", name="coolant_flow", subject="CDU 1", unit="l/min", points=flow))
    return made
