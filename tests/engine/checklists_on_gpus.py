"""The daily use on real GPUs: before-traffic at an open gate, maintenance, post-maintenance, and a bundle.

Not a test that CI can run. A tensor-parallel vLLM serves meanwhile, launched by the daemon; the checklists
are the shipped ones, as long as shipped. Reports, status page and bundle come to FOLDER/out, with told.json:
each command, its exit code, what it said and how long it took.

    python tests/engine/checklists_on_gpus.py --vllm "vllm serve" --profile FILE --folder FOLDER

The profile has no engines; this script adds one over all its GPUs. It changes no setting of a GPU.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from rehearse_on_gpus import API, NODEGATE, get, processes, ready, start_daemon, wait_for, written

ANSWERS = {
    "before-traffic": ("prompts=same", "baseline=0", "profile=yes"),
    "post-maintenance": ("coolant-seen=air-cooled",),
}
#: Post-maintenance loads for three minutes, starts the engine and lets it soak for three more.
COMMAND_WITHIN_S = 1200


class Operator:
    """Somebody at a terminal: every command, its exit code, what it said and how long it took."""

    def __init__(self, folder: Path, profile: Path) -> None:
        self.folder, self.profile, self.out = folder, profile, folder / "out"
        self.out.mkdir()
        self.told: list[dict[str, Any]] = []

    def does(self, *words: str) -> None:
        """One command of nodegate."""
        began_s = time.monotonic()
        done = subprocess.run(
            [*NODEGATE, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, check=False, timeout=COMMAND_WITHIN_S,
        )  # fmt: skip
        took_s = round(time.monotonic() - began_s, 1)
        self.told.append(
            {"command": words, "exit_code": done.returncode, "took_s": took_s, "said": done.stdout}
        )
        print(f"{took_s:7.1f} s  {done.returncode}  {' '.join(words)}", flush=True)

    def asks(self, *words: str) -> None:
        """One command to the daemon."""
        self.does(*words, "--run-dir", str(self.folder / "run"))

    def checks(self, name: str) -> None:
        """A checklist as shipped, with the answers of a person who was asked."""
        answers = [word for answer in ANSWERS[name] for word in ("--answer", answer)]
        self.asks("checklist", "run", name, *answers, "--who", "rehearsal", "--report", str(self.out / name))


def day(operator: Operator) -> None:
    """What happens to a node that serves, is worked on and comes back."""
    operator.checks("before-traffic")
    operator.asks("maintenance", "enter", "--reason", "rehearsal of a maintenance")
    operator.asks("status")
    operator.checks("post-maintenance")
    operator.asks("status")
    (operator.out / "status.html").write_text(get(API, "/")[1])
    operator.asks("history", "--json")
    where = ["--run-dir", str(operator.folder / "run"), "--log-dir", str(operator.folder / "log")]
    bundle = str(operator.out / "bundle.tar.gz")
    operator.does("bundle", bundle, "--redact", "--profile", str(operator.profile), *where)


def main() -> None:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--profile", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--vllm", default="vllm serve", help="program and first arguments, up to `serve`")
    given = parser.parse_args()
    given.folder.mkdir(parents=True)
    profile = written(given.folder, given.profile, shlex.split(given.vllm), topo=True)
    operator = Operator(given.folder, profile)
    told: dict[str, Any] = {"commands": operator.told}
    with (given.folder / "daemon.log").open("w") as log:
        daemon = start_daemon(given.folder, log, profile)
        try:
            told["open_after_s"] = wait_for("an open gate", ready, 400)
            day(operator)
            told["ready_at_the_end"] = ready()
        finally:
            daemon.send_signal(signal.SIGTERM)
            told["exit_code"] = daemon.wait(120)
            told["processes_left"] = [stat.comm for stat in processes() if stat.comm.startswith("VLLM")]
            shutil.copy(given.folder / "daemon.log", operator.out)
            (operator.out / "told.json").write_text(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
