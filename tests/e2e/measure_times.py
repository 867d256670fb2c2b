"""How fast faults are recorded and gates close: `python tests/e2e/measure_times.py --repeat N --json FILE`.

The daemon runs as a process of its own on the SIMULATED demo node with the embedded engine; this process
looks at it from outside (/readyz and the journal, every 2 ms). A step of the scenario counts from when it is
due. The numbers are printed beside the limits that nodegate sets itself; nothing fails for being slow.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from daemon_rig import wait_until
from stage import Stage
from watchers import Watcher, journal, now_s, readyz

from agent.console import Out

ENGINE = "main"
PERIOD_S, FAIL_FOR_S = 1.0, 2.0
EVENT_LIMIT_S = 0.2
#: Seconds of the scenario, which begins at the open gate.
LINK_AT_S, BLIP_AT_S, HARD_AT_S, KILL_AT_S, XID_AT_S = 1.0, 4.0, 8.0, 17.0, 35.0
_LINK_5 = {"nvml.gpus.5.nvlink.states.7": False, "nvml.gpus.5.nvlink.speeds_mb_s.7": 0}
_LINK_UP = [path.rsplit(".", 1)[0] for path in _LINK_5]
SCENARIO: dict[str, Any] = {
    "name": "times",
    "steps": [
        {
            "at_s": LINK_AT_S,
            "say": "eth4 down",
            "set": {"net.eth4.link.operstate": "down", "net.eth4.link.carrier": False},
        },
        {"at_s": LINK_AT_S + 2, "reset": ["net.eth4.link"]},
        {"at_s": BLIP_AT_S, "say": "one bad sample", "set": dict(_LINK_5)},
        {"at_s": BLIP_AT_S + PERIOD_S, "reset": list(_LINK_UP)},
        {"at_s": HARD_AT_S, "say": "NVLink down", "set": dict(_LINK_5)},
        {"at_s": HARD_AT_S + 5, "reset": list(_LINK_UP)},
        {
            "at_s": XID_AT_S,
            "say": "Xid 79",
            "kmsg": ["3;NVRM: Xid (PCI:0000:52:00): 79, pid='<unknown>', GPU has fallen off the bus."],
        },
    ],
}


@dataclass(frozen=True)
class Measure:
    """One measured time; `limit_s` is what it must not exceed, None where nothing may happen at all."""

    what: str
    seconds: float | None
    limit_s: float | None
    held: bool


def timed(what: str, from_s: float, to_s: float | None, limit_s: float) -> Measure:
    """The time between two moments; a second that never came does not hold."""
    took_s = None if to_s is None else to_s - from_s
    return Measure(what, took_s, limit_s, took_s is not None and took_s <= limit_s)


def run_once(folder: Path) -> list[Measure]:
    """One life of a daemon through the whole scenario."""
    checks = {
        "nvlink.links": {"period_s": PERIOD_S, "fail_for_s": FAIL_FOR_S, "clear_for_s": 1.0},
        "nvlink.errors": {"period_s": 1.0},
    }
    with (
        Stage(folder, {ENGINE: list(range(8))}, SCENARIO, **checks) as stage,
        Watcher(readyz(stage.api_port, ENGINE)) as gate,
        Watcher(journal(stage.state_dir / "journal.db")) as rows,
    ):
        stage.wait_ready(ENGINE)
        return _watch(stage, gate, rows)


def _watch(stage: Stage, gate: Watcher, rows: Watcher) -> list[Measure]:
    """Wait for each step and measure what follows it."""
    began_s = stage.begin()
    link_s, blip_s, hard_s, kill_s, xid_s = (
        began_s + at_s for at_s in (LINK_AT_S, BLIP_AT_S, HARD_AT_S, KILL_AT_S, XID_AT_S)
    )
    _sleep_until(kill_s)
    link_row_s = rows.first("nic.port", link_s)
    sampled = "nvlink.links gpu5 FAIL" in rows.all_since(blip_s, hard_s - 1)
    closed = [code for code in gate.all_since(blip_s, hard_s - 1) if code != "200"]
    blip = f"one bad sample of a hard check leaves the gate open (sampled: {_yes(sampled)})"
    hard = f"polled hard fault: gate closed (fail_for {FAIL_FOR_S:g} s, period {PERIOD_S:g} s)"
    hard_limit_s = FAIL_FOR_S + PERIOD_S + EVENT_LIMIT_S
    stage.wait_ready(ENGINE)
    killed = _kill_engine(stage, gate, rows)
    stage.wait_ready(ENGINE)
    if now_s() > xid_s:
        raise SystemExit("this machine is too busy: the engine was not back in time for the scenario's end")
    _sleep_until(xid_s + 3)
    return [
        timed("link down: to its row in the journal", link_s, link_row_s, EVENT_LIMIT_S),
        Measure(blip, None, None, sampled and not closed),
        timed(hard, hard_s, gate.first("503", hard_s), hard_limit_s),
        *killed,
        timed("Xid 79: to its row in the journal", xid_s, rows.first("xid", xid_s), EVENT_LIMIT_S),
        timed("Xid 79: gate closed", xid_s, gate.first("503", xid_s), EVENT_LIMIT_S),
    ]


def _kill_engine(stage: Stage, gate: Watcher, rows: Watcher) -> list[Measure]:
    """SIGKILL of the engine's API server."""
    victim = min(stage.engine_pids())
    killed_s = now_s()
    os.kill(victim, signal.SIGKILL)
    wait_until("a closed gate", lambda: gate.first("503", killed_s))
    wait_until("a row of the engine's end", lambda: rows.first("engine.health", killed_s))
    return [
        timed(
            "engine killed: to its row in the journal",
            killed_s,
            rows.first("engine.health", killed_s),
            EVENT_LIMIT_S,
        ),
        timed("engine killed: gate closed", killed_s, gate.first("503", killed_s), EVENT_LIMIT_S),
    ]


def _sleep_until(at_s: float) -> None:
    """Wait for a moment of the scenario."""
    wait_until(f"second {at_s:.1f}", lambda: now_s() >= at_s)


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _row(what: str, some: list[Measure]) -> tuple[str, ...]:
    """All repetitions of one measurement as cells."""
    times = [measure.seconds for measure in some]
    shown = " ".join("never" if s is None else f"{s * 1000:.0f}" for s in times) if some[0].limit_s else "-"
    limit = f"{some[0].limit_s * 1000:.0f}" if some[0].limit_s else "-"
    return what, shown, limit, _yes(all(measure.held for measure in some))


def main() -> None:
    """Measure, print a table, write JSON when asked to."""
    parser = argparse.ArgumentParser(
        description="Times from fault to record and to a closed gate, SIMULATED node."
    )
    parser.add_argument("--repeat", type=int, default=3, help="lives of a daemon to measure")
    parser.add_argument("--json", type=Path, help="file for the numbers")
    options = parser.parse_args()
    runs = []
    for _ in range(options.repeat):
        with tempfile.TemporaryDirectory(prefix="nodegate-times-") as folder:
            runs.append(run_once(Path(folder)))
    out = Out()
    out.line("SIMULATED node and engine; milliseconds of each run")
    names = [measure.what for measure in runs[0]]
    columns = [[run[i] for run in runs] for i in range(len(names))]
    out.table(("measured", "ms", "limit", "held"), [_row(*pair) for pair in zip(names, columns, strict=True)])
    if options.json:
        options.json.write_text(
            json.dumps([[asdict(measure) for measure in run] for run in runs], indent=2) + "\n"
        )


if __name__ == "__main__":
    main()
