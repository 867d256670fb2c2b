"""The stand-in node: one state that all stand-in tools read and change. SIMULATED. Standard library alone.

Below /var/lib/standin (or $STANDIN):
    node/          node folder that the agent reads (`--node`): nvml.json, net.json, host.json, node.yaml
    sys/, proc/    files as sysfs and procfs have them
    machine.json   what only vendor tools show: NIC configuration, firmware, rings, MIG and ECC modes
    faults.json    which tool fails, hangs or lies: see `Fault`
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pathlib
import re
import sys
import time
from typing import Any, ClassVar

BASE = pathlib.Path(os.environ.get("STANDIN", "/var/lib/standin"))
FOREVER_S = 86400


class Refused(Exception):
    """What a tool says before it ends in failure, word for word, and its exit status."""

    def __init__(self, text: str, status: int = 1) -> None:
        super().__init__(text)
        self.text, self.status = text, status


def write_whole(path: pathlib.Path, text: str) -> None:
    """Replace a file at once; readers see the old one or the new one."""
    # Not by tempfile: its imports cost each of a hundred calls a node more than all the rest.
    beside = path.parent / f".{path.name}.{os.getpid()}.{time.monotonic_ns()}"
    with beside.open("x", encoding="utf-8") as file:
        file.write(text)
        os.fchmod(file.fileno(), 0o644)
    beside.replace(path)


def sysfs(path: str) -> pathlib.Path:
    """A file below /sys of the stand-in, by its path there."""
    return BASE / "sys" / path


def poke(path: pathlib.Path, text: str) -> None:
    """Write into a file in place, as one writes into sysfs: readers may hold it open."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text if text.endswith("\n") or not text else text + "\n", encoding="utf-8")


class Machine:
    """The state, locked while it is open; what was changed is written at the end unless the tool lies."""

    PARTS: ClassVar = {"machine": "machine.json", "nvml": "node/nvml.json", "net": "node/net.json"}

    def __init__(self, lie: bool = False) -> None:
        """`lie`: take every change and keep none."""
        self.lie = lie
        self._seen: dict[str, str] = {}
        self._data: dict[str, Any] = {}
        self._lock: Any = None
        self._pokes: list[tuple[pathlib.Path, str]] = []

    def __enter__(self) -> Machine:
        self._lock = (BASE / "lock").open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        return self

    def __exit__(self, kind: object, *rest: object) -> None:
        try:
            if kind is None and not self.lie:
                for part, before in self._seen.items():
                    text = json.dumps(self._data[part], indent=1, sort_keys=False) + "\n"
                    if text != before:
                        write_whole(BASE / self.PARTS[part], text)
        finally:
            self._lock.close()
        if kind is None and not self.lie:
            for path, text in self._pokes:  # after the lock: who watches sysfs takes it
                poke(path, text)

    def _part(self, name: str) -> Any:
        if name not in self._data:
            text = (BASE / self.PARTS[name]).read_text(encoding="utf-8")
            self._seen[name], self._data[name] = text, json.loads(text)
        return self._data[name]

    def poke(self, path: pathlib.Path, text: str) -> None:
        """Write into a file of sysfs when the tool ends well."""
        self._pokes.append((path, text))

    @property
    def nics(self) -> dict[str, Any]:
        """NICs by RDMA device name."""
        nics: dict[str, Any] = self._part("machine")["nics"]
        return nics

    @property
    def own(self) -> dict[str, Any]:
        """All of machine.json."""
        own: dict[str, Any] = self._part("machine")
        return own

    @property
    def gpus(self) -> list[Any]:
        """nvml.json's GPUs."""
        gpus: list[Any] = self._part("nvml")["gpus"]
        return gpus

    @property
    def nvml(self) -> dict[str, Any]:
        """All of nvml.json."""
        nvml: dict[str, Any] = self._part("nvml")
        return nvml

    @property
    def net(self) -> dict[str, Any]:
        """net.json."""
        net: dict[str, Any] = self._part("net")
        return net

    def nic(self, device: str) -> tuple[str, dict[str, Any]] | None:
        """A NIC by PCI address (with or without its domain), RDMA device, interface or MST device."""
        asked = device.lower()
        for number, (name, nic) in enumerate(self.nics.items()):
            mst = f"/dev/mst/mt4129_pciconf{number}"
            if asked in (nic["bdf"], nic["bdf"].partition(":")[2], name, nic["netdev"], mst, mst[9:]):
                return name, nic
        return None


def faults_path() -> pathlib.Path:
    """Where faults are ordered: a list of {tool, match, do, message, status, times}."""
    return BASE / "faults.json"


def take_fault(tool: str, words: str) -> dict[str, Any] | None:
    """The first fault for this tool whose `match` is in the command line; one with `times` is used up."""
    path = faults_path()
    try:
        faults = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    for fault in faults:
        if fault["tool"] == tool and fault.get("match", "") in words and fault.get("times", 1) != 0:
            if "times" in fault:
                fault["times"] -= 1
                write_whole(path, json.dumps(faults))
            found: dict[str, Any] = fault
            return found
    return None


def main(tool: str, work: Any) -> None:
    """Run a tool: `work(words, machine)` gives what it prints. Faults come first."""
    words = sys.argv[1:]
    fault = take_fault(tool, " ".join(words)) or {}
    if fault.get("do") == "hang":
        time.sleep(FOREVER_S)
    if fault.get("do") == "fail":
        sys.stderr.write(fault.get("message", f"{tool}: failed") + "\n")
        sys.exit(fault.get("status", 1))
    try:
        with Machine(lie=fault.get("do") == "lie") as machine:
            text = work(words, machine)
    except Refused as refused:
        sys.stdout.write(refused.text + "\n")
        sys.exit(refused.status)
    sys.stdout.write(text)


def real_tool(name: str) -> None:
    """Become the machine's own tool of this name."""
    for folder in ("/usr/sbin", "/usr/bin", "/sbin", "/bin"):
        if os.access(f"{folder}/{name}", os.X_OK):
            os.execv(f"{folder}/{name}", [name, *sys.argv[1:]])
    sys.stderr.write(f"{name}: command not found\n")
    sys.exit(127)


def option(words: list[str], *names: str) -> str | None:
    """The value of an option in `--name value` or `--name=value`; None without it."""
    for i, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name in names:
            if equals:
                return value
            if i + 1 < len(words):
                return words[i + 1]
    return None


def choose(line: str, choice: str) -> str | None:
    """`a [b] c` with another choice marked; None when it has no such choice."""
    names = line.replace("[", "").replace("]", "").split()
    if choice not in names:
        return None
    return " ".join(f"[{name}]" if name == choice else name for name in names)


def number_in(text: str) -> int | None:
    """A decimal or 0x number, None for anything else."""
    with contextlib.suppress(ValueError):
        return int(text, 0)
    return None


def natural(name: str) -> list[Any]:
    """Sort key: mlx5_10 after mlx5_9."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]
