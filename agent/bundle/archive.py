"""The archive: what fits into the shares, a manifest of what is there and what is not, written whole."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import gzip
import hashlib
import io
import os
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent.bundle.clean import Cleaner
from agent.bundle.collect import Collected
from agent.bundle.parts import Piece
from agent.bundle.secret_search import LONGEST_SECRET_BYTES
from agent.errors import ConfigError

SUFFIXES = (".tar.gz", ".tgz")
#: For the manifest and what a tar archive adds to each file (a header of 512 bytes, padding, longer names).
_RESERVE_SHARE = 0.05
_PER_FILE_BYTES = 2048
_MODE = 0o600


@dataclass(slots=True)
class Fitted:
    """What a source leaves in the bundle; `state` is complete, partial, missing or not_here."""

    name: str
    title: str
    state: str
    why: str
    took_s: float
    pieces: list[Piece] = field(default_factory=list)
    left_out: list[dict[str, str]] = field(default_factory=list)


def room(max_bytes: int) -> int:
    """What sources may have of a bundle's size together."""
    return int(max_bytes * (1 - _RESERVE_SHARE))


def fit(got: Collected, cleaner: Cleaner, most_bytes: int) -> Fitted:
    """Clean a source's pieces and keep what fits into its share: a log's newest lines, other files whole."""
    fitted = Fitted(got.source.name, got.source.title, "complete", cleaner.text(got.problem), got.took_s)
    left = most_bytes
    for raw in got.pieces:
        piece, why = _cleaned(raw, max(left, 0), cleaner)
        if piece is None:
            fitted.left_out.append({"path": cleaner.text(raw.path), "why": why})
            continue
        kept = _cut(piece, left - _PER_FILE_BYTES)
        if kept is None:
            why = f"{len(piece.data)} bytes are more than is left of the source's share"
            fitted.left_out.append({"path": piece.path, "why": why})
            continue
        fitted.pieces.append(kept)
        left -= len(kept.data) + _PER_FILE_BYTES
    if got.not_here:
        fitted.state = "complete" if fitted.pieces else "not_here"
    elif got.problem or fitted.left_out:
        fitted.state = "partial" if fitted.pieces else "missing"
    return fitted


def _cleaned(raw: Piece, most_bytes: int, cleaner: Cleaner) -> tuple[Piece | None, str]:
    """The piece as it may be shown, or None and why not."""
    try:
        piece = cleaner.piece(_shortened(raw, most_bytes))
    except (ValueError, AttributeError, TypeError, RecursionError) as cause:  # garbage by name of a document
        return None, f"it could not be cleaned: {type(cause).__name__}"
    return piece, "" if piece is not None else "a secret could not be taken out of it"


def _shortened(piece: Piece, most_bytes: int) -> Piece:
    """A log without what would be cut off anyway, and so need not be cleaned."""
    cut = _cut(piece, most_bytes + LONGEST_SECRET_BYTES)
    if cut is None or cut is piece:
        return piece
    return dataclasses.replace(cut, margin_bytes=LONGEST_SECRET_BYTES)


def _cut(piece: Piece, most_bytes: int) -> Piece | None:
    """The piece if it fits; the newest whole lines of a log; else None."""
    if len(piece.data) <= most_bytes:
        return piece
    if not piece.log or most_bytes <= 0:
        return None
    tail = piece.data[-most_bytes:].partition(b"\n")[2]
    note = "cut: its newest lines"
    kept = "; ".join(filter(None, (piece.note.removesuffix(note).removesuffix("; "), note)))
    return dataclasses.replace(piece, data=tail, note=kept) if tail else None


def manifest(about: dict[str, Any], parts: Sequence[Fitted], cleaner: Cleaner) -> dict[str, Any]:
    """What is in the bundle, what is not and why."""
    return {
        "schema": 1,
        **about,
        "complete": is_complete(parts),
        "masked": {"secrets": cleaner.secrets, "lines_that_may_show_requests": cleaner.prompt_lines},
        "sources": [_source(part) for part in parts],
    }


def is_complete(parts: Sequence[Fitted]) -> bool:
    """Whether nothing is missing that this node could have given."""
    return all(part.state in ("complete", "not_here") for part in parts)


def _source(part: Fitted) -> dict[str, Any]:
    files = [
        {
            "path": piece.path,
            "bytes": len(piece.data),
            "sha256": hashlib.sha256(piece.data).hexdigest(),
            **({"note": piece.note} if piece.note else {}),
        }
        for piece in part.pieces
    ]
    return {
        "name": part.name,
        "what": part.title,
        "state": part.state,
        "why": part.why,
        "took_s": round(part.took_s, 1),
        "files": files,
        "left_out": part.left_out,
    }


def packed(name: str, first: Mapping[str, bytes], parts: Sequence[Fitted], now_wall_s: float) -> bytes:
    """The archive: a folder `name` with the files `first` and what every source gave."""
    files = [*first.items(), *((piece.path, piece.data) for part in parts for piece in part.pieces)]
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", compresslevel=6, mtime=int(now_wall_s)) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for path, data in files:
            entry = tarfile.TarInfo(f"{name}/{path}")
            entry.size, entry.mode, entry.mtime = len(data), _MODE, int(now_wall_s)
            tar.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def check_target(target: Path) -> None:
    """Refuse a name that is taken or no archive's, before anything is asked. Raises ConfigError."""
    if not target.name.endswith(SUFFIXES):
        raise ConfigError("is no name of a bundle", where=str(target), remedy="name it FILE.tar.gz")
    if os.path.lexists(target):
        raise ConfigError(
            "is there already", where=str(target), remedy="name a new file: an older bundle is evidence"
        )
    if not target.absolute().parent.is_dir():
        raise ConfigError(
            "its folder is not there", where=str(target), remedy="make the folder, or name another"
        )
    if not os.access(target.absolute().parent, os.W_OK):
        raise ConfigError("its folder cannot be written", where=str(target), remedy="name a file elsewhere")


def write(target: Path, data: bytes) -> None:
    """Write the archive for its owner alone; no half of it is ever under its name. Raises ConfigError."""
    draft: Path | None = None
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.absolute().parent)
        draft = Path(name)
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), _MODE)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        _name(draft, target)
    except OSError as cause:
        raise ConfigError(
            f"cannot write it: {cause.strerror or cause}",
            where=str(target),
            remedy="free space or name another file",
        ) from cause
    finally:
        if draft is not None:
            with contextlib.suppress(OSError):
                draft.unlink()


def _name(draft: Path, target: Path) -> None:
    """Give the file its name; what has come to lie there meanwhile is not overwritten."""
    try:
        os.link(draft, target)
    except OSError as cause:
        if cause.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS):
            raise
        if os.path.lexists(target):  # a file system without links
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from cause
        draft.rename(target)
