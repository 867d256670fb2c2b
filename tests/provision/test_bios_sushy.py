"""The BIOS role's work against sushy-emulator, which is not ours. It applies at once and checks no name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sushy_rig import SushyBmc, sushy_bmc

from agent.bmc_profile import Bmc
from agent.provision.bios_run import Options, Outcome, run
from agent.provision.redfish_writer import RedfishWriter

pytestmark = [pytest.mark.root, pytest.mark.timeout(700)]
SEED = {"NumaNodesPerSocket": "1", "PcieAspmL1": "Enabled", "SriovGlobalEnable": "Disabled"}


def settle(bmc: SushyBmc, bios: dict[str, Any], **how: Any) -> Outcome:
    wanted = Bmc.model_validate({"redfish": {"url": bmc.url}, "bios": bios})
    with RedfishWriter(bmc.url, bmc.username, bmc.password, ca_file=str(bmc.ca), patience_s=20) as writer:
        return run(writer, wanted, Options(**how))


def test_settings_are_set_read_back_and_left_alone(tmp_path: Path) -> None:
    wanted = {"NumaNodesPerSocket": 2, "PcieAspmL1": "Disabled", "SriovGlobalEnable": "Enabled"}
    with sushy_bmc(tmp_path) as bmc:
        bmc.seed_bios(SEED)
        told = settle(bmc, wanted, check=True)
        assert told.changed and not told.problems and SEED.items() <= bmc.bios().items()

        done = settle(bmc, wanted, allow_reset=True)
        assert done.changed and not done.problems, done.problems
        assert {name: str(value) for name, value in wanted.items()}.items() <= bmc.bios().items()

        again = settle(bmc, wanted, allow_reset=True)
        assert not again.changed and not again.problems and not again.drift

        wrong = settle(bmc, {**wanted, "PcieAspm": "Disabled", "NumaNodesPerSocket": 4})
        assert "no attribute PcieAspm; near: PcieAspmL1" in wrong.problems[0]
        assert bmc.bios()["NumaNodesPerSocket"] == "2"
