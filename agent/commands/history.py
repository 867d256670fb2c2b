"""`nodegate history`: what changed, with evidence."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agent.commands import DEFAULT_RUN_DIR, RunDirOption, parse_duration
from agent.commands.status import TELLING, JsonOption, clock_time
from agent.explain_lines import explanation, flags
from agent.launch.last_words import last_words, points_elsewhere
from agent.rows import merge, subjects

if TYPE_CHECKING:
    from agent.admin_client import AdminClient

#: How the subject of a crashed engine begins in the journal.
CRASHED = "engine:"
PART_NAMES = "name its place (gpu3), a GPU's UUID, a NIC's serial number, or how that begins"
#: As far back as the daemon takes it: longer than any journal is.
ALWAYS_S = 1e9


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("history")(history_command)


def history_command(
    since: Annotated[str, typer.Option("--since", help="How far to look back, e.g. 30m or 2h.")] = "2h",
    run_dir: RunDirOption = DEFAULT_RUN_DIR,
    as_json: JsonOption = False,
    limit: Annotated[int, typer.Option("--limit", help="The most entries.", min=1, max=10_000)] = 1000,
    part: Annotated[
        str | None,
        typer.Option(
            "--part",
            metavar="PART",
            help="Only results of one part: a GPU's UUID, a NIC's serial, or its place (gpu3).",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Show what changed. Results, gates and operators' orders, oldest first."""
    from agent.admin_client import AdminClient
    from agent.console import Out

    asked = {"since_s": parse_duration(since), "limit": limit} | ({"part": part} if part else {})
    client = AdminClient(run_dir)
    answer = client.get("/history", **asked)
    if as_json:
        typer.echo(json.dumps(answer))
        return
    if not answer["entries"]:
        if part and not _is_known(client, part):
            Out().line(f"nothing is known of a part {part!r}: {PART_NAMES}")
            return
        Out().line(f"nothing has changed{f' of {part}' if part else ''} in the last {since.strip()}")
        return
    told = [entry for entry in answer["entries"] if not _began_well(entry)]
    out = Out()
    out.table(("time", "what", "of", "change", "why"), merge(map(_history_row, told), 2, _together))
    if left := len(answer["entries"]) - len(told):
        out.line(f"left out: {left} first results that were PASS or SKIP (--json has them)")


def _is_known(client: AdminClient, part: str) -> bool:
    """Whether the journal has ever had a result of the part, or the node has it now."""
    if client.get("/history", since_s=ALWAYS_S, limit=1, part=part)["entries"]:
        return True
    return any(result["subject"] == part for result in client.get("/status")["results"])


def _together(several: Sequence[str]) -> str:
    """What a row is about; the part is named where it is one alone."""
    return several[0] if len(several) == 1 else subjects([each.partition(" (")[0] for each in several])


def _began_well(entry: Mapping[str, Any]) -> bool:
    """The first result of a subject, and nothing wrong: hundreds at each start of the agent."""
    return entry["kind"] == "result" and not entry["before"] and entry["verdict"] in ("PASS", "SKIP")


def _history_row(entry: Mapping[str, Any]) -> tuple[object, ...]:
    """One entry by its kind."""
    when = clock_time(entry["wall_s"])
    match entry["kind"]:
        case "result":
            evidence = entry.get("evidence") or {}
            change = f"{_change(entry)} {flags(evidence)}".rstrip()
            return when, entry["check"], _of(entry), change, _why(entry)
        case "gate":
            return when, "gate", entry["engine"], f"{entry['before']} -> {entry['state']}", entry["reason"]
        case "operator":
            return when, "operator", entry["who"], entry["command"], entry["reason"]
        case "trace" if entry["check"].startswith(CRASHED):
            return when, "engine", entry["check"].removeprefix(CRASHED), "crashed", _last_words(entry)
        case "trace":
            why = f"{entry['summary']} (--json shows where)"
            return when, entry["check"], "", "broke", why
        case _:
            return when, "agent", "", entry.get("mark"), entry.get("summary")


def _change(entry: Mapping[str, Any]) -> str:
    """What became of a verdict; where it stays, why the entry is there."""
    before, verdict, seen = entry["before"], entry["verdict"], entry["raw_verdict"]
    if before != verdict:
        return f"{before or 'new'} -> {verdict}"
    if seen == verdict:
        return f"still {verdict}"
    return f"still {verdict}, last reading {seen}" if verdict == "FAIL" else f"seen, not confirmed: {seen}"


def _last_words(entry: Mapping[str, Any]) -> str:
    """Why an engine crashed, and its last words where they are not in that; the journal has more."""
    lines = [line for line in str(entry["trace"]).splitlines() if line.strip()]
    if not lines:
        return f"{entry['summary']}; it wrote nothing"
    telling = last_words(lines)
    told = telling in entry["summary"] or points_elsewhere(telling)
    said = "" if told else f"; its last words: {telling}"
    return f"{entry['summary']}{said} (--json has {len(lines)} lines)"


def _of(entry: Mapping[str, Any]) -> str:
    """The subject, and the part that it was."""
    part = entry.get("part")
    return f"{entry['subject']} ({part})" if part and entry["verdict"] in TELLING else entry["subject"]


def _why(entry: Mapping[str, Any]) -> str:
    """The summary, and for a finding what it rests on and what it does."""
    if entry["verdict"] not in TELLING:
        return str(entry["summary"])
    evidence = entry.get("evidence") or {}
    told = {**(evidence.get("finding") or {}), **(evidence.get("explained") or {})}
    lines = explanation(told) if "expected_from" in told else []
    return "; ".join((str(entry["summary"]), *lines))
