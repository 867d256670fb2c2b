"""The daemon of the node as a run of a checklist needs it: what it knows, and the two orders."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from agent.admin_client import AdminClient


class DaemonLink(Protocol):
    """Every method raises DaemonError when the daemon does not answer, or refuses."""

    def status(self) -> dict[str, Any]:
        """/status."""

    def passed(self, run_id: str, soak_s: float) -> list[str]:
        """Have the holds ended on the proof of a run; what the daemon says."""

    def failed(self, run_id: str, step: str, why: str) -> list[str]:
        """Have maintenance hold, with the step that failed in its reason."""


class SocketLink:
    """By the operator socket."""

    def __init__(self, run_dir: Path) -> None:
        """Nothing is connected yet."""
        self._client = AdminClient(run_dir)

    def status(self) -> dict[str, Any]:
        """/status."""
        return self._client.get("/status")

    def whereabouts(self) -> dict[str, Any]:
        """What the daemon runs on: its folders, profile and, if it is simulated, its node."""
        return self._client.get("/checklist/whereabouts")

    def passed(self, run_id: str, soak_s: float) -> list[str]:
        """POST /checklist/passed."""
        return _said(self._client.post("/checklist/passed", {"run_id": run_id, "soak_s": soak_s}))

    def failed(self, run_id: str, step: str, why: str) -> list[str]:
        """POST /checklist/failed."""
        body = {"run_id": run_id, "step": step, "why": _one_line(why)}
        return _said(self._client.post("/checklist/failed", body))


def _said(answer: dict[str, Any]) -> list[str]:
    return [str(line) for line in answer["said"]]


def _one_line(text: str) -> str:
    """What the socket takes as a reason."""
    return "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))[:300] or "no reason known"
