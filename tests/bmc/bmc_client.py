"""A small client of the emulator for its own tests."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx
from bmc_emulator import BmcEmulator

R = "/redfish/v1"
SESSIONS = f"{R}/SessionService/Sessions"
UPDATE = f"{R}/UpdateService/update-multipart"
INVENTORY = f"{R}/UpdateService/FirmwareInventory"
#: For requests over plain HTTP: reading all the CAs of the world for each would be most of the time.
PLAIN: dict[str, Any] = {"verify": ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), "trust_env": False}
Start = Callable[..., "tuple[BmcEmulator, Client]"]
#: All that a test has opened, for the fixture to close.
_clients: list[httpx.Client] = []


class Client:
    """A logged-in client of one emulator."""

    def __init__(self, bmc: BmcEmulator, **more: Any) -> None:
        self.http = httpx.Client(base_url=bmc.url, timeout=5, **(PLAIN | more))
        _clients.append(self.http)
        sent = {"UserName": bmc.username, "Password": bmc.password}
        answer = self.http.post(SESSIONS, json=sent)
        assert answer.status_code == 201, answer.text
        self.session = answer.headers["location"]
        self.http.headers["X-Auth-Token"] = answer.headers["x-auth-token"]

    def get(self, path: str) -> dict[str, Any]:
        answer = self.http.get(path)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def reset(self, bmc: BmcEmulator, kind: str = "ForceRestart") -> httpx.Response:
        path = f"{R}/Systems/{bmc.vendor.system}/Actions/ComputerSystem.Reset"
        return self.http.post(path, json={"ResetType": kind})

    def settings(self, bmc: BmcEmulator, attributes: dict[str, Any], **more: Any) -> httpx.Response:
        sent = {"Attributes": attributes, **more}
        return self.http.patch(bmc.bios.settings_path, json=sent)

    def update(self, image: bytes, parameters: str = "{}") -> httpx.Response:
        files = {
            "UpdateParameters": (None, parameters, "application/json"),
            "UpdateFile": ("image.fwpkg", image, "application/octet-stream"),
        }
        return self.http.post(UPDATE, files=files)


@contextmanager
def frozen_bmcs() -> Iterator[Start]:
    """Start emulators over plain HTTP whose clock only advance() moves; all clients are closed at the end."""
    with ExitStack() as stack:

        def start(vendor: str = "generic", **more: Any) -> tuple[BmcEmulator, Client]:
            bmc = stack.enter_context(BmcEmulator(vendor, speed=0, **more))
            return bmc, Client(bmc)

        yield start
        while _clients:
            _clients.pop().close()


def message_ids(answer: httpx.Response) -> list[str]:
    """Names of the messages of an error, without registry and version."""
    told = answer.json()["error"]["@Message.ExtendedInfo"]
    return [each["MessageId"].rpartition(".")[2] for each in told]


def retried(work: Callable[[], Client]) -> Client:
    """The listener comes back a moment after the clock was moved."""
    for _ in range(200):
        try:
            return work()
        except httpx.TransportError:
            threading.Event().wait(0.01)
    return work()
