"""What the unit of an engine runs: `python -m agent.launch.exec_plan FILE` becomes the engine of a plan file.

It reads plan and secrets, opens the engine's log, leaves a receipt and is replaced by the engine, which so is
the unit's main process and gets exactly the environment of its plan. An error is one line, in the unit's
journal and in the engine's log, and exit status 3.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from agent.errors import LaunchError
from agent.launch.env_file import read_env_file
from agent.launch.launch_env import MARKER
from agent.launch.unit_plan import SCHEMA, Receipt, UnitPlan, read_unit_plan, receipt_of, write_private

EXIT_REFUSED = 3


def main(arguments: Sequence[str]) -> int:
    """Become the engine; returns only when that failed."""
    if len(arguments) != 1:
        print("usage: python -m agent.launch.exec_plan FILE", file=sys.stderr)  # noqa: T201
        return EXIT_REFUSED
    path = Path(arguments[0])
    try:
        plan = read_unit_plan(path)
    except LaunchError as cause:
        print(cause, file=sys.stderr)  # noqa: T201
        return EXIT_REFUSED
    receipt = Receipt(
        token=plan.token,
        launch_hash=plan.launch_hash,
        invocation_id=os.environ.get("INVOCATION_ID", ""),
        pid=os.getpid(),
        started_mono_s=plan.started_mono_s,
    )
    try:
        _become(plan, path, receipt)
    except LaunchError as cause:
        print(cause, file=sys.stderr)  # noqa: T201
        _leave(path, replace(receipt, error=str(cause)))
    return EXIT_REFUSED


def _become(plan: UnitPlan, path: Path, receipt: Receipt) -> None:
    """Execute the engine. LaunchError when something of the plan is not there."""
    secrets = read_env_file(Path(plan.env_file)) if plan.env_file is not None else {}
    env = {**plan.env, **secrets, MARKER: plan.mark}
    journal = os.dup(sys.stderr.fileno())  # closed by exec
    _enter(plan)
    program = _program(plan, env)
    _write_to_log(plan)
    if not _leave(path, receipt):
        os.dup2(journal, sys.stderr.fileno())
        raise LaunchError(f"engine {plan.engine}: {receipt_of(path)} cannot be written; free space there")
    try:
        os.execve(program, list(plan.argv), env)  # noqa: S606 (an argv list, no shell)
    except (OSError, ValueError) as cause:  # ValueError: a NUL in an argument
        os.dup2(journal, sys.stderr.fileno())
        reason = cause.strerror if isinstance(cause, OSError) else str(cause)
        raise LaunchError(_cannot_start(plan, plan.argv[0], reason or "exec failed")) from cause


def _enter(plan: UnitPlan) -> None:
    """Go to the plan's folder; without one stay in the unit's."""
    if plan.working_dir is None:
        return
    try:
        os.chdir(plan.working_dir)
    except OSError as cause:
        raise LaunchError(_cannot_start(plan, plan.working_dir, cause.strerror or "no folder")) from cause


def _program(plan: UnitPlan, env: dict[str, str]) -> str:
    """The program's path, found as a shell would find it with the engine's own PATH."""
    found = shutil.which(plan.argv[0], path=env.get("PATH", os.defpath))
    if found is None:
        there = Path(plan.argv[0]).exists()
        raise LaunchError(
            _cannot_start(plan, plan.argv[0], "Permission denied" if there else "No such file or directory")
        )
    return found


def _cannot_start(plan: UnitPlan, what: str, reason: str) -> str:
    return (
        f"engine {plan.engine}: {what} cannot be started: {reason}; "
        "check launch.command, launch.working_dir and PATH"
    )


def _write_to_log(plan: UnitPlan) -> None:
    """From now on both outputs go to the engine's log, which the agent keeps within its bound."""
    path = Path(plan.log)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Without O_NONBLOCK a FIFO in its place would hang here for ever; to a plain file it makes no odds.
        output = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK, 0o640)
    except OSError as cause:
        raise LaunchError(
            f"engine {plan.engine}: its log {path} cannot be written: {cause.strerror}; "
            "free space or set another --log-dir"
        ) from cause
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)


def _leave(path: Path, receipt: Receipt) -> bool:
    """Leave the receipt; whether it could be left."""
    try:
        write_private(receipt_of(path), {"schema": SCHEMA, **asdict(receipt)})
    except OSError as cause:
        print(f"{receipt_of(path)}: cannot be written: {cause.strerror}", file=sys.stderr)  # noqa: T201
        return False
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
