"""Records of runs on the disk: STATE_DIR/checklists/RUN_ID/run.json, replaced as a whole after each step.

The folder belongs to the group of the state folder, so that the daemon reads what root or an operator of the
group has written. Names are opened without following links: root writes into a folder of that group.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from agent.checklist.model import NAME
from agent.checklist.record import RunRecord
from agent.errors import AgentError, SourceUnavailable

FOLDER = "checklists"
RECORD, PROGRESS, CURRENT, LOCK = "run.json", "progress.json", "current", "lock"
RUN_ID = re.compile(rf"\d{{8}}T\d{{6}}Z-{NAME[1:-1]}")
#: A record with an hour of curves of eight GPUs has a few MiB; a longer file is not ours.
MOST_RECORD_BYTES = 32 << 20
MOST_PROGRESS_BYTES = 64 << 10
#: How long a lock that the daemon holds for a moment, to see whether a run is alive, is waited for.
_LOCK_WITHIN_S = 1.0


class RecordError(AgentError):
    """A record cannot be kept: a run that leaves no record is not begun or is stopped."""


class RunStore:
    """The folder `checklists` of a state folder."""

    def __init__(self, state_dir: Path) -> None:
        """Name it; nothing is made yet."""
        self.state_dir = state_dir
        self.folder = state_dir / FOLDER

    def make(self) -> None:
        """Make the folder, for the group of the state folder. Raises RecordError."""
        try:
            self.state_dir.mkdir(mode=0o750, parents=True, exist_ok=True)
            make_folder(self.folder, self.state_dir)
        except OSError as cause:
            raise _not_kept(self.folder, cause) from cause

    def runs(self) -> list[str]:
        """Ids of all runs, oldest first. Raises SourceUnavailable."""
        try:
            return sorted(path.name for path in self.folder.iterdir() if RUN_ID.fullmatch(path.name))
        except FileNotFoundError:
            return []
        except OSError as cause:
            raise SourceUnavailable(f"{self.folder}: {cause.strerror or cause}") from cause

    def of(self, checklist: str) -> list[str]:
        """Ids of the runs of one checklist, oldest first. Raises SourceUnavailable."""
        return [run_id for run_id in self.runs() if run_id.partition("-")[2] == checklist]

    def read(self, run_id: str) -> RunRecord:
        """One record. Raises SourceUnavailable for one that is not there, cannot be read or is garbled."""
        if not RUN_ID.fullmatch(run_id):
            raise SourceUnavailable(f"{run_id[:80]!r} is not the id of a run")
        path = self.folder / run_id / RECORD
        try:
            record = RunRecord.model_validate_json(_read(path, MOST_RECORD_BYTES))
        except OSError as cause:
            raise SourceUnavailable(f"{path}: {cause.strerror or cause}") from cause
        except ValidationError as cause:
            first = cause.errors()[0]
            at = ".".join(str(part) for part in first["loc"])
            raise SourceUnavailable(f"{path} is garbled: {at}: {first['msg']}"[:300]) from cause
        if record.run_id != run_id:
            raise SourceUnavailable(f"{path} is garbled: it says that it is run {record.run_id[:80]}")
        return record

    def begin(self, run_id: str) -> None:
        """Make a run's folder. Raises RecordError."""
        try:
            make_folder(self.folder / run_id, self.folder, new=True)
        except OSError as cause:
            raise _not_kept(self.folder / run_id, cause) from cause

    def write(self, record: RunRecord, progress: dict[str, Any]) -> None:
        """Replace the record, then what is told of it; both are on the disk after. Raises RecordError."""
        folder = self.folder / record.run_id
        try:
            replace_file(folder / RECORD, record.model_dump_json(indent=1).encode() + b"\n")
            replace_file(folder / PROGRESS, json.dumps(progress).encode() + b"\n")
            replace_file(self.folder / CURRENT, record.run_id.encode() + b"\n")
        except OSError as cause:
            raise _not_kept(folder, cause) from cause

    def progress(self) -> dict[str, Any] | None:
        """What the newest run is at, None without one. Raises SourceUnavailable."""
        try:
            run_id = _read(self.folder / CURRENT, 200).decode("ascii", "replace").strip()
            if not RUN_ID.fullmatch(run_id):
                raise SourceUnavailable(f"{self.folder / CURRENT} is garbled")
            told = json.loads(_read(self.folder / run_id / PROGRESS, MOST_PROGRESS_BYTES))
        except FileNotFoundError:
            return None
        except OSError as cause:
            raise SourceUnavailable(f"{self.folder}: {cause.strerror or cause}") from cause
        except ValueError as cause:
            raise SourceUnavailable(f"{self.folder}: the progress of a run is garbled") from cause
        if not isinstance(told, dict):
            raise SourceUnavailable(f"{self.folder}: the progress of a run is garbled")
        return told

    def is_running(self) -> bool:
        """Whether a command holds the lock now."""
        try:
            with _locked(self.folder / LOCK, make=False):
                return False
        except BlockingIOError:
            return True
        except OSError:
            return False

    @contextlib.contextmanager
    def lock(self, sleep: Callable[[float], None] = time.sleep) -> Iterator[None]:
        """One run a node. Raises RecordError when another holds it."""
        until_s = time.monotonic() + _LOCK_WITHIN_S
        with contextlib.ExitStack() as held:
            while True:
                try:
                    held.enter_context(_locked(self.folder / LOCK, make=True))
                    break
                except BlockingIOError as cause:
                    if time.monotonic() > until_s:
                        text = f"{self.folder}: another run of a checklist is under way on this node"
                        raise RecordError(f"{text}; wait for its end: nodegate status") from cause
                    sleep(0.05)
                except OSError as cause:
                    raise _not_kept(self.folder / LOCK, cause) from cause
            yield


@contextlib.contextmanager
def _locked(path: Path, *, make: bool) -> Iterator[None]:
    """Hold a lock file; the kernel frees it at any end. Raises BlockingIOError, OSError."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT if make else 0)
    descriptor = os.open(path, flags, 0o660)
    try:
        if make and os.fstat(descriptor).st_uid == os.geteuid():
            _give_to_group(descriptor, path.parent)
            os.fchmod(descriptor, 0o660)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def _read(path: Path, most: int) -> bytes:
    """A regular file that is not too long. Raises OSError, ValueError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(0, "is not a regular file")
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(0, f"is longer than {most} bytes")
    return data


def make_folder(folder: Path, above: Path, *, new: bool = False) -> None:
    """A folder that the group of the one above may write in, new files with that group. Raises OSError."""
    try:
        folder.mkdir(mode=0o770)
    except FileExistsError:
        if new or folder.is_symlink():
            raise
        return
    owner = above.stat()
    # By its descriptor: whoever may write in the folder above could put a link in its place meanwhile.
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.geteuid() == 0:
            os.fchown(opened, owner.st_uid, owner.st_gid)
        elif os.fstat(opened).st_gid != owner.st_gid:
            with contextlib.suppress(PermissionError):  # not of that group: the folder stays this user's
                os.fchown(opened, -1, owner.st_gid)
        try:
            os.fchmod(opened, 0o2770)
        except PermissionError:  # the agent's unit may not; files are given to the group one by one
            os.fchmod(opened, 0o770)
    finally:
        os.close(opened)


def _give_to_group(descriptor: int, folder: Path) -> None:
    """Give an open file to the group of its folder, where its owner may."""
    with contextlib.suppress(PermissionError):
        os.fchown(descriptor, -1, folder.stat().st_gid)


def replace_file(path: Path, data: bytes, mode: int = 0o640) -> None:
    """Write a file beside and put it in the place of the old one; durable. Raises OSError."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            _give_to_group(descriptor, path.parent)
            os.fchmod(descriptor, mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _not_kept(path: Path, cause: OSError) -> RecordError:
    why = cause.strerror or str(cause)
    return RecordError(
        f"{path}: the record cannot be kept: {why}; run as root or in the group nodegate, or free space"
    )


def run_id_of(checklist: str, wall_s: float) -> str:
    """The id of a run that begins now."""
    return f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(wall_s))}-{checklist}"
