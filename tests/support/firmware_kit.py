"""Firmware runs against the BMC emulator over loopback, on the BMC's own clock. SIMULATED."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bmc_emulator import BmcEmulator, Times, make_image

from agent.bmc_profile import Bmc
from agent.provision.firmware_run import Options, Outcome, run
from agent.provision.redfish_writer import RedfishWriter

GPUS, SWITCHES = "HGX_FW_GPU_SXM_*", "HGX_FW_NVSwitch_*"
NEW = {"BMC": "01.03.00", GPUS: "97.10.1A.00.01", SWITCHES: "96.10.70.00.01", "SSD_*": "1.3.0", "BIOS": "2.5"}


class Site:
    """One BMC, a folder with images, and runs of the firmware role's own code against them."""

    def __init__(self, bmc: BmcEmulator, folder: Path) -> None:
        self.bmc, self.folder = bmc, folder
        self.told: list[str] = []
        self.images: dict[str, dict[str, Any]] = {}
        self.least: dict[str, str] = {}

    def image(
        self, name: str, *ids: str, activation: str, versions: dict[str, str] | None = None, **more: Any
    ) -> None:
        """An image with the new versions of those ids, and its entry in the profile."""
        corrupt = more.pop("corrupt", False)
        wanted = versions or {id_: NEW[id_] for id_ in ids}
        data = make_image(wanted, corrupt=corrupt)
        (self.folder / f"{name}.bin").write_bytes(data)
        self.images[name] = {
            "versions": wanted,
            "image": f"{name}.bin",
            "sha256": hashlib.sha256(data).hexdigest(),
            "activation": activation,
            **more,
        }

    def wanted(self) -> Bmc:
        """The profile's part."""
        return Bmc.model_validate({"images": self.images, "firmware": self.least})

    def run(self, *, request_s: float = 5.0, patience_s: float = 360.0, **options: Any) -> Outcome:
        """One run, on a connection of its own."""
        clock = self.bmc.clock

        def sleep(seconds: float) -> None:
            clock.advance(seconds)
            time.sleep(min(0.02, seconds / 500))  # the emulator's own threads need a moment, too

        with RedfishWriter(
            self.bmc.url,
            self.bmc.username,
            self.bmc.password,
            request_s=request_s,
            patience_s=patience_s,
            mono_s=clock.now_s,
            sleep=sleep,
            on_wait=self.told.append,
        ) as writer:
            return run(writer, self.wanted(), Options(self.folder, tell=self.told.append, **options))

    def running(self, id_: str) -> str:
        """What runs, by the emulator's own state."""
        return self.bmc.machine.firmware[id_].version

    def writes(self) -> list[str]:
        """Last part of each path that was written to since clear()."""
        return [path.rpartition("/")[2] for _, path in self.bmc.record.writes()]


@contextmanager
def site(folder: Path, vendor: str = "generic") -> Iterator[Site]:
    """A BMC whose clock moves only while its client waits."""
    times = Times(post_s=60.0, off_s=10.0, bmc_start_s=60.0, task_s=60.0)
    with BmcEmulator(vendor, speed=0, times=times, gpus=2) as bmc:
        yield Site(bmc, folder)
