"""What a scan, a ledger and the sums mean for a launch, as reports that checks judge."""

from __future__ import annotations

from pathlib import Path

from agent.errors import LaunchError, SourceUnavailable
from agent.launch.checkpoint.checksums import Checksums, SumsState, read_sums
from agent.launch.checkpoint.fault import COPY_AGAIN, CheckpointFault
from agent.launch.checkpoint.inventory import listed
from agent.launch.checkpoint.ledger import Ledger, Outcome, make_ledger
from agent.launch.checkpoint.ledger_lines import Book
from agent.launch.checkpoint.placing import placing
from agent.launch.checkpoint.room import Room, read_room
from agent.launch.checkpoint.scan import Scan
from agent.launch.checkpoint.spread import Spread
from agent.launch.checkpoint.stages import GIB
from agent.node_profile import NodeProfile
from agent.sources import Sources
from agent.sources.launch_reading import LaunchReport, Problem, Severity

_DUMMY = "load-format dummy makes its weights up: none are read from disk"


def ledger_of(profile: NodeProfile, name: str, sources: Sources, found: Scan, spread: Spread) -> Ledger:
    """The ledger of an engine, with the warnings about where its ranks sit."""
    engine = profile.engines[name]
    room = read_room(profile, name, sources)
    if found.unsplit:
        ledger = _unsplit(found, room)
    else:
        ledger = make_ledger(found.weights, spread, room, engine.launch.checkpoint.host_reserve_gib)
    placing(ledger.book, spread, engine, profile, room)
    return ledger


def _unsplit(found: Scan, room: Room) -> Ledger:
    """Without stages there are no weights by GPU."""
    return Ledger(Book(), (f"{found.folder}: {found.unsplit}", *room.unknown))


def ledger_report(ledger: Ledger) -> LaunchReport:
    """The ledger as a report. SourceUnavailable where it could not be reckoned."""
    if ledger.outcome is Outcome.UNKNOWN:
        raise SourceUnavailable("; ".join(ledger.unknown))
    facts = ledger.facts
    words = []
    if "average_gib" in facts and "device_gib" in facts:
        words.append(f"weights {facts['average_gib']:.3f} of {facts['device_gib']:.3f} GiB a GPU on average")
    left = [value for key, value in facts.items() if key.endswith("_left_gib")]
    if left:
        words.append(f"{min(left):.3f} GiB left after offload within the engine's share")
    return LaunchReport(
        ", ".join(words) or "reckoned",
        tuple(ledger.book.problems),
        facts={key: round(value, 3) for key, value in facts.items()},
    )


def dummy_report() -> LaunchReport:
    """An engine that reads no weights has no checkpoint to be judged."""
    return LaunchReport(_DUMMY)


def checkpoint_report(found: Scan, sums_file: str | None, checksums: Checksums) -> LaunchReport:
    """Index, count, sizes, stage index and sums. SourceUnavailable when a file cannot be read."""
    problems = list(found.problems)
    count, size = len(found.sizes), sum(found.sizes.values())
    facts: dict[str, str | float] = {"files": count, "size_gib": round(size / GIB, 3)}
    summary = f"{count} files, {size / GIB:.3f} GiB, as index and headers say"
    pending = ""
    if sums_file is not None:
        try:
            wanted = read_sums(Path(sums_file))
            state = checksums.look(found.folder, found.sizes)
            problems += _against_sums(found, Path(sums_file), wanted, state)
        except CheckpointFault as fault:
            problems.append(fault.problem())
        else:
            if state.error:
                raise SourceUnavailable(state.error)
            facts["checksums_percent"] = state.percent
            if len(state.sums) < count:
                pending = f"checksums {state.percent:.0f} %"
            else:
                summary += " and its sums"
    return LaunchReport(summary, tuple(problems), pending, facts)


def _against_sums(found: Scan, path: Path, wanted: dict[str, str], state: SumsState) -> list[Problem]:
    """The sums that are known so far, and files that no sum is given for."""
    problems = [
        Problem(
            Severity.ERROR, str(found.folder / name), "its sha256 sum is not the one of the list", COPY_AGAIN
        )
        for name, value in state.sums.items()
        if name in wanted and wanted[name] != value
    ]
    unlisted = sorted(set(found.sizes) - set(wanted))
    if unlisted:
        text = f"has no sum for {listed(unlisted)}"
        problems.append(
            Problem(Severity.ERROR, str(path), text, "write the list for all files of the checkpoint")
        )
    return problems


def contradiction(cause: LaunchError) -> LaunchReport:
    """A profile or folder that contradicts itself refuses the launch."""
    if isinstance(cause, CheckpointFault):
        return LaunchReport("cannot be launched", (cause.problem(),))
    where, _, rest = str(cause).partition(": ")
    text, _, remedy = rest.partition("; ")
    if not remedy:
        where, text, remedy = "launch", str(cause), "correct the profile"
    return LaunchReport("cannot be launched", (Problem(Severity.ERROR, where, text, remedy),))
