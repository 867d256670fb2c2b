"""Firmware through a BMC that is not ours: sushy-emulator takes SimpleUpdate alone and has no inventory."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from sushy_rig import SushyBmc, sushy_bmc

from agent.bmc_profile import Bmc
from agent.provision.firmware_run import Options, Outcome, run
from agent.provision.redfish_writer import RedfishWriter

# The first user of sushy makes its environment, others wait for it.
pytestmark = [pytest.mark.root, pytest.mark.timeout(700)]

DATA = b"an image that sushy never fetches"


def _run(bmc: SushyBmc, folder: Path, version: str, **more: Any) -> Outcome:
    image = {
        "kind": "bios",
        "versions": {"BIOS": version},
        "image": "bios.bin",
        "sha256": hashlib.sha256(DATA).hexdigest(),
        "image_url": "http://images.example/bios.bin",
        "targets": [f"/redfish/v1/Systems/{bmc.system}"],
        "activation": "none",
        "back_within_s": 5,
        **more,
    }
    wanted = Bmc.model_validate({"images": {"bios": image}})
    told: list[str] = []
    with RedfishWriter(
        bmc.url, bmc.username, bmc.password, ca_file=str(bmc.ca), on_wait=told.append
    ) as writer:
        return run(writer, wanted, Options(folder, tell=told.append))


def test_simple_update_is_proven_by_the_version_that_is_read_afterwards(tmp_path: Path) -> None:
    (tmp_path / "bios.bin").write_bytes(DATA)
    with sushy_bmc(tmp_path) as bmc:
        first = bmc.get(f"/redfish/v1/Systems/{bmc.system}")["BiosVersion"]
        assert first == "1.0.0"
        (line,) = _run(bmc, tmp_path, "1.1.0", image_url=None).problems
        assert "takes no upload" in line

        found = _run(bmc, tmp_path, "1.1.0")
        assert (found.problems, found.changed) == ([], True)
        assert bmc.get(f"/redfish/v1/Systems/{bmc.system}")["BiosVersion"] == "1.1.0"
        again = _run(bmc, tmp_path, "1.1.0")
        assert (again.problems, again.changed, again.drift) == ([], False, [])

        # sushy makes it 1.2.0 whatever the image is: not what was asked for, and that is told.
        (line,) = _run(bmc, tmp_path, "1.3.0").problems
        assert "BIOS still runs 1.2.0, not 1.3.0 although the BMC calls the update complete" in line
        (line,) = _run(bmc, tmp_path, "1.0.0").problems
        assert "nothing is downgraded" in line
