"""Taking a node into maintenance for people who work on it, by its own agent: drained, stopped, told so."""

from __future__ import annotations

from typing import Any

from .guard import Guard, Status
from .host import HostError

#: Marks a drain of ours on the head of a group: only that is ended again.
DRAIN_MARK = "nodegate fleet maintain: "


class Maintenance(Guard):
    """Enters maintenance, and drains and resumes the head of a group that a node belongs to."""

    def enter(self, reason: str, wait_s: float, *, check: bool) -> str:
        """What was done, empty when the node is in maintenance already. Raises HostError."""
        status = self._answer()
        held = (status.get("holds") or {}).get("maintenance")
        if held is None:
            if check:
                return f"would enter maintenance: {_words(status)}"
            # It closes the gates, lets requests end, and stops the engines.
            self._order("maintenance", "enter", "--reason", reason)
        elif check:
            return ""
        self._wait_stopped(wait_s)
        return "" if held is not None else f"entered maintenance: {_words(status)}"

    def drain(self, engine: str, reason: str, wait_s: float, *, check: bool) -> str:
        """What was done, empty when the engine's gate is closed by a drain already. Raises HostError."""
        gate = _gate(self._answer(), engine)
        if gate.get("drain"):
            if not check:
                self._wait_drained(engine, wait_s)
            return ""
        if check:
            return f"would drain {engine}"
        self._order("gate", "drain", engine, "--reason", DRAIN_MARK + reason)
        self._wait_drained(engine, wait_s)
        return f"drained {engine}"

    def resume(self, engine: str, *, check: bool) -> str:
        """End a drain of ours; what was done. Raises HostError."""
        if not _drained_by_us(_gate(self._answer(), engine)):
            return ""
        if check:
            return f"would resume {engine}"
        try:
            self._order("gate", "resume", engine, "--reason", DRAIN_MARK + "done")
        except HostError:
            # Another member of the same group is given back at the same time, and was first.
            if _drained_by_us(_gate(self._answer(), engine)):
                raise
            return ""
        return f"resumed {engine}"

    def handover(self) -> list[str]:
        """What is safe to do now, and what is not."""
        status = self._answer()
        held = (status.get("holds") or {}).get("maintenance")
        if held is None:
            return ["it is not in maintenance: do not touch it"]
        lines = [f"in maintenance ({held['reason']}): no traffic comes, over reboots too"]
        if status.get("mode") == "manage":
            lines.append("no engine runs: it may be rebooted, powered off and opened")
        elif status.get("gates"):
            lines.append("its engine is run by something else than nodegate: stop that before you touch it")
        return lines

    def _answer(self) -> Status:
        status = self._first_answer()
        if status is None:
            raise HostError(
                "no agent runs here, so nothing can be drained or held: start nodegate.service, or work on"
                " the node as it is"
            )
        return status

    def _wait_drained(self, engine: str, wait_s: float) -> None:
        """Until this engine's gate is closed and, where the agent runs it, it has ended."""
        end_s = self._mono_s() + wait_s
        while True:
            status = self._ask() or {}
            gate = _gate(status, engine) if status else {}
            runs = status.get("mode") == "manage" and (gate.get("process") or {}).get("pid") is not None
            if gate and not gate["ready"] and gate["state"] != "draining" and not runs:
                return
            if self._mono_s() >= end_s:
                raise HostError(
                    f"{engine} still works {wait_s:g} s after its drain began; look at `nodegate status`, and"
                    " run again"
                )
            self._sleep(1.0)


def _gate(status: Status, engine: str) -> dict[str, Any]:
    for gate in status.get("gates", []):
        if gate["engine"] == engine:
            return dict(gate)
    raise HostError(f"the agent has no engine {engine}: it runs another profile; run site.yml --tags agent")


def _drained_by_us(gate: dict[str, Any]) -> bool:
    return str((gate.get("drain") or {}).get("reason", "")).startswith(DRAIN_MARK)


def _words(status: Status) -> str:
    """What the gates were before."""
    return ", ".join(f"{gate['engine']} {gate['state']}" for gate in status.get("gates", [])) or "no engine"
