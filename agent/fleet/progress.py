"""What Ansible's events say of each host: its phase, how it went, why it stopped (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from agent.profile_yaml import clean

PHASE_MARK = "PHASE | "
LONGEST_LINE = 1000
_ENDS = frozenset({"runner_on_ok", "runner_on_failed", "runner_on_skipped", "runner_on_unreachable"})


class HostState(StrEnum):
    """How far a host is."""

    WAITING = "waiting"
    RUNNING = "running"
    OK = "ok"
    FAILED = "failed"
    UNREACHABLE = "unreachable"
    NOT_REACHED = "not reached"


@dataclass
class HostProgress:
    """One host."""

    name: str
    state: HostState = HostState.WAITING
    phase: str = ""
    task: str = ""
    changed: int = 0
    began_s: float | None = None
    ended_s: float | None = None
    #: Why it stopped and what to do, in one line.
    why: str = ""
    phase_began_s: float = 0.0
    phase_changed: int = 0
    phase_told: bool = False
    #: In the batch that is worked on; and ended with it, as another host of it failed.
    in_batch: bool = False
    cut: bool = False

    def seconds(self, now_s: float) -> float:
        """How long it has been worked on."""
        if self.began_s is None:
            return 0.0
        return max(0.0, (now_s if self.ended_s is None else self.ended_s) - self.began_s)


@dataclass
class Progress:
    """All hosts of one run; `feed` takes Ansible's events as ansible-runner gives them."""

    hosts: dict[str, HostProgress] = field(default_factory=dict)
    #: Ansible counted the hosts: the playbook has come to its own end.
    finished: bool = False

    @classmethod
    def of(cls, names: Iterable[str]) -> Progress:
        """Nothing has begun."""
        return cls({name: HostProgress(name) for name in names})

    def feed(self, event: Mapping[str, Any], now_s: float) -> list[str]:
        """Take one event in; lines for a log: a phase that is over, a host that has stopped."""
        kind, data = str(event.get("event", "")), event.get("event_data") or {}
        if kind == "playbook_on_stats":
            return self._end(data, now_s)
        if kind in ("playbook_on_play_start", "playbook_on_no_hosts_remaining"):
            return self._batch(now_s, over=kind == "playbook_on_play_start")
        name = data.get("host")
        if not name or (kind != "runner_on_start" and kind not in _ENDS):
            return []
        host = self.hosts.setdefault(str(name), HostProgress(str(name)))
        if kind == "runner_on_start":
            return self._begin(host, data, now_s)
        return _result(host, kind, data, now_s)

    def _batch(self, now_s: float, *, over: bool) -> list[str]:
        """A batch is over, or is given up: too many of it have failed."""
        lines: list[str] = []
        for host in self.hosts.values():
            host.cut = host.cut or (host.in_batch and not over)
            if host.in_batch and over and host.state is HostState.RUNNING:
                lines += _phase_end(host, now_s)
                host.ended_s = now_s
            host.in_batch = False
        return lines

    def _begin(self, host: HostProgress, data: Mapping[str, Any], now_s: float) -> list[str]:
        if host.began_s is None:
            host.began_s = now_s
        host.in_batch, host.ended_s = True, None
        host.task = clean(str(data.get("task") or ""))
        phase = phase_of(data)
        other = bool(phase) and phase != host.phase
        if (
            other or host.state is not HostState.FAILED
        ):  # a failure that the next phase follows was dealt with
            host.state = HostState.RUNNING
        if not other:
            return []
        lines = _phase_end(host, now_s)
        host.phase, host.phase_began_s, host.phase_changed, host.phase_told = phase, now_s, 0, False
        return lines

    def _end(self, stats: Mapping[str, Any], now_s: float) -> list[str]:
        """The playbook's own count decides: a failure that a play has dealt with is none."""
        self.finished = True
        lines: list[str] = []
        for name in stats.get("processed") or {}:
            host = self.hosts.setdefault(str(name), HostProgress(str(name)))
            host.changed = int((stats.get("changed") or {}).get(name, 0))
            if (stats.get("dark") or {}).get(name):
                host.state = HostState.UNREACHABLE
            elif (stats.get("failures") or {}).get(name):
                host.state = HostState.FAILED
            elif host.cut:
                host.state, host.why = HostState.FAILED, _CUT
            else:
                host.state, host.why = HostState.OK, ""
                lines += _phase_end(host, now_s)
        self.close(now_s)
        return lines

    def close(self, now_s: float, why: str = "") -> None:
        """Nothing more will come: what has not ended was stopped, what has not begun was not reached."""
        for host in self.hosts.values():
            if host.state is HostState.WAITING:
                host.state, host.why = HostState.NOT_REACHED, why or _BEFORE
            elif host.state is HostState.RUNNING:
                host.state, host.why = HostState.FAILED, why or "stopped before its end; run again"
            if host.ended_s is None and host.began_s is not None:
                host.ended_s = now_s


_CUT = "stopped here as another host of its batch failed; run again to go on"
_BEFORE = "an earlier host failed, so it was left alone; put that right and run again"


def phase_of(data: Mapping[str, Any]) -> str:
    """The phase that a task belongs to: its role, or what its name says; empty = the same as before."""
    name = str(data.get("task") or "")
    if name.startswith(PHASE_MARK):
        return clean(name.removeprefix(PHASE_MARK).split(" ")[0].strip(",:"))
    return clean(str(data.get("role") or ""))


def _result(host: HostProgress, kind: str, data: Mapping[str, Any], now_s: float) -> list[str]:
    result = data.get("res") if isinstance(data.get("res"), Mapping) else {}
    assert isinstance(result, Mapping)
    if kind == "runner_on_unreachable":
        host.state, host.ended_s = HostState.UNREACHABLE, now_s
        said = _line(result) or "no answer over ssh"
        host.why = f"{said}; see that ssh reaches it, then run again with --limit {host.name}"
        return [f"{host.name}: {host.why}"]
    if kind == "runner_on_failed" and not data.get("ignore_errors"):
        host.state, host.why = HostState.FAILED, _line(result) or f"task {host.task} failed"
        return [f"{host.name}: {host.phase or 'start'}: FAILED: {host.why}"]
    if kind == "runner_on_ok" and result.get("changed"):
        host.changed += 1
        host.phase_changed += 1
    return []


def _line(result: Mapping[str, Any]) -> str:
    """The message of a result as one line."""
    text = " ".join(str(result.get("msg") or "").split())
    return clean(text.removeprefix("Task failed: "), LONGEST_LINE)


def _phase_end(host: HostProgress, now_s: float) -> list[str]:
    """The line of the phase that a host has been in, once."""
    if not host.phase or host.phase_told:
        return []
    host.phase_told = True
    how = f"{host.phase_changed} changed" if host.phase_changed else "ok"
    return [f"{host.name}: {host.phase}: {how} ({now_s - host.phase_began_s:.1f} s)"]
