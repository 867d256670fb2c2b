"""The plan file: one launch as its systemd unit runs it, and the receipt of the starter that has run it.

The agent writes RUN_DIR/engines/NAME.json, and `python -m agent.launch.exec_plan` in the unit reads it. No
secrets are in it: `env_file` is read by the starter. The receipt beside it says which launch a run of the
unit (its invocation id) really is, which makes taking over an engine exact, whenever the agent was killed.
Only small modules are imported here: the starter becomes the engine, and should do so soon.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.errors import LaunchError
from agent.launch.podman_unit import in_unit

if TYPE_CHECKING:
    from agent.launch.launch_profile import LaunchPlan

SCHEMA = 1
MAX_BYTES = 4 * 1024 * 1024
FOLDER = "engines"
_MOST = 1e12


@dataclass(frozen=True, slots=True)
class UnitPlan:
    """One launch. `mark` is the value of the variable by which the engine's processes are known."""

    engine: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    env_file: str | None
    working_dir: str | None
    mark: str
    log: str
    token: str
    launch_hash: str
    started_mono_s: float


@dataclass(frozen=True, slots=True)
class Receipt:
    """What the starter did: this launch, in this run of the unit; or why it could not."""

    token: str
    launch_hash: str
    invocation_id: str
    pid: int
    started_mono_s: float
    error: str = ""


class UnitPlanFile:
    """Plan and receipt of one engine."""

    def __init__(self, run_dir: Path, engine: str) -> None:
        """Name the files; nothing is read yet."""
        self.path = run_dir / FOLDER / f"{engine}.json"
        self.receipt_path = receipt_of(self.path)

    def write(self, plan: UnitPlan) -> None:
        """Replace the plan, and forget the receipt of the one before. LaunchError when that fails."""
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.receipt_path.unlink(missing_ok=True)
            write_private(self.path, {"schema": SCHEMA, **asdict(plan)})
        except OSError as cause:
            raise LaunchError(
                f"{self.path}: cannot be written: {cause.strerror}; "
                "free space or check the owner of --run-dir"
            ) from cause

    def receipt(self) -> Receipt | None:
        """What the starter said; None when it has said nothing that can be read."""
        try:
            data = json.loads(_read_own(self.receipt_path))
            return Receipt(**_fields(data, Receipt, self.receipt_path))
        except (OSError, ValueError, RecursionError, TypeError, LaunchError):
            return None

    def remove(self) -> None:
        """Forget both: a unit without a plan refuses to start. Raises OSError."""
        self.path.unlink(missing_ok=True)
        self.receipt_path.unlink(missing_ok=True)


def receipt_of(plan: Path) -> Path:
    """Where the receipt for a plan file lies."""
    return plan.with_suffix(".started")


def unit_plan(plan: LaunchPlan, *, mark: str, log: Path, token: str, started_mono_s: float) -> UnitPlan:
    """The launch as the unit runs it."""
    return UnitPlan(
        engine=plan.engine,
        argv=in_unit(plan.argv),
        env=dict(plan.env),
        env_file=plan.env_file,
        working_dir=plan.working_dir,
        mark=mark,
        log=str(log),
        token=token,
        launch_hash=plan.launch_hash(),
        started_mono_s=started_mono_s,
    )


def read_unit_plan(path: Path) -> UnitPlan:
    """Read a plan; LaunchError, in one line, for one that another user could have written or that is bad."""
    try:
        data = json.loads(_read_own(path))
    except OSError as cause:
        raise LaunchError(
            f"{path}: cannot be read: {cause.strerror}; the agent writes it when it starts the engine "
            "(nodegate engine start NAME)"
        ) from cause
    except (ValueError, RecursionError) as cause:
        raise LaunchError(f"{path}: not JSON; stop the engine and start it again") from cause
    fields = _fields(data, UnitPlan, path)
    argv = fields["argv"]
    if not (isinstance(argv, list) and argv and all(map(_usable, argv))):
        raise LaunchError(f"{path}: argv must be a list of strings, not empty, without NUL")
    env = fields["env"]
    if not isinstance(env, dict) or not all(map(_usable, (*env, *env.values()))):
        raise LaunchError(f"{path}: env must hold strings, without NUL")
    return UnitPlan(**{**fields, "argv": tuple(argv)})


_TEXT = ("engine", "mark", "log", "token", "launch_hash", "invocation_id", "error")


def _fields(data: Any, form: type[UnitPlan] | type[Receipt], path: Path) -> dict[str, Any]:
    """The fields of a file's content. LaunchError for missing, unknown or mistyped ones."""
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise LaunchError(f"{path}: not a file of schema {SCHEMA}; stop the engine and start it again")
    fields = {key: value for key, value in data.items() if key != "schema"}
    wanted = set(form.__dataclass_fields__)
    if fields.keys() != wanted:
        odd = ", ".join(sorted(fields.keys() ^ wanted))
        raise LaunchError(f"{path}: missing or unknown: {odd}; stop the engine and start it again")
    for key, value in fields.items():
        if key in _TEXT and not _usable(value):
            raise LaunchError(f"{path}: {key} must be a string, without NUL")
        if key in ("working_dir", "env_file") and value is not None and not _usable(value):
            raise LaunchError(f"{path}: {key} must be a string or null, without NUL")
        if key in ("pid", "started_mono_s") and not _number(value):
            raise LaunchError(f"{path}: {key} must be a number")
    return fields


def _usable(value: object) -> bool:
    """Whether it is text that the kernel takes: JSON can hold NUL, and halves of characters."""
    try:
        return isinstance(value, str) and b"\0" not in os.fsencode(value)
    except UnicodeEncodeError:
        return False


def _number(value: object) -> bool:
    """Whether it is a number that times can be reckoned with."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _MOST


def _read_own(path: Path) -> str:
    """A file that only root or this user can have written. Raises OSError and LaunchError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise LaunchError(f"{path}: not a regular file; remove it")
        if info.st_uid not in (0, os.geteuid()):
            raise LaunchError(
                f"{path}: owned by uid {info.st_uid}; it must belong to root or to the agent's user"
            )
        if stat.S_IMODE(info.st_mode) & 0o022:
            raise LaunchError(
                f"{path}: mode is {stat.S_IMODE(info.st_mode):04o}, others can write it; remove it"
            )
        with os.fdopen(os.dup(descriptor), "rb") as file:
            content = file.read(MAX_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(content) > MAX_BYTES:
        raise LaunchError(f"{path}: larger than {MAX_BYTES} bytes; remove it")
    return content.decode()


def write_private(path: Path, content: Mapping[str, object]) -> None:
    """Replace a file atomically with JSON that only its owner can read. Raises OSError."""
    temporary = path.with_name(f".{path.name}.new")
    descriptor = os.open(
        temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
    )
    with os.fdopen(descriptor, "w") as file:
        os.fchmod(file.fileno(), 0o600)
        json.dump(content, file)
    temporary.replace(path)
