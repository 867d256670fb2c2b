"""A DaemonRig whose scenario begins when the test says so (staged_daemon.py)."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from daemon_rig import DaemonRig, wait_until

PROGRAM = Path(__file__).with_name("staged_daemon.py")


class _NoAliases(yaml.SafeDumper):
    """Scenario files may not use YAML's aliases, which the dumper makes of whatever appears twice."""

    def ignore_aliases(self, _data: object) -> bool:
        return True


class Stage(DaemonRig):
    """`engines` names each engine's GPU slots, `scenario` has the `steps`; times count from `begin`."""

    def __init__(
        self, folder: Path, engines: dict[str, list[int]], scenario: Mapping[str, Any], **checks: Any
    ) -> None:
        super().__init__(folder, engines)
        self.profile["checks"] |= checks
        self.write_profile()
        self.scenario_path = folder / "scenario.yaml"
        self.scenario_path.write_text(
            yaml.dump({"name": "test", **scenario}, Dumper=_NoAliases, sort_keys=False)
        )

    def __enter__(self) -> Stage:
        words = [sys.executable, str(PROGRAM), *self.words("--scenario", str(self.scenario_path))[1:]]
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def begin(self) -> float:
        """Let the scenario's time begin; the moment on CLOCK_BOOTTIME."""
        assert self.process is not None
        self.process.send_signal(signal.SIGUSR2)
        told = wait_until("the scenario's beginning", lambda: re.search(r"scenario began (\S+)", self.log()))
        return float(told[1])
