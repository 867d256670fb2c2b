"""Redfish documents of filled-in nodes: a system, its chassis, cooling, firmware and log; and a cooling unit.

Resource names follow the DMTF schema bundle (DSP8010), layout as on OpenBMC based baseboards.
"""

from __future__ import annotations

from typing import Any

OK = {"Health": "OK", "HealthRollup": "OK", "State": "Enabled"}
ROOT = "/redfish/v1"
SYSTEM, BASEBOARD = f"{ROOT}/Systems/System_0", f"{ROOT}/Systems/HGX_Baseboard_0"
CHASSIS = f"{ROOT}/Chassis/Chassis_0"
CDU = f"{ROOT}/ThermalEquipment/CDUs/CDU_1"

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
    leak_detection: true
    units:
      cdu-1: {url: "https://cdu-1.example", flow_min_l_per_min: 70}
  pdus:
    pdu-a: {url: "https://pdu-a.example"}
"""


def _link(path: str) -> dict[str, str]:
    return {"@odata.id": path}


def _document(path: str, **values: Any) -> dict[str, dict[str, Any]]:
    return {path: {"@odata.id": path, "Id": path.rsplit("/", 1)[1], **values}}


def _collection(path: str, members: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """A collection and its members, each with an Id and a Name."""
    found = _document(
        path,
        Members=[_link(f"{path}/{name}") for name in members],
        **{"Members@odata.count": len(members)},
    )
    for name, values in members.items():
        found |= _document(f"{path}/{name}", **{"Name": name.replace("_", " "), **values})
    return found


def liquid_cooled(gpus: int) -> dict[str, Any]:
    """The node's BMC, and the cooling unit and a power distribution unit of its rack."""
    node = _systems() | _chassis() | _firmware(gpus)
    return {"node": node, "cdu-1": _cooling_unit(), "pdu-a": _rack_pdu()}


def _systems() -> dict[str, dict[str, Any]]:
    found = _document(
        ROOT,
        Name="Root Service",
        RedfishVersion="1.17.0",
        Systems=_link(f"{ROOT}/Systems"),
        Chassis=_link(f"{ROOT}/Chassis"),
        Managers=_link(f"{ROOT}/Managers"),
        UpdateService=_link(f"{ROOT}/UpdateService"),
    )
    host = {
        "Status": OK,
        "PowerState": "On",
        "BiosVersion": "R05_F04",
        "SystemType": "Physical",
        "Bios": _link(f"{SYSTEM}/Bios"),
        "LogServices": _link(f"{SYSTEM}/LogServices"),
    }
    found |= _collection(
        f"{ROOT}/Systems",
        {"System_0": host, "HGX_Baseboard_0": {"Status": OK, "PowerState": "On", "SystemType": "Physical"}},
    )
    found |= _document(
        f"{SYSTEM}/Bios",
        Name="BIOS Configuration",
        Attributes={"PCIeASPM": "Disabled", "ACSControl": "Disabled", "MemoryInterleaving": "Channel"},
    )
    entries = f"{SYSTEM}/LogServices/EventLog/Entries"
    found |= _collection(
        f"{SYSTEM}/LogServices",
        {"EventLog": {"Status": OK, "Entries": _link(entries), "ServiceEnabled": True}},
    )
    return found | _collection(
        entries,
        {
            "1": {
                "EntryType": "Event",
                "Severity": "OK",
                "Created": "2026-11-28T10:11:12Z",
                "Message": "The system was powered on.",
                "MessageId": "OpenBMC.0.1.PowerOn",
                "Resolved": True,
            }
        },
    )


def _sensor(reading_type: str, units: str, reading: float, context: str) -> dict[str, Any]:
    return {
        "ReadingType": reading_type,
        "ReadingUnits": units,
        "Reading": reading,
        "PhysicalContext": context,
        "Status": OK,
    }


def _chassis() -> dict[str, dict[str, Any]]:
    thermal, power = f"{CHASSIS}/ThermalSubsystem", f"{CHASSIS}/PowerSubsystem"
    leaks = f"{thermal}/LeakDetection"
    found = _collection(
        f"{ROOT}/Chassis",
        {
            "Chassis_0": {
                "ChassisType": "RackMount",
                "Status": OK,
                "PowerState": "On",
                "ThermalSubsystem": _link(thermal),
                "PowerSubsystem": _link(power),
                "Sensors": _link(f"{CHASSIS}/Sensors"),
            }
        },
    )
    found |= _document(
        thermal,
        Name="Thermal Subsystem",
        Status=OK,
        ThermalMetrics=_link(f"{thermal}/ThermalMetrics"),
        LeakDetection=_link(leaks),
    )
    found |= _document(
        f"{thermal}/ThermalMetrics",
        Name="Thermal Metrics",
        TemperatureSummaryCelsius={"Intake": {"Reading": 24.5}, "Exhaust": {"Reading": 37.0}},
    )
    found |= _leak_detectors(leaks, ("Manifold_0", "ColdPlate_0"))
    found |= _document(
        power, Name="Power Subsystem", Status=OK, PowerSupplies=_link(f"{power}/PowerSupplies")
    )
    supply = {"Status": OK, "LineInputStatus": "Normal"}
    found |= _collection(f"{power}/PowerSupplies", {f"PSU_{i}": supply for i in range(6)})
    return found | _collection(
        f"{CHASSIS}/Sensors",
        {
            "Coolant_Inlet_Temp": _sensor("Temperature", "Cel", 22.0, "LiquidInlet"),
            "Coolant_Outlet_Temp": _sensor("Temperature", "Cel", 30.5, "LiquidOutlet"),
            "Coolant_Flow": _sensor("LiquidFlowLPM", "L/min", 84.0, "LiquidInlet"),
            "Inlet_Air_Temp": _sensor("Temperature", "Cel", 24.5, "Intake"),
            "Total_Power": _sensor("Power", "W", 5120.0, "SystemBoard"),
        },
    )


def _leak_detectors(leaks: str, names: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    found = _document(leaks, Name="Leak Detection", Status=OK, LeakDetectors=_link(f"{leaks}/LeakDetectors"))
    detector = {"DetectorState": "OK", "LeakDetectorType": "Moisture", "Status": OK}
    return found | _collection(f"{leaks}/LeakDetectors", dict.fromkeys(names, detector))


def _firmware(gpus: int) -> dict[str, dict[str, Any]]:
    found = _document(
        f"{ROOT}/UpdateService",
        Name="Update Service",
        Status=OK,
        FirmwareInventory=_link(f"{ROOT}/UpdateService/FirmwareInventory"),
    )
    versions = {
        "HGX_FW_BMC_0": "HGX-25.10-1",
        **{f"HGX_FW_NVSwitch_{i}": "35.2014.4610" for i in range(gpus // 4)},
        **{f"HGX_FW_GPU_SXM_{i + 1}": "97.10.52.00.17" for i in range(gpus)},
    }
    found |= _collection(
        f"{ROOT}/UpdateService/FirmwareInventory",
        {name: {"Version": version, "Updateable": True, "Status": OK} for name, version in versions.items()},
    )
    return found | _collection(
        f"{ROOT}/Managers", {"BMC_0": {"Status": OK, "FirmwareVersion": "HGX-25.10-1", "ManagerType": "BMC"}}
    )


def _cooling_unit() -> dict[str, dict[str, Any]]:
    connectors, leaks = f"{CDU}/SecondaryCoolantConnectors", f"{CDU}/LeakDetection"
    found = _document(ROOT, Name="Root Service", ThermalEquipment=_link(f"{ROOT}/ThermalEquipment"))
    found |= _document(
        f"{ROOT}/ThermalEquipment",
        Name="Thermal Equipment",
        Status=OK,
        CDUs=_link(f"{ROOT}/ThermalEquipment/CDUs"),
    )
    found |= _collection(
        f"{ROOT}/ThermalEquipment/CDUs",
        {
            "CDU_1": {
                "EquipmentType": "CDU",
                "Status": OK,
                "SecondaryCoolantConnectors": _link(connectors),
                "LeakDetection": _link(leaks),
                "Pumps": _link(f"{CDU}/Pumps"),
            }
        },
    )
    found |= _collection(
        connectors,
        {
            "1": {
                "Status": OK,
                "SupplyTemperatureCelsius": {"Reading": 22.0},
                "ReturnTemperatureCelsius": {"Reading": 30.5},
                "DeltaTemperatureCelsius": {"Reading": 8.5},
                "FlowLitersPerMinute": {"Reading": 84.0},
            }
        },
    )
    found |= _leak_detectors(leaks, ("Tray_0",))
    pump = {"Status": OK, "PumpType": "Liquid", "PumpSpeedPercent": {"Reading": 61.0}}
    return found | _collection(f"{CDU}/Pumps", {"1": pump, "2": pump})


def _rack_pdu() -> dict[str, dict[str, Any]]:
    equipment = f"{ROOT}/PowerEquipment"
    found = _document(ROOT, Name="Root Service", PowerEquipment=_link(equipment))
    found |= _document(equipment, Name="Power Equipment", Status=OK, RackPDUs=_link(f"{equipment}/RackPDUs"))
    found |= _collection(
        f"{equipment}/RackPDUs",
        {"1": {"EquipmentType": "RackPDU", "Status": OK, "Mains": _link(f"{equipment}/RackPDUs/1/Mains")}},
    )
    return found | _collection(
        f"{equipment}/RackPDUs/1/Mains",
        {"A": {"Status": OK, "CurrentAmps": {"Reading": 21.4}, "Voltage": {"Reading": 415.2}}},
    )
