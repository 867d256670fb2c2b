"""`nodegate status`: what the daemon knows now."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence, Set
from datetime import datetime
from typing import Annotated, Any

import typer

from agent.commands import DEFAULT_RUN_DIR, RunDirOption
from agent.explain_lines import explanation, flags
from agent.rows import (
    Row,
    cause_of,
    merge,
    names,
    natural,
    reading_of,
    shared_causes,
    subjects,
    worst_first,
    worst_of,
)

WATCH_S = 1.0
#: Erase the terminal and begin at its top.
_CLEAR = "\x1b[2J\x1b[H"
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
#: Verdicts that a person looks for; the others are counted.
TELLING = ("FAIL", "UNKNOWN", "WARN")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("status")(status_command)


def status_command(
    run_dir: RunDirOption = DEFAULT_RUN_DIR,
    watch: Annotated[bool, typer.Option("--watch", help="Show it anew each second, until Ctrl-C.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show what the daemon knows now. Exit code 0: every gate is open, or member; 1: one is not."""
    from agent.admin_client import AdminClient

    client = AdminClient(run_dir)
    while True:
        status = client.get("/status")
        if watch and not as_json and sys.stdout.isatty():
            sys.stdout.write(_CLEAR)
        _print(status, as_json)
        if not watch:
            raise typer.Exit(0 if all_well(status) else 1)
        time.sleep(WATCH_S)


def all_well(status: Mapping[str, Any]) -> bool:
    """Whether every gate is open, or the rank behind it serves through the head of its group."""
    if status["ready"]:
        return True
    gates = status["gates"]
    serves = [gate["ready"] or gate["state"] == "member" for gate in gates]
    return bool(status["live"] and gates and all(serves))


def _print(status: Mapping[str, Any], as_json: bool) -> None:
    """One showing; with --watch JSON is one document a line."""
    if as_json:
        typer.echo(json.dumps(status))
        return
    show_status(status)


def show_status(status: Mapping[str, Any]) -> None:
    """The status for people."""
    from agent.console import Out

    out = Out()
    out.banner(bool(status.get("simulated")))
    if not status.get("live"):
        out.line("The agent's main loop does not beat: nothing below is current.", "bold red")
    node, mode = status.get("node", "-"), status.get("mode", "-")
    out.line(f"node {node}, mode {mode}, profile {str(status.get('profile_hash', ''))[:16]}")
    _show_holds(out, status)
    if run := status.get("checklist"):
        out.line(checklist_line(run), "cyan")
    for problem in status.get("problems", []):
        out.line(f"PROBLEM: {problem}", "bold red")
    out.line()
    out.table(("engine", "gate", "ready", "for", "process", "why"), [_gate_row(g) for g in status["gates"]])
    _show_proofs(out, status)
    _show_groups(out, status)
    _show_pairs(out, status)
    blocking = _show_reasons(out, status)
    _show_results(out, status["results"], blocking)
    _show_explanations(out, status["results"])
    out.line(_counts(status["results"]))


def checklist_line(run: Mapping[str, Any]) -> str:
    """The newest run of a checklist, in one line."""
    where = f"{run['done']} of {run['total']} steps"
    if run["step"] is not None:
        where += f", at {run['step']} ({run['step_title']})"
    if run["verdict"] is not None:
        return (
            f"checklist {run['name']} {run['verdict']} at {_utc(run['ended'])}, {where}: run {run['run_id']}"
        )
    going = "runs" if run["running"] else "was left"
    return f"checklist {run['name']} {going}: {where}, by {run['who']}, since {_utc(run['started'])}"


def _utc(stamp: str) -> str:
    """A stamp of /status as people read it."""
    return stamp.replace("T", " ").replace("Z", " UTC")


def _show_holds(out: Any, status: Mapping[str, Any]) -> None:
    """What operators have decided; nobody should find it out by surprise."""
    holds = status.get("holds") or {"maintenance": None, "waivers": []}
    if held := holds["maintenance"]:
        since = clock_time(held["since_wall_s"])
        out.line(f"MAINTENANCE since {since} by {held['who']}: {held['reason']}", "bold magenta")
    for gate in status["gates"]:
        if force := gate["force_open"]:
            until = clock_time(force["until_wall_s"])
            out.line(
                f"FORCE-OPEN {gate['engine']} until {until} by {force['who']}: {force['reason']}", "bold red"
            )
    if shadow := status.get("shadow"):
        out.line(f"SHADOW {', '.join(shadow)}: shown, but the profile lets them gate nothing", "yellow")
    for waiver in holds["waivers"]:
        until = clock_time(waiver["until_wall_s"])
        of = f"{waiver['check']} {waiver['subject']}"
        out.line(f"WAIVED {of} until {until} by {waiver['who']}: {waiver['reason']}", "yellow")


def _gate_row(gate: Mapping[str, Any]) -> tuple[object, ...]:
    process = gate["process"] or {}
    ready = "yes" if gate["ready"] else "no"
    return (
        gate["engine"],
        gate["state"],
        f"{ready} (FORCED)" if gate["forced"] else ready,
        f"{gate['since_s']:.0f} s",
        process.get("phase"),
        gate["reason"],
    )


def _show_pairs(out: Any, status: Mapping[str, Any]) -> None:
    """The prefill-decode pairs; nothing where there are none."""
    rows = [
        (
            pair["pair"],
            pair["state"],
            "yes" if pair["ready"] else "no",
            *(f"{len(pair[role]['ready'])}, {pair[role]['need']} needed" for role in ("prefill", "decode")),
            pair["reason"],
        )
        for pair in status.get("pairs", [])
    ]
    if rows:
        out.line()
        out.table(("pair", "state", "ready", "prefill ready", "decode ready", "why"), rows)


def _show_proofs(out: Any, status: Mapping[str, Any]) -> None:
    """What each engine has shown before its gate opened: warm-up and soak."""
    for gate in status["gates"]:
        process = gate["process"] or {}
        if warmup := process.get("warmup"):
            out.line(f"{gate['engine']} warm-up: {warmup['words']}", "dim")
        if soak := process.get("soak"):
            out.line(f"{gate['engine']} {soak['words']}", "dim" if soak["passed"] else "yellow")


def _show_groups(out: Any, status: Mapping[str, Any]) -> None:
    """Every other member of an engine's group as this node hears it."""
    for gate in status["gates"]:
        if not (group := gate.get("group")):
            continue
        words = f"{gate['engine']} group: rank {group['rank']}, {group['stage']} {group['generation']}"
        out.line(f"{words.strip()}: {group['reason']}", "dim")
        for member in group["members"]:
            heard = "never heard" if member["heard_s"] is None else f"heard {member['heard_s']:.1f} s ago"
            data = "never" if member["data_s"] is None else f"{member['data_s']:.1f} s ago"
            said = member["error"] or f"{member['gate']}, {member['stage']}"
            line = f"  {member['node']} (rank {member['rank']}): {heard}, data path {data}: {said}"
            # Once its rank is to run, it waits for nothing: what would keep it from a new start is no news.
            waiting = member["waits_for"] and member["stage"] != "go"
            waits = f"; waits for {member['waits_for'][0]}" if waiting else ""
            out.line(f"{line}{waits}", "yellow" if member["error"] or member["data_error"] else "dim")


def _show_reasons(out: Any, status: Mapping[str, Any]) -> set[tuple[str, str]]:
    """What stands against each gate, and what to do about it; the checks and subjects that were named."""
    # A closed gate goes by the worse of the two: what is held protects a gate that serves.
    verdicts = {
        (result["check"], result["subject"]): worst_of((result["verdict"], result["raw_verdict"]))
        for result in status["results"]
    }
    rows: list[Row] = []
    named: set[tuple[str, str]] = set()
    for gate in status["gates"]:
        for blocker in gate["blocking"]:
            of = (blocker["check"], blocker["subject"])
            named.add(of)
            found = reading_of(blocker["summary"])
            rows.append((gate["engine"], *of, verdicts.get(of, ""), found, blocker["action"]["hint"]))
    if not rows:
        return named
    rows = merge(merge(merge(rows, 2, subjects), 1, names), 0, ", ".join)
    shown = 6 if any(row[5] for row in rows) else 5
    out.line()
    columns = ("engine", "check", "subject", "verdict", "what", "do")
    out.table(columns[:shown], [row[:shown] for row in rows])
    return named


def _show_results(out: Any, results: Sequence[Mapping[str, Any]], named: Set[tuple[str, str]]) -> None:
    """The results that are not good and not named yet, and how many are."""
    rows: list[Row] = [
        (
            result["check"],
            result["subject"],
            f"{result['verdict']} {flags(result)}".rstrip(),
            result["age_s"],
            cause_of(result["summary"]),
        )
        for result in sorted(results, key=lambda result: natural(result["subject"]))
        if result["verdict"] in TELLING and (result["check"], result["subject"]) not in named
    ]
    rows = merge(merge(worst_first(rows, verdict=2), 1, subjects, largest=3), 0, names, largest=3)
    out.line()
    if rows:
        shown = [(*row[:3], f"{row[3]:.0f} s", row[4]) for row in rows]
        out.table(("check", "subject", "verdict", "age", "what was found"), shown)


def _show_explanations(out: Any, results: Sequence[Mapping[str, Any]]) -> None:
    """What each finding rests on, since when, what it does and what to do, a few calm lines each."""
    telling = [result for result in results if result["verdict"] in TELLING]
    shared = shared_causes((r["check"], _cause(r)) for r in telling if r["verdict"] == "UNKNOWN")
    rows: list[Row] = [
        (
            result["check"],
            result["subject"],
            result["verdict"],
            shared.get(_cause(result)) or _advice(result),
            _since(result),
        )
        for result in sorted(telling, key=lambda result: natural(result["subject"]))
    ]
    rows = merge(merge(worst_first(rows, verdict=2), 1, subjects), 0, names)
    for check, subject, _, advice, lines in rows:
        out.line(f"-> {check} {subject}: {advice}" if advice else f"-> {check} {subject}")
        for line in lines:
            out.line(f"   {line}", "dim")
    if rows:
        out.line()


def _advice(result: Mapping[str, Any]) -> str:
    return str(result["action"]["hint"])


def _cause(result: Mapping[str, Any]) -> str:
    return reading_of(result["summary"]) if result["verdict"] == "UNKNOWN" else ""


def _since(result: Mapping[str, Any]) -> tuple[str, ...]:
    """The explanation with the time, to the minute, since when the verdict stands."""
    since = datetime.fromtimestamp(result["first_seen_s"]).astimezone().isoformat(" ", "minutes")
    return (f"{result['verdict']} since {since}", *explanation(result))


def _counts(results: Sequence[Mapping[str, Any]]) -> str:
    counts = {
        verdict: sum(r["verdict"] == verdict for r in results) for verdict in ("PASS", *TELLING, "SKIP")
    }
    return ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count) or "no results yet"


def clock_time(wall_s: float) -> str:
    """Local time to the millisecond."""
    return datetime.fromtimestamp(wall_s).astimezone().isoformat(sep=" ", timespec="milliseconds")
