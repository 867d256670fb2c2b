"""The Redfish BMC emulator for tests. SIMULATED machine, real HTTP(S).

    with BmcEmulator("dell", certificate=certificates.here) as bmc:
        bmc.machine.bios["ProcCStates"] = "Enabled"      # state is plain data
        bmc.faults.add("busy", "*/Bios*", for_s=300)     # 300 BMC seconds = 0.5 s at the default speed
        ... bmc.url, bmc.username, bmc.password ...
        assert bmc.record.writes() == []                 # nothing was written

Several in one process are cheap: a thread each and one for each connection. What it models and what not:
tests/README.md.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bmc_image import make_image
from bmc_machine import Firmware, Machine, Times
from bmc_server import BmcServer
from bmc_service import PASSWORD, SPEED, USER, Bmc

__all__ = ["PASSWORD", "SPEED", "USER", "Bmc", "BmcEmulator", "Firmware", "Machine", "Times", "make_image"]


class BmcEmulator(Bmc):
    """A Bmc that listens; `certificate` None = plain HTTP, port 0 = a free one, `netns` = listen in there.

    Other arguments are those of Bmc: cpu, name, username, password, speed, times, gpus, quirks (of Vendor).
    """

    def __init__(
        self,
        vendor: str = "generic",
        *,
        certificate: Path | None = None,
        address: str = "127.0.0.1",
        port: int = 0,
        netns: str | None = None,
        **more: Any,
    ) -> None:
        super().__init__(vendor, **more)
        self.server = BmcServer(self, address, port, certificate, netns)
        host, bound = self.server.address
        shown = f"[{host}]" if ":" in host else host
        self.url = f"{'http' if certificate is None else 'https'}://{shown}:{bound}"

    def __enter__(self) -> BmcEmulator:
        self.server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.stop()
