"""Guard: no play disturbs a node that serves, unless it drains it first, and gives it back afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from .agent_status import serving
from .host import Host, HostError

#: Marks a maintenance of ours: only that is ended again.
MARK = "nodegate playbook: "
_ORDER_S = 60.0
_UNIT = "nodegate.service"
_RUNS = frozenset({"active", "reloading", "refreshing", "deactivating"})
#: A busy agent may miss a question; one that has just been started has no answer yet.
_ASKED_TIMES, _AGAIN_AFTER_S = 4, 3.0

Status = dict[str, Any]


class Guard:
    """Takes one node out of service, and gives it back."""

    def __init__(
        self,
        host: Host,
        ask: Callable[[], Status | None],
        program: str,
        *,
        mono_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Ask the agent with `ask`, order it with `program`."""
        self._host, self._ask, self._program = host, ask, program
        self._mono_s, self._sleep = mono_s, sleep

    def take(self, drain: bool, reason: str, wait_s: float, *, check: bool) -> str:
        """What was done, empty when nothing serves. Raises HostError."""
        status = self._first_answer()
        open_gates = serving(status)
        if not open_gates or status is None:
            return ""
        names = ", ".join(open_gates)
        if not drain:
            raise HostError(
                f"this node serves ({names}) and would be disturbed: drain it first"
                " (nodegate maintenance enter --reason ...), or run the play with -e nodegate_drain=true"
            )
        if check:
            return f"would drain {names}"
        # It closes the gates, lets requests end, and stops the engines.
        self._order("maintenance", "enter", "--reason", MARK + reason)
        self._wait_stopped(wait_s)
        return f"drained {names}"

    def _first_answer(self) -> Status | None:
        """The agent's word; None only where no agent runs. One that runs and is silent proves nothing."""
        for _ in range(_ASKED_TIMES):
            status = self._ask()
            if status is not None or not self._agent_runs():
                return status
            self._sleep(_AGAIN_AFTER_S)
        raise HostError(
            f"{_UNIT} runs and does not answer: whether this node serves cannot be told; look at"
            " `journalctl -u nodegate`, take its traffic away, stop the agent, then run again"
        )

    def _agent_runs(self) -> bool:
        if not self._host.has("systemctl"):
            return False
        return self._host.run(["systemctl", "is-active", _UNIT]).out.strip() in _RUNS

    def holds(self) -> bool:
        """Whether the node is in a maintenance that `take` began."""
        held = ((self._ask() or {}).get("holds") or {}).get("maintenance") or {}
        return str(held.get("reason", "")).startswith(MARK)

    def give(self) -> None:
        """End our maintenance: the agent proves the node and starts the engines again. Raises HostError."""
        self._order("maintenance", "exit", "--reason", MARK + "done")

    def _order(self, *words: str) -> None:
        self._host.must([self._program, *words], timeout_s=_ORDER_S)

    def _wait_stopped(self, wait_s: float) -> None:
        """Until no gate is open and no engine of the agent's runs."""
        end_s = self._mono_s() + wait_s
        while True:
            status = self._ask()
            gates = (status or {}).get("gates", [])
            busy = [gate["engine"] for gate in gates if _works(gate, status or {})]
            beats = status is not None and status.get("live") is not False  # else it tells what was
            if beats and not busy:
                return
            if self._mono_s() >= end_s:
                what = f"{', '.join(busy)} still runs" if busy else "the agent does not answer"
                raise HostError(
                    f"{what} {wait_s:g} s after the drain began; look at `nodegate status`, and run again"
                )
            self._sleep(1.0)


def _works(gate: dict[str, Any], status: Status) -> bool:
    """Whether requests may be in it: also of an engine that others run, while its gate drains."""
    return bool(gate["ready"]) or gate["state"] == "draining" or _runs(gate, status)


def _runs(gate: dict[str, Any], status: Status) -> bool:
    process = gate.get("process") or {}
    return status.get("mode") == "manage" and process.get("pid") is not None
