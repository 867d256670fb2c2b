"""nodegate as a service on a systemd host: installed by its own command, on a node without GPUs.

The engine is the embedded one (SIMULATED); everything else is read live from the host.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import yaml
from nspawn_rig import Host, wait_for

API_PORT = 9470
ENGINE_PORT = 18080
UNIT = "nodegate.service"
PROFILE = "/etc/nodegate/profile.yaml"
EMBEDDED = ["/opt/nodegate/bin/python", "-P", "-m", "agent.launch.embedded_engine"]


def node_profile(**more: Any) -> dict[str, Any]:
    """A node without GPUs and one engine that starts within a second; keywords replace top-level parts."""
    engine = {
        "gpus": [],
        "port": ENGINE_PORT,
        "agent_check_port": 9471,
        "launch": {
            "command": EMBEDDED,
            "model": "sim",
            "args": ["--startup-s", "0.2", "--token-s", "0.002"],
        },
        "canary": {"period_s": 0.5, "deadline_s": 2.0},
        "warmup": {"requests": 1, "concurrent": 1, "max_tokens": 2},
        "backoff": {"first_s": 0.2, "jitter": 0.0},
        "gate": {"drain_grace_s": 0.2},
        "stop_deadline_s": 10,
    }
    return {
        "schema_version": 1,
        "platform": "generic-8gpu",
        "node": "test-node",
        "mode": "manage",
        "driver_version": None,
        "gpus": {"count": 0},
        "nvlink": {"links_per_gpu": 0},
        "fabric": {"kind": "none"},
        "host": {"time_sync": False},  # of this machine's kernel, which may have no time service
        "supervision": "process",
        "api": {"host": "127.0.0.1", "port": API_PORT},
        "engines": {"main": engine},
        **more,
    }


class AgentHost:
    """The service on one host."""

    def __init__(self, host: Host) -> None:
        """Nothing is installed yet."""
        self.host = host

    def install(self, profile: Mapping[str, Any], *, processes: bool = True) -> None:
        """Install the units as the documentation says, and the profile. Nothing is started."""
        words = ["nodegate", "systemd", "install"]
        self.host.must([*words, *(["--process-supervision"] if processes else [])])
        self.host.must(["systemd-sysusers"])
        self.host.must(["systemd-tmpfiles", "--create"])
        self.host.must(["systemctl", "daemon-reload"])
        self.write_profile(profile)

    def write_profile(self, profile: Mapping[str, Any]) -> None:
        """Write the profile; a reload or a start takes it."""
        self.host.write(PROFILE, yaml.safe_dump(dict(profile), sort_keys=False))

    def start(self) -> None:
        """Start the service; systemctl comes back when it has said that it is ready."""
        self.host.must(["systemctl", "start", UNIT])

    def show(self, name: str, unit: str = UNIT) -> str:
        """One property of a unit."""
        return self.host.must(["systemctl", "show", "--value", "-p", name, unit]).strip()

    def main_pid(self) -> int:
        """The agent as the host numbers it, 0 while there is none."""
        return int(self.show("MainPID") or 0)

    def get(self, path: str) -> tuple[int, bytes]:
        """One request to the read-only interface; status 0 when nothing answers."""
        return self.host.get(API_PORT, path)

    def status(self) -> dict[str, Any]:
        """/status, empty when nothing answers."""
        body = self.get("/status")[1]
        return dict(json.loads(body)) if body[:1] == b"{" else {}

    def gate(self) -> dict[str, Any]:
        """The gate of the engine."""
        return next(iter(self.status().get("gates", [])), {})

    def ready(self) -> bool:
        """Whether /readyz is 200."""
        return self.get("/readyz")[0] == 200

    def wait_ready(self, patience_s: float = 60.0) -> None:
        """Wait for 200; what the agent says if it does not come."""
        try:
            wait_for("readiness", self.ready, patience_s)
        except AssertionError as late:
            text = json.dumps(self.gate(), indent=1) + self.host.journal(UNIT)[-4000:]
            raise AssertionError(f"{late}\n{text}") from late

    def engines(self) -> list[tuple[int, int]]:
        """Every running embedded engine: pid as the host numbers it, and its start in ticks since boot."""
        code = (
            "import pathlib\n"
            "for p in pathlib.Path('/proc').glob('[0-9]*'):\n"
            " try:\n"
            "  words = (p / 'cmdline').read_bytes().split(b'\\0')\n"
            "  stat = (p / 'stat').read_text().rpartition(')')[2].split()\n"
            " except OSError: continue\n"
            " if b'agent.launch.embedded_engine' in words and stat[0] != 'Z': print(p.name, stat[19])\n"
        )
        lines = self.host.must(["/usr/bin/python3", "-c", code]).splitlines()
        return [(int(pid), int(ticks)) for pid, ticks in (line.split() for line in lines)]
