"""Nodes behind a load balancer, each a Space: an agent and an embedded engine (SIMULATED), two processes."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from agent_host import node_profile
from daemon_rig import DaemonRig, engine_part, wait_until
from lb_space import Space, children, plug, unplug

from agent.profile_loader import load_profile
from agent.provision.services import Node

ENGINE, MODEL = "main", "sim"
API_PORT, ENGINE_PORT, CHECK_PORT = 9470, 8000, 9471
#: A token's time: a request of 12 tokens is inside its engine for a third of a second.
TOKEN_S = 0.03
#: Longer than a load balancer needs to see a closed gate and the longest request of the load together.
DRAIN_GRACE_S = 6.0
_PROGRAM = Path(__file__).with_name("cue_daemon.py")
#: Of every GPU: a power brake, as a rack's supply asserts it (soft).
_BRAKED = {f"nvml.gpus.{i}.power.event_reasons": 0x80 for i in range(8)}
_HOT = {
    "nvml.gpus.3.thermal.temperature_c": 91,
    "nvml.gpus.3.thermal.margin_c": -4,
    "nvml.gpus.3.power.event_reasons": 0x40,
    "nvml.gpus.3.power.sm_clock_mhz": 345,
}
_WELL = {"reset": ["nvml.gpus.3.thermal", *(f"nvml.gpus.{i}.power" for i in range(8))]}
_XID = "3;NVRM: Xid (PCI:0000:52:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
#: Cue -> second of the scenario; later cues take back what earlier ones have set.
CUES = {"well": 0, "braked": 1000, "hot": 2000, "xid": 3000}
_STEPS: list[dict[str, Any]] = [
    {"at_s": 1000, "set": _BRAKED},
    {"at_s": 2000, **_WELL},
    {"at_s": 2000, "set": _HOT},
    {"at_s": 3000, **_WELL},
    {"at_s": 3000, "kmsg": [_XID], "set": {"nvml.gpus.2": {"error": "GPU_IS_LOST"}}},
]


class LbNode(DaemonRig):
    """One node, cabled to the load balancer's Space."""

    def __init__(self, folder: Path, name: str, front: Space, number: int) -> None:
        folder.mkdir()
        super().__init__(folder, {ENGINE: list(range(8))}, node=name)
        self.name, self._front, self.number = name, front, number
        self.api_port, self.engine_ports = API_PORT, {ENGINE: ENGINE_PORT}
        self.check_ports = {ENGINE: CHECK_PORT}
        self.fit_profile()
        self.write_profile()
        self._scenario, self._cue = folder / "scenario.yaml", folder / "cue"
        self._scenario.write_text(json.dumps({"name": "faults", "steps": _STEPS}))
        self.power_on()

    def fit_profile(self) -> None:
        """Ports that are the same on every node, seconds as in production but for the engine's own times."""
        self.profile["api"] = {"host": "0.0.0.0", "port": API_PORT}
        self.profile["engines"] = {ENGINE: lb_engine(list(range(8)))}

    def power_on(self) -> None:
        """A new machine with the same disk."""
        self.space = Space()
        self.address = plug(self._front, self.space, self.number)

    def power_off(self) -> None:
        """The cable first: a node without power sends no resets."""
        unplug(self._front, self.number)
        self.space.power_off()
        assert self.process is not None
        self.process.wait(30)
        self.space.close()

    def words(self, *more: str) -> list[str]:
        words = super().words("--scenario", str(self._scenario), *more)[1:]
        return self.space.words(sys.executable, str(_PROGRAM), str(self._cue), *words)

    def agent_pid(self) -> int:
        """The agent's own process: what was started here only waits for it."""
        assert self.process is not None
        keeper = self.process.pid
        return wait_until("the agent's process", lambda: next(iter(children(keeper)), 0), 10)

    def wait_serving(self, patience_s: float) -> None:
        """Wait for the open gate; says what the agent said last if it does not come."""
        try:
            wait_until(f"{self.name} ready", lambda: self.ready() or self._died(), patience_s)
        except AssertionError as cause:
            raise AssertionError(f"{cause}: {self.gate(ENGINE)}\n{self.log()[-3000:]}") from cause

    def kill_agent(self) -> None:
        """SIGKILL; its engine goes on."""
        os.kill(self.agent_pid(), signal.SIGKILL)
        assert self.process is not None
        self.process.wait(30)

    def cue(self, name: str) -> None:
        """Bring a fault about, or end it (`well`)."""
        word = f"{CUES[name]}"
        before = self.log().count(f"cue {word}\n")
        self._cue.write_text(word)
        os.kill(self.agent_pid(), signal.SIGUSR2)
        wait_until(f"the cue {name}", lambda: self.log().count(f"cue {word}\n") > before, 20)

    def order(self, path: str, **body: Any) -> None:
        """An operator's order; of the engine where it is about one."""
        engine = {} if path.startswith("/maintenance") else {"engine": ENGINE}
        self.admin.post(path, {**engine, "reason": "test", **body})

    def cores(self) -> list[int]:
        """The processes that make tokens."""
        return self._inside_with(b"agent.launch.embedded_core")

    def engine_pids(self) -> list[int]:
        return self._inside_with(b"agent.launch.embedded_engine")

    def signal_core(self, number: signal.Signals) -> None:
        """To the core that runs."""
        (core,) = self.cores()
        os.kill(core, number)

    def state(self) -> str:
        """The gate's state; empty when nothing answers."""
        return str(self.gate(ENGINE).get("state", ""))

    def get(self, path: str, method: str = "GET") -> tuple[int, bytes, dict[str, str]]:
        return self.space.inside(lambda: super(LbNode, self).get(path, method))

    def seen_by_role(self) -> Node:
        """As the inventory has it: the profile is the one that the agent runs with."""
        profile = load_profile(self.profile_path).profile
        return Node(self.name, self.address, {"profile": profile.model_dump(mode="json")})

    def close(self) -> None:
        self.space.close()
        if self.process is not None:
            self.process.wait(30)

    def _inside_with(self, word: bytes) -> list[int]:
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and self.space.holds(int(entry.name)) and word in _argv(entry):
                found.append(int(entry.name))
        return found


class PlainNode(LbNode):
    """A node without GPUs that is not simulated: the enforced gate opens for no agent that replays a capture.

    Its engine is the embedded one all the same.
    """

    def __init__(self, folder: Path, name: str, front: Space, number: int) -> None:
        super().__init__(folder, name, front, number)
        self.helper = self._start_helper()

    def fit_profile(self) -> None:
        self.profile = node_profile(
            node=self.name,
            api={"host": "0.0.0.0", "port": API_PORT},
            engines={ENGINE: lb_engine([])},
            enforce={"enabled": True},
        )

    def words(self, *more: str) -> list[str]:
        words = DaemonRig.words(self, *more)
        at = words.index("--node")
        return self.space.words(*words[:at], *words[at + 2 :])

    def close(self) -> None:
        super().close()
        self.helper.wait(30)

    def _start_helper(self) -> Any:
        with (self.folder / "helper.log").open("ab") as log:
            nodegate = str(Path(sys.executable).with_name("nodegate"))
            return self.space.start(log, nodegate, "enforce", "run", "--profile", str(self.profile_path))


def lb_engine(gpus: list[int]) -> dict[str, Any]:
    """The engine of the profile, open to the load balancer."""
    part = engine_part(ENGINE_PORT, CHECK_PORT, gpus, host="0.0.0.0")
    part["launch"]["args"] = ["--startup-s", "0.5", "--token-s", str(TOKEN_S)]
    part["canary"] = {"period_s": 2.0, "deadline_s": 5.0, "restart_after": 2}
    part["gate"] = {"drain_grace_s": DRAIN_GRACE_S}
    return part


def _argv(entry: Path) -> list[bytes]:
    try:
        return (entry / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return []
