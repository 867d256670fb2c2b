"""Make a bundle: ask all sources, clean what they gave, keep what fits, write it with its manifest."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent import __version__
from agent.bundle.archive import SUFFIXES, Fitted, fit, is_complete, manifest, packed, room, write
from agent.bundle.clean import Cleaner
from agent.bundle.collect import Collected, collect
from agent.bundle.identities import redactor_for
from agent.bundle.parts import MIB, Case, Source, as_json
from agent.bundle.secret_search import Known, SecretSearch
from agent.errors import ConfigError

README = """Evidence of one node, made by `nodegate bundle`. manifest.json says what is here, what is not
and why.

{simulated}capture-now/ and each folder of captures-at-faults/ can be replayed:
    nodegate check --node FOLDER --profile profile.yaml

Secrets that this node knows, and lines of engines that may show requests, have been taken out. Logs are
otherwise as they were written: look through them before you hand them on.
"""


@dataclass(frozen=True, slots=True)
class Made:
    """What was written."""

    parts: tuple[Fitted, ...]
    size_bytes: int
    complete: bool


def make_bundle(
    case: Case,
    sources: Sequence[Source],
    target: Path,
    known: Known,
    *,
    max_mib: int,
    redact: bool = False,
    say: Callable[[str], None] = lambda _line: None,
) -> Made:
    """Collect and write. Raises ConfigError when the archive cannot be written."""
    asked = [source for source in sources if not (known.unread and source.free_text)]
    by_name = {each.source.name: each for each in collect(case, asked, room(max_mib * MIB), say=say)}
    kept_back = _why_kept_back(known)
    got = [by_name.get(source.name) or Collected(source, problem=kept_back) for source in sources]
    pieces = [piece for each in got for piece in each.pieces]
    cleaner = Cleaner(SecretSearch(known), redactor_for(pieces, case.node) if redact else None)
    parts = [fit(each, cleaner, int(room(max_mib * MIB) * each.source.share)) for each in got]
    name = _folder_name(target)
    readme = README.format(simulated="SIMULATED: made from a captured node.\n\n" if case.node_dir else "")
    about = _about(case, known, redact)
    first = {
        "README.txt": readme.encode(),
        "manifest.json": as_json(manifest(about, parts, cleaner)),
    }
    data = packed(name, first, parts, case.now_wall_s)
    if len(data) > max_mib * MIB:
        raise ConfigError(
            f"{len(parts)} sources and their manifest take more than {max_mib} MiB", where=str(target),
            remedy="allow more with --max-mib",
        )  # fmt: skip
    write(target, data)
    return Made(tuple(parts), len(data), is_complete(parts))


def _why_kept_back(known: Known) -> str:
    files = "; ".join(f"{file}: {why}" for file, why in known.unread[:3])
    return f"left out, for it is not known what to mask: {files}; run this as root, or name the --profile"


def _folder_name(target: Path) -> str:
    for suffix in SUFFIXES:
        if target.name.endswith(suffix):
            # A name of dots would lead out of the folder in which it is unpacked.
            return target.name.removesuffix(suffix).strip(".") or "bundle"
    return target.name


def _about(case: Case, known: Known, redact: bool) -> dict[str, Any]:
    return {
        "nodegate": __version__,
        "node": "" if redact else case.node,
        "simulated": case.node_dir is not None,
        "created": _utc(case.now_wall_s),
        "since": _utc(case.since_wall_s),
        "redacted": redact,
        "secrets_known": len(known.values),
    }


def _utc(wall_s: float) -> str:
    return dt.datetime.fromtimestamp(wall_s, dt.UTC).isoformat(timespec="seconds")
