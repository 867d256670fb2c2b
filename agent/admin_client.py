"""The command line's side of the operator socket: one request, one answer, or one clear line."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import httpx

from agent.errors import DaemonError
from agent.listening import ADMIN_SOCKET

DEADLINE_S = 20.0


class AdminClient:
    """Asks the daemon whose socket is in a run folder."""

    def __init__(self, run_dir: Path) -> None:
        """Nothing is connected yet."""
        self.socket = run_dir / ADMIN_SOCKET

    def get(self, path: str, **params: str | int | float) -> dict[str, Any]:
        """GET a path. Raises DaemonError."""
        return self._ask("GET", path, params=params)

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """POST an order. Raises DaemonError."""
        return self._ask("POST", path, json=body)

    def _ask(self, method: str, path: str, **kwargs: Any) -> dict[str, Any]:
        self._knock()
        transport = httpx.HTTPTransport(uds=str(self.socket))
        try:
            with httpx.Client(transport=transport, base_url="http://nodegate", timeout=DEADLINE_S) as client:
                answer = client.request(method, path, **kwargs)
        except UnicodeEncodeError as cause:  # an argument that is no text in the terminal's encoding
            raise DaemonError(
                f"an argument is not valid text: {cause.object!r}; write it in UTF-8"
            ) from cause
        except httpx.TimeoutException as cause:
            raise DaemonError(f"{self.socket}: the daemon did not answer in {DEADLINE_S:g} s") from cause
        except httpx.TransportError as cause:
            raise DaemonError(f"{self.socket}: the daemon ended the connection: {cause}") from cause
        try:
            content = answer.json()
        except ValueError as cause:
            raise DaemonError(f"{self.socket}: what answers here is not a nodegate daemon") from cause
        if answer.status_code >= 400 or not isinstance(content, dict):
            problem = content.get("error") if isinstance(content, dict) else None
            raise DaemonError(str(problem or f"{self.socket}: HTTP {answer.status_code}"))
        return content

    def _knock(self) -> None:
        """Find out why nobody answers: httpx does not tell refused from forbidden."""
        with socket.socket(socket.AF_UNIX) as peer:
            peer.settimeout(DEADLINE_S)
            try:
                peer.connect(str(self.socket))
            except PermissionError as cause:
                text = f"{self.socket}: permission denied; be root or in the group nodegate"
                raise DaemonError(text) from cause
            except OSError as cause:
                text = (
                    f"no daemon answers at {self.socket}; start it with `nodegate run`, or name its --run-dir"
                )
                raise DaemonError(text) from cause
