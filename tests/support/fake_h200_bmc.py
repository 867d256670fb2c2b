"""Redfish documents of the healthy H200 node of fake_h200.py, its cooling unit and PDU; SIMULATED values."""

from __future__ import annotations

import json
from typing import Any

R = "/redfish/v1"
OK = {"State": "Enabled", "Health": "OK", "HealthRollup": "OK"}
CHASSIS = f"{R}/Chassis/1"
CDU = f"{R}/ThermalEquipment/CDUs/1"
PDU = f"{R}/PowerEquipment/RackPDUs/1"
LOG = f"{R}/Systems/1/LogServices/SEL"
FIRMWARE = {
    "HGX_FW_NVSwitch_0": "96.10.6D.00.01",
    "HGX_FW_NVSwitch_1": "96.10.6D.00.01",
    "HGX_FW_BMC_0": "HGX-22.10-1-rc44",
    "BMC": "01.02.05",
}


def bmc_profile() -> dict[str, Any]:
    """The part `bmc` of the profile that the healthy node fulfils."""
    return {
        "redfish": {"url": "https://bmc.example"},
        "bios_version": "2.4",
        "bios": {"ACSControl": "Disabled", "NumaNodesPerSocket": 1, "SriovGlobalEnable": "Enabled"},
        "bios_intent": {"x2apic": "enabled"},
        "firmware": {"HGX_FW_NVSwitch_*": "96.10.6D", "BMC": "01.02"},
        "power_max_w": 12000,
        "cooling": {
            "inlet_max_c": 30,
            "outlet_max_c": 45,
            "delta_max_c": 15,
            "flow_min_l_per_min": 8,
            "air_inlet_max_c": 27,
            "leak_detection": True,
            "units": {"row3": {"url": "https://cdu.example", "flow_min_l_per_min": 300}},
        },
        "pdus": {"a": {"url": "https://pdu.example"}},
    }


def _links(path: str, *names: str) -> dict[str, Any]:
    """A list and where its members are."""
    return {path: {"Members": [{"@odata.id": f"{path}/{name}"} for name in names]}}


def _to(path: str) -> dict[str, str]:
    return {"@odata.id": path}


def _excerpt(value: float) -> dict[str, Any]:
    return {"Reading": value, "DataSourceUri": f"{CHASSIS}/Sensors/any"}


def bmc_documents() -> dict[str, dict[str, Any]]:
    """The part `bmc` of FakeNode."""
    node = _systems() | _firmware() | _chassis() | _power()
    services = {"node": node, "row3": _cooling_unit(), "a": _pdu()}
    # No part shared by two documents: tests change them one by one.
    return dict(json.loads(json.dumps(services)))


def _systems() -> dict[str, Any]:
    entries = [
        {"@odata.id": f"{LOG}/Entries/{n}", "Id": str(n), "Severity": severity, "Message": message}
        for n, severity, message in (
            (7, "OK", "System powered on"),
            (8, "Critical", "Power supply 2 lost its input"),
            (9, "OK", "Power supply 2 has its input again"),
        )
    ]
    return {
        **_links(f"{R}/Systems", "1", "HGX_Baseboard_0"),
        f"{R}/Systems/1": {
            "Id": "1",
            "Status": OK,
            "PowerState": "On",
            "Manufacturer": "Dell Inc.",
            "Model": "PowerEdge XE9685L",
            "BiosVersion": "2.4",
            "Bios": _to(f"{R}/Systems/1/Bios"),
            "LogServices": _to(f"{R}/Systems/1/LogServices"),
            "MemorySummary": {"Status": OK},
        },
        f"{R}/Systems/HGX_Baseboard_0": {"Id": "HGX_Baseboard_0", "Status": OK, "PowerState": "On"},
        f"{R}/Systems/1/Bios": {
            "Attributes": {
                "ACSControl": "Disabled",
                "NumaNodesPerSocket": "1",
                "SriovGlobalEnable": "Enabled",
                "ProcX2Apic": "Enabled",
            },
            "@Redfish.Settings": {"SettingsObject": _to(f"{R}/Systems/1/Bios/Settings")},
        },
        f"{R}/Systems/1/Bios/Settings": {"Attributes": {}},
        **_links(f"{R}/Systems/1/LogServices", "SEL", "PostCodes"),
        LOG: {"Id": "SEL", "Entries": _to(f"{LOG}/Entries")},
        f"{R}/Systems/1/LogServices/PostCodes": {"Id": "PostCodes"},
        f"{LOG}/Entries": {"Members": entries},
    }


def _firmware() -> dict[str, Any]:
    path = f"{R}/UpdateService/FirmwareInventory"
    versions = {f"{path}/{id_}": {"Id": id_, "Version": version} for id_, version in FIRMWARE.items()}
    return _links(path, *FIRMWARE) | versions


def _chassis() -> dict[str, Any]:
    thermal = f"{CHASSIS}/ThermalSubsystem"
    leaks = f"{thermal}/LeakDetection"
    return {
        **_links(f"{R}/Chassis", "1"),
        CHASSIS: {
            "Id": "1",
            "Status": OK,
            "ThermalSubsystem": _to(thermal),
            "PowerSubsystem": _to(f"{CHASSIS}/PowerSubsystem"),
            "EnvironmentMetrics": _to(f"{CHASSIS}/EnvironmentMetrics"),
        },
        thermal: {
            "ThermalMetrics": _to(f"{thermal}/ThermalMetrics"),
            "Fans": _to(f"{thermal}/Fans"),
            "FanRedundancy": [{"Name": "all", "Status": OK}],
            "CoolantConnectors": _to(f"{thermal}/CoolantConnectors"),
            "LeakDetection": _to(leaks),
        },
        f"{thermal}/ThermalMetrics": {"TemperatureSummaryCelsius": {"Intake": _excerpt(23.5)}},
        **_links(f"{thermal}/Fans", "1", "2"),
        f"{thermal}/Fans/1": {"Id": "1", "Status": OK},
        f"{thermal}/Fans/2": {"Id": "2", "Status": OK},
        **_links(f"{thermal}/CoolantConnectors", "1"),
        f"{thermal}/CoolantConnectors/1": {
            "Id": "1",
            "Status": OK,
            "SupplyTemperatureCelsius": _excerpt(22.0),
            "ReturnTemperatureCelsius": _excerpt(31.5),
            "FlowLitersPerMinute": _excerpt(10.5),
        },
        leaks: {"Status": OK, "LeakDetectors": _to(f"{leaks}/LeakDetectors")},
        **_links(f"{leaks}/LeakDetectors", "manifold", "tray"),
        f"{leaks}/LeakDetectors/manifold": {"Id": "manifold", "Status": OK, "DetectorState": "OK"},
        f"{leaks}/LeakDetectors/tray": {"Id": "tray", "Status": OK, "DetectorState": "OK"},
    }


def _power() -> dict[str, Any]:
    power = f"{CHASSIS}/PowerSubsystem"
    return {
        power: {
            "PowerSupplies": _to(f"{power}/PowerSupplies"),
            "PowerSupplyRedundancy": [{"Name": "N+1", "Status": OK}],
        },
        **_links(f"{power}/PowerSupplies", "1", "2"),
        f"{power}/PowerSupplies/1": {"Id": "1", "Status": OK, "LineInputStatus": "Normal"},
        f"{power}/PowerSupplies/2": {"Id": "2", "Status": OK, "LineInputStatus": "Normal"},
        f"{CHASSIS}/EnvironmentMetrics": {"PowerWatts": _excerpt(5230.0)},
    }


def _cooling_unit() -> dict[str, Any]:
    leaks = f"{CDU}/LeakDetection"
    return {
        **_links(f"{R}/ThermalEquipment/CDUs", "1"),
        CDU: {
            "Id": "1",
            "Status": OK,
            "SecondaryCoolantConnectors": _to(f"{CDU}/SecondaryCoolantConnectors"),
            "Pumps": _to(f"{CDU}/Pumps"),
            "LeakDetection": _to(leaks),
        },
        **_links(f"{CDU}/SecondaryCoolantConnectors", "1"),
        f"{CDU}/SecondaryCoolantConnectors/1": {
            "Id": "1",
            "Status": OK,
            "SupplyTemperatureCelsius": _excerpt(21.0),
            "ReturnTemperatureCelsius": _excerpt(30.0),
            "DeltaTemperatureCelsius": _excerpt(9.0),
            "FlowLitersPerMinute": _excerpt(420.0),
        },
        **_links(f"{CDU}/Pumps", "1", "2"),
        f"{CDU}/Pumps/1": {"Id": "1", "Status": OK},
        f"{CDU}/Pumps/2": {"Id": "2", "Status": OK},
        leaks: {
            "Status": OK,
            "LeakDetectorGroups": [
                {"GroupName": "base", "Detectors": [{"DeviceName": "rope", "DetectorState": "OK"}]}
            ],
        },
    }


def _pdu() -> dict[str, Any]:
    return {
        **_links(f"{R}/PowerEquipment/RackPDUs", "1"),
        PDU: {"Id": "1", "Status": OK, "Mains": _to(f"{PDU}/Mains"), "Branches": _to(f"{PDU}/Branches")},
        **_links(f"{PDU}/Mains", "AC1"),
        f"{PDU}/Mains/AC1": {"Id": "AC1", "Status": OK},
        **_links(f"{PDU}/Branches", "A"),
        f"{PDU}/Branches/A": {"Id": "A", "Status": OK},
    }
