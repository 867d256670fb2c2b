"""What the demo runs on: the simulated node of the package, its scenarios, and a profile for this machine.

Free ports of the loopback are put into the node's profile, and the embedded engine takes the place of vLLM.
"""

from __future__ import annotations

import contextlib
import difflib
import random
import socket
import sys
from pathlib import Path
from typing import Any

import yaml

from agent.errors import ConfigError
from agent.profile_loader import LoadedProfile, load_profile
from agent.sources.scenario import load_scenario

NODE_DIR = Path(__file__).parent / "demo_nodes" / "h200-roce"
HOST = "127.0.0.1"
#: Linux gives ports from 32768 on to connections (ip_local_port_range); the tests take theirs below these.
PORTS = (28000, 32768)
#: A person watches: faults are seen and forgotten after seconds, where a real node waits for minutes.
IMPATIENT = {
    "gpu.hbm_temp": {"period_s": 2, "fail_for_s": 2, "clear_for_s": 3},
    "nvlink.errors": {"period_s": 2, "clear_for_s": 3},
}
#: The embedded engine runs on this machine, the replayed /proc is another's: its processes are not in there.
OUT_OF_SIGHT = {check: {"enabled": False} for check in ("engine.cpu", "engine.memory", "engine.numa")}
IMPATIENT_LIMITS = {"nvlink.errors": {"window_s": 6}}
#: -P: no file of the working directory may stand in for a module.
ENGINE_COMMAND = [sys.executable, "-P", "-m", "agent.launch.embedded_engine"]


def scenarios(node_dir: Path = NODE_DIR) -> list[tuple[str, str]]:
    """The scenarios that the node brings along: name and description."""
    found = sorted((node_dir / "scenarios").glob("*.yaml"))
    return [(path.stem, load_scenario(path).description) for path in found]


def scenario_path(name: str, node_dir: Path = NODE_DIR) -> Path:
    """The file of a scenario by its name, or a file of one's own. Raises ConfigError."""
    own = Path(name)
    if own.suffix in (".yaml", ".yml"):
        if own.is_file():
            return own
        raise ConfigError("there is no such scenario file", where=name, remedy="name a scenario or a file")
    names = [known for known, _ in scenarios(node_dir)]
    if name not in names:
        near = difflib.get_close_matches(name, names, 1)
        remedy = f"did you mean {near[0]}?" if near else f"there are: {', '.join(names)}"
        raise ConfigError(f"no scenario is named {name!r}", remedy=remedy)
    return node_dir / "scenarios" / f"{name}.yaml"


def demo_profile(folder: Path, node_dir: Path = NODE_DIR) -> LoadedProfile:
    """Write the node's profile into `folder`, changed for this machine, and load it as any other."""
    values: dict[str, Any] = yaml.safe_load((node_dir / "profile.yaml").read_text(encoding="utf-8"))
    engines: dict[str, Any] = values["engines"]
    ports = iter(free_ports(1 + 2 * len(engines)))
    values["api"] = {"host": HOST, "port": next(ports)}
    for engine in engines.values():
        engine |= {"port": next(ports), "agent_check_port": next(ports), "stop_deadline_s": 5}
        engine["launch"] = {**engine["launch"], "command": ENGINE_COMMAND}
        engine["canary"] = {"period_s": 1, "deadline_s": 3, "restart_after": 30}
        engine["gate"] = {"drain_grace_s": 1}
    values["checks"] = {**values.get("checks", {}), **IMPATIENT, **OUT_OF_SIGHT}
    values["limits"] = {**values.get("limits", {}), **IMPATIENT_LIMITS}
    path = folder / "profile.yaml"
    path.write_text(yaml.safe_dump(values, sort_keys=False), encoding="utf-8")
    return load_profile(path)


def free_ports(count: int) -> list[int]:
    """Ports of the loopback where nobody listens, all different. Raises ConfigError if too few are."""
    ports: list[int] = []
    for port in random.sample(range(*PORTS), PORTS[1] - PORTS[0]):
        with contextlib.suppress(OSError), socket.create_server((HOST, port)):
            ports.append(port)
        if len(ports) == count:
            return ports
    raise ConfigError(f"fewer than {count} ports are free", where=f"{HOST} ports {PORTS[0]}-{PORTS[1] - 1}")
