"""nodegate.service on a node: running, from the release in use, with the profile that is on the disk.

A restart is the agent's alone: its engines run on and are adopted, and that is looked at each time.
"""

from __future__ import annotations

import os
import pathlib
import time
from collections.abc import Callable, Iterable
from typing import Any

from . import agent_status
from .host import Host, HostError
from .setting import Setting

UNIT = "nodegate.service"
ENFORCE = "nodegate-enforce.service"
GROUP = "agent"
GOOD = "enabled, active"
#: What systemd reads when the service starts, and not again.
READ_AT_START = (
    "/etc/systemd/system/nodegate.service",
    "/etc/systemd/system/nodegate.service.d",
    "/etc/nodegate/agent.env",
    "/etc/nodegate/credentials",
    "/etc/nodegate/engine-credentials",
)
_SYSTEMCTL_S = 150.0
_RUNNING = ("starting", "up", "warm")
#: A process begins at a tick; a file's time is that of the kernel's last tick.
_TICK_S = 0.05


class AgentService:
    """The service as it is, and what brings it to where it must be."""

    def __init__(
        self,
        host: Host,
        profile: dict[str, Any],
        profile_hash: str,
        *,
        link: str = "/opt/nodegate",
        health_s: float = 60.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`health_s`: how long the agent may take until the profile is in force."""
        self._host, self._hash, self._link, self._health_s = host, profile_hash, link, health_s
        self._api, self._enforced = profile["api"], bool(profile["enforce"]["enabled"])
        self._sleep = sleep
        self.did: list[str] = []

    def settings(self, profile: dict[str, Any]) -> list[Setting]:
        """The service, the profile in force, and the enforced gate."""
        nothing: Callable[[], None] = lambda: None  # noqa: E731 - the group does all of it at once
        return [
            Setting(UNIT, "agent", GOOD, self.state, nothing, after=GROUP),
            Setting("profile in force", "profile", self._hash, self.in_force, nothing, after=GROUP),
            Setting(
                ENFORCE,
                "enforce.enabled",
                GOOD if profile["enforce"]["enabled"] else "disabled, inactive",
                self.enforce_state,
                self._set_enforce,
            ),
        ]

    def status(self) -> dict[str, Any] | None:
        """The agent's own word."""
        return agent_status.ask(self._api["host"], self._api["port"])

    def in_force(self) -> str | None:
        """Hash of the profile that the agent runs with; None while it is not alive."""
        status = self.status()
        return (
            str(status["profile_hash"])
            if status and status.get("live") and "profile_hash" in status
            else None
        )

    def state(self) -> str:
        """Enabled, active, and why it has to be started anew if it has."""
        shown = self._show(UNIT)
        words = [shown["UnitFileState"] or "not installed", shown["ActiveState"]]
        pid = int(shown["MainPID"] or 0)
        return ", ".join([*words, *self._outdated(pid)] if pid else words)

    def _outdated(self, pid: int) -> list[str]:
        link = pathlib.Path(self._link)
        runs = _release_of(pid)
        found = (
            [f"of release {runs}"] if link.is_symlink() and runs not in (None, link.resolve().name) else []
        )
        return found + [f"older than {path}" for path in newer_files(_began_s(pid), READ_AT_START)]

    def enforce_state(self) -> str:
        """As `state`, of the enforced gate: it takes a profile when it starts."""
        shown = self._show(ENFORCE)
        enabled, active = shown["UnitFileState"], shown["ActiveState"]
        words = [enabled or "disabled", "inactive" if active == "failed" and not self._enforced else active]
        pid = int(shown["MainPID"] or 0)
        old = newer_files(_began_s(pid), ["/etc/nodegate/profile.yaml"]) if pid and self._enforced else []
        return ", ".join([*words, *(f"older than {path}" for path in old)])

    def _show(self, unit: str) -> dict[str, str]:
        names = "UnitFileState,ActiveState,MainPID"
        lines = self._host.must(["systemctl", "show", unit, "-p", names]).splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)

    def _set_enforce(self) -> None:
        self._systemctl("daemon-reload")
        if self._enforced:
            self._systemctl("enable", ENFORCE)
            self._systemctl("restart", ENFORCE)
            return
        self._systemctl("disable", "--now", ENFORCE)
        self._host.must([f"{self._link}/bin/nodegate", "enforce", "off"], _SYSTEMCTL_S)

    def bring(self) -> None:
        """After files have been written: enable, start, restart or reload, and see that it is well."""
        self._systemctl("daemon-reload")
        before = engine_pids(self.status())
        self._systemctl("enable", UNIT)
        state = self.state()
        if state != GOOD:
            # A start would join an attempt that is going on, maybe of another release, and end as it ends.
            self._again("start" if state.endswith((", inactive", ", failed")) else "restart")
        elif self.in_force() != self._hash:
            self._again("reload")
        well = self._wait_in_force()
        if not well and self.did[-1:] == ["reload"]:  # some of a profile is taken at a start alone
            self._again("restart")
            well = self._wait_in_force()
        if not well:
            raise HostError(self._unwell())
        self._same_engines(before)

    def _again(self, verb: str) -> None:
        self.did.append(verb)
        try:
            self._systemctl(verb, UNIT)
        except HostError as cause:
            raise HostError(f"{self._unwell()} ({cause})") from cause

    def _wait_in_force(self) -> bool:
        end_s = time.monotonic() + self._health_s
        while time.monotonic() < end_s:
            status = self.status() or {}
            if status.get("live") and status.get("profile_hash") == self._hash:
                return True
            if self.did[-1:] == ["reload"] and any("refused" in text for text in status.get("problems", [])):
                return False
            self._sleep(0.1)
        return False

    def _unwell(self) -> str:
        """Why, as the agent or its journal has it."""
        status = self.status() or {}
        runs = status.get("profile_hash")
        if status.get("live") and runs and runs != self._hash:
            told = (
                "; ".join(status.get("problems", [])) or "does NODEGATE_ARGS in agent.env name another one?"
            )
            return f"{UNIT}: runs with profile {runs[:16]}, not with {self._hash[:16]}: {told}"
        # By the unit's own processes: after them systemd has the last word.
        own = ["journalctl", f"_SYSTEMD_UNIT={UNIT}", "-n", "1", "-o", "cat", "--no-pager"]
        said = self._host.run(own).out.strip()
        return (
            f"{UNIT}: does not run with this profile within {self._health_s:g} s; its last line:"
            f" {' '.join(said.split()) or '(none)'}; look at `journalctl -u nodegate`"
        )

    def _same_engines(self, before: dict[str, int]) -> None:
        """Every engine that ran still has its process."""
        for name, pid in before.items():
            if not pathlib.Path(f"/proc/{pid}").exists():
                raise HostError(f"engine {name}: its process {pid} ended while the agent was started anew")

    def _systemctl(self, *words: str) -> None:
        self._host.must(["systemctl", *words], _SYSTEMCTL_S)


def engine_pids(status: dict[str, Any] | None) -> dict[str, int]:
    """Process of each running engine."""
    found = {}
    for gate in (status or {}).get("gates", []):
        process = gate.get("process") or {}
        if process.get("pid") and process.get("phase") in _RUNNING:
            found[gate["engine"]] = int(process["pid"])
    return found


def newer_files(began_s: float, paths: Iterable[str]) -> list[str]:
    """Files, and files in folders, that have changed since that time.

    One of the future says that the clock was put back: a restart would be due at every run, and help nothing.
    """
    found, now_s = [], time.time()
    for path in map(pathlib.Path, paths):
        for file in [path, *(sorted(path.iterdir()) if path.is_dir() else [])]:
            try:
                if began_s + _TICK_S < file.stat().st_mtime <= now_s + _TICK_S:
                    found.append(str(file))
                    break  # a folder changes with its files; one of them tells enough
            except FileNotFoundError:
                continue
    return found


def _release_of(pid: int) -> str | None:
    """Folder of the environment that a process was started from."""
    try:
        words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return None
    python = pathlib.PurePath(os.fsdecode(words[0]))
    return python.parent.parent.name if python.parent.name == "bin" else None


def _began_s(pid: int) -> float:
    """When a process began, as the files' clock has it; now for one that is gone."""
    now_s = time.time()
    try:
        ticks = int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, ValueError):
        return now_s
    return now_s - (time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))


def unit_pids(host: Host, engines: Iterable[str]) -> dict[str, int]:
    """Main process of each engine that runs as a unit. Raises HostError."""
    found = {}
    for name in engines:
        text = host.must(["systemctl", "show", "--value", "-p", "MainPID", f"nodegate-engine@{name}.service"])
        if int(text.strip() or 0):
            found[name] = int(text)
    return found
