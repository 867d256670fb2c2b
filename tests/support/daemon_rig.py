"""`nodegate run` as a process on a SIMULATED node with embedded engines, for tests of the daemon."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import yaml
from ports import free_ports

import agent
from agent.admin_client import AdminClient

NODEGATE = Path(sys.executable).with_name("nodegate")
DEMO_NODE = Path(agent.__file__).parent / "demo_nodes" / "h200-roce"
EMBEDDED = [sys.executable, "-P", "-m", "agent.launch.embedded_engine"]
PATIENCE_S = 90.0
#: Checks of growth, and others whose evidence costs much, that no test of the daemon is about.
LEFT_OUT = (
    "gpu.pcie_errors", "gpu.thermal_trend", "gpu.power_dips", "gpu.p2p", "gpu.topology", "nic.flap",
    "nic.gid", "nic.pcie", "nic.firmware", "nic.cable", "nic.max_read_request", "nic.serial", "pci.acs",
    "pci.aspm", "host.iommu", "host.governor", "roce.cnp", "roce.ecn_activity", "roce.lossless_drop",
    "roce.oos", "roce.pfc_storm",
)  # fmt: skip
T = TypeVar("T")


def wait_until(what: str, probe: Callable[[], T | None], patience_s: float = PATIENCE_S) -> T:
    """Ask until the answer is true."""
    end_s = time.monotonic() + patience_s
    while time.monotonic() < end_s:
        if found := probe():
            return found
        time.sleep(0.02)
    raise AssertionError(f"waited {patience_s:g} s in vain for {what}")


def engine_part(port: int, agent_check_port: int, gpus: list[int], **more: Any) -> dict[str, Any]:
    """An engine of the profile that starts, warms up and stops within a second or two."""
    return {
        "gpus": gpus,
        "port": port,
        "agent_check_port": agent_check_port,
        "launch": {"command": EMBEDDED, "model": "sim", "args": ["--startup-s", "0.2", "--token-s", "0.002"]},
        "canary": {"period_s": 0.5, "deadline_s": 2.0},
        "warmup": {"requests": 1, "concurrent": 1, "max_tokens": 2},
        "backoff": {"first_s": 0.2, "jitter": 0.0},
        "gate": {"drain_grace_s": 0.5},
        "stop_deadline_s": 10,
        **more,
    }


class DaemonRig:
    """One node's profile and folders, and the daemon processes that run on them one after another."""

    def __init__(self, folder: Path, engines: dict[str, list[int]], **profile: Any) -> None:
        """`engines` names each engine's GPU slots; keywords replace top-level parts of the profile."""
        self.folder = folder
        self.api_port, *ports = free_ports(1 + 2 * len(engines))
        self.engine_ports = dict(zip(engines, ports[::2], strict=True))
        self.check_ports = dict(zip(engines, ports[1::2], strict=True))
        base = yaml.safe_load((DEMO_NODE / "profile.yaml").read_text())
        parts = {
            name: engine_part(self.engine_ports[name], self.check_ports[name], gpus)
            for name, gpus in engines.items()
        }
        # Counters need two samples: without this every start would take seconds. Two kinds stand for all.
        quick: dict[str, Any] = {check: {"period_s": 0.5} for check in ("nvlink.errors", "roce.errors")}
        quick |= {check: {"enabled": False} for check in LEFT_OUT}
        self.profile = {
            **base,
            "api": {"host": "127.0.0.1", "port": self.api_port},
            "engines": parts,
            "checks": {**base["checks"], **quick},
            **profile,
        }
        self.profile_path = folder / "site.yaml"
        self.write_profile()
        self.state_dir = folder / "state"
        # A Unix socket's path is at most 107 characters: pytest's own folders can be longer.
        self.run_dir = Path(os.path.relpath(folder / "run")) if len(str(folder)) > 80 else folder / "run"
        self.log_path = folder / "daemon.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.admin = AdminClient(self.run_dir)

    def write_profile(self) -> None:
        """Write the profile as it is now."""
        self.profile_path.write_text(yaml.safe_dump(self.profile, sort_keys=False))

    def words(self, *more: str) -> list[str]:
        """The command line of the daemon."""
        return [
            str(NODEGATE), "run", "--profile", str(self.profile_path), "--node", str(DEMO_NODE),
            "--state-dir", str(self.state_dir), "--run-dir", str(self.run_dir), *more,
        ]  # fmt: skip

    def start(self, *more: str) -> None:
        """Start a daemon; its log is appended to."""
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(self.words(*more), stdout=log, stderr=log)

    def stop(self, number: signal.Signals = signal.SIGTERM, patience_s: float = 60.0) -> int:
        """Signal the daemon and wait for its end; its exit code."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(patience_s)

    def close(self) -> None:
        """End whatever is left of the daemon and of its engines."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(10)
        for pid in self.engine_pids():
            os.killpg(pid, signal.SIGKILL)  # its core too, which outlives it

    def engine_pids(self) -> list[int]:
        """Processes that have one of this rig's engine ports on their command line."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and self._is_ours(entry):
                found.append(int(entry.name))
        return found

    def _is_ours(self, entry: Path) -> bool:
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            return False
        ports = {str(port).encode() for port in self.engine_ports.values()}
        return b"agent.launch.embedded_engine" in words and bool(ports & set(words))

    def get(self, path: str, method: str = "GET") -> tuple[int, bytes, dict[str, str]]:
        """One request to the read-only interface; status 0 when nothing answers."""
        connection = http.client.HTTPConnection("127.0.0.1", self.api_port, timeout=10)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            return answer.status, answer.read(), {k.lower(): v for k, v in answer.getheaders()}
        except OSError:
            return 0, b"", {}
        finally:
            connection.close()

    def json(self, path: str) -> dict[str, Any]:
        """The JSON of one request."""
        _, body, _ = self.get(path)
        return dict(json.loads(body)) if body[:1] == b"{" else {}

    def ready(self, engine: str = "") -> bool:
        """Whether /readyz is 200."""
        return self.get(f"/readyz/{engine}" if engine else "/readyz")[0] == 200

    def gate(self, engine: str) -> dict[str, Any]:
        """One gate as /status shows it, empty when nothing answers."""
        gates = self.json("/status").get("gates", [])
        return next((gate for gate in gates if gate["engine"] == engine), {})

    def wait_ready(self, engine: str = "") -> None:
        """Wait for 200."""
        wait_until(f"ready {engine}", lambda: self.ready(engine) or self._died())

    def wait_state(self, engine: str, state: str, patience_s: float = PATIENCE_S) -> dict[str, Any]:
        """Wait until a gate is in a state; the gate."""

        def probe() -> dict[str, Any] | None:
            gate = self.gate(engine)
            return gate if gate.get("state") == state else None

        return wait_until(f"{engine} {state}, last {self.gate(engine)}", probe, patience_s)

    def agent_line(self, engine: str) -> str:
        """What the agent check says, empty when nothing listens."""
        try:
            with socket.create_connection(("127.0.0.1", self.check_ports[engine]), timeout=10) as peer:
                return peer.makefile().read()
        except OSError:
            return ""

    def log(self) -> str:
        """The daemon's log without its times."""
        text = self.log_path.read_text() if self.log_path.exists() else ""
        return re.sub(r"(?m)^\d{4}-\d\d-\d\d [\d:,]+ ", "", text)

    def _died(self) -> bool:
        """Fail at once when the daemon has ended."""
        if self.process is not None and self.process.poll() is not None:
            raise AssertionError(f"the daemon ended with {self.process.returncode}:\n{self.log()[-3000:]}")
        return False
