"""sushy-emulator as it is started here: TLS, login, BIOS attributes, power. What it lacks is asserted too."""

from __future__ import annotations

import ssl
from pathlib import Path

import httpx
import pytest
from sushy_rig import sushy_bmc

# The first user of sushy makes its environment, others wait for it.
pytestmark = [pytest.mark.root, pytest.mark.timeout(700)]


def test_what_sushy_shows_and_what_it_does_not(tmp_path: Path) -> None:
    with sushy_bmc(tmp_path) as bmc:
        trust = ssl.create_default_context(cafile=str(bmc.ca))
        assert httpx.get(f"{bmc.url}/redfish/v1/Systems", verify=trust, trust_env=False).status_code == 401
        bmc.seed_bios({"ProcCStates": "Enabled"})
        assert bmc.bios()["ProcCStates"] == "Enabled", "settings take effect at once"
        system = f"/redfish/v1/Systems/{bmc.system}"
        with bmc.client() as client:
            reset = client.post(f"{system}/Actions/ComputerSystem.Reset", json={"ResetType": "ForceOff"})
            assert reset.status_code == 204
            assert client.get(system).json()["PowerState"] == "Off"
            for missing in ("SessionService/Sessions", "UpdateService/FirmwareInventory"):
                assert client.get(f"/redfish/v1/{missing}").status_code == 404
