"""Reports of a run: report.json for programs, report.xml (JUnit) for CI systems, report.html for people."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from pathlib import Path

from agent.checklist.record import RunRecord
from agent.checklist.report_bounds import LEVELS, bounded
from agent.checklist.report_html import page
from agent.checklist.report_junit import junit
from agent.checklist.report_text import headline
from agent.errors import ConfigError

#: No report is larger.
MOST_BYTES = 2_000_000
_MODE = 0o640


def write_reports(record: RunRecord, folder: Path) -> list[Path]:
    """Write report.json, report.xml and report.html, each whole or not at all; the files, in this order.

    The folder is made if it is not there. Raises ConfigError where it cannot be written.
    """
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts(record).items():
            _replace(folder / name, text.encode())
            written.append(folder / name)
    except (OSError, ValueError) as cause:
        raise _unwritable(folder, cause, "; run.json has the run") from cause
    return written


def refuse_unwritable(folder: Path) -> None:
    """Make a folder for reports and try a file in it, before hours of steps. Raises ConfigError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as cause:
        raise _unwritable(folder, cause, "; nothing was run") from cause


def _unwritable(folder: Path, cause: Exception, rest: str) -> ConfigError:
    return ConfigError(
        f"cannot write the report: {getattr(cause, 'strerror', None) or cause}",
        where=str(folder),
        remedy=f"free space or name another folder with --report DIR{rest}",
    )


def texts(record: RunRecord) -> dict[str, str]:
    """The reports by file name, the same for the same record; as much of it as fits into each."""
    made: dict[str, str] = {}
    for bounds in LEVELS:
        shown, notes = bounded(record, bounds)
        made = {
            "report.json": _json(shown, notes),
            "report.xml": junit(shown, notes),
            "report.html": page(shown, notes),
        }
        if all(len(text.encode()) < MOST_BYTES for text in made.values()):
            break
    return made


def _json(record: RunRecord, notes: tuple[str, ...]) -> str:
    told = headline(record)
    document = {
        "schema": 1,
        "headline": told.text,
        "advice": list(told.advice),
        "left_out": list(notes),
        "run": record.model_dump(mode="json"),
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _replace(path: Path, data: bytes) -> None:
    """Put a file in the place of the old one, on disk before it gets its name."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    draft = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), _MODE)
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise
