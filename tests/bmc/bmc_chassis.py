"""Chassis, thermal, power and sensor documents: what the agent's checks of a BMC read. SIMULATED values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bmc_reply import Document

R = "/redfish/v1"
OK: Document = {"State": "Enabled", "Health": "OK", "HealthRollup": "OK"}
Builder = Callable[[], Document]


@dataclass
class Readings:
    """What the sensors show."""

    intake_c: float = 23.5
    coolant_in_c: float = 22.0
    coolant_out_c: float = 31.5
    flow_l_per_min: float = 10.5
    power_w: float = 5230.0
    leak: str = "OK"


def resource(path: str, kind: str, **more: object) -> Document:
    """A document with what every one has; its name is the end of its path."""
    id_ = path.rpartition("/")[2]
    schema = kind.partition(".")[0]
    name = f"#{kind}.{schema}" if "." in kind else f"#{kind}.{kind}"
    return {"@odata.id": path, "@odata.type": name, "Id": id_, "Name": id_, **more}


def collection(path: str, kind: str, members: list[str]) -> Document:
    """A list of links."""
    return {
        "@odata.id": path,
        "@odata.type": f"#{kind}Collection.{kind}Collection",
        "Name": f"{kind} collection",
        "Members": [{"@odata.id": member} for member in members],
        "Members@odata.count": len(members),
    }


def to(path: str) -> Document:
    return {"@odata.id": path}


def chassis_documents(id_: str, readings: Readings) -> dict[str, Builder]:
    """Everything below one chassis, not the chassis itself."""
    chassis = f"{R}/Chassis/{id_}"
    return (
        _thermal(chassis, readings)
        | _leaks(chassis, readings)
        | _power(chassis, readings)
        | _sensors(chassis, readings)
    )


def chassis_links(id_: str) -> Document:
    """The links of the chassis to all that."""
    chassis = f"{R}/Chassis/{id_}"
    names = ("ThermalSubsystem", "PowerSubsystem", "EnvironmentMetrics", "Sensors")
    return {name: to(f"{chassis}/{name}") for name in names}


def _excerpt(value: float, chassis: str, sensor: str) -> Document:
    return {"Reading": value, "DataSourceUri": f"{chassis}/Sensors/{sensor}"}


def _thermal(chassis: str, readings: Readings) -> dict[str, Builder]:
    thermal = f"{chassis}/ThermalSubsystem"
    fans = [f"{thermal}/Fans/{each}" for each in range(1, 9)]
    coolant = f"{thermal}/CoolantConnectors/1"
    found: dict[str, Builder] = {
        thermal: lambda: resource(
            thermal,
            "ThermalSubsystem.v1_3_3",
            Status=OK,
            ThermalMetrics=to(f"{thermal}/ThermalMetrics"),
            Fans=to(f"{thermal}/Fans"),
            FanRedundancy=[
                {"RedundancyType": "NPlusM", "RedundancyGroup": [to(fan) for fan in fans], "Status": OK}
            ],
            CoolantConnectors=to(f"{thermal}/CoolantConnectors"),
            LeakDetection=to(f"{thermal}/LeakDetection"),
        ),
        f"{thermal}/ThermalMetrics": lambda: resource(
            f"{thermal}/ThermalMetrics",
            "ThermalMetrics.v1_3_2",
            TemperatureSummaryCelsius={"Intake": _excerpt(readings.intake_c, chassis, "Intake")},
        ),
        f"{thermal}/Fans": lambda: collection(f"{thermal}/Fans", "Fan", fans),
        f"{thermal}/CoolantConnectors": lambda: collection(
            f"{thermal}/CoolantConnectors", "CoolantConnector", [coolant]
        ),
        coolant: lambda: resource(
            coolant,
            "CoolantConnector.v1_1_0",
            CoolantConnectorType="Pair",
            Status=OK,
            SupplyTemperatureCelsius=_excerpt(readings.coolant_in_c, chassis, "CoolantIn"),
            ReturnTemperatureCelsius=_excerpt(readings.coolant_out_c, chassis, "CoolantOut"),
            FlowLitersPerMinute=_excerpt(readings.flow_l_per_min, chassis, "CoolantFlow"),
        ),
    }
    for fan in fans:
        found[fan] = lambda fan=fan: resource(fan, "Fan.v1_5_2", Status=OK, HotPluggable=True)
    return found


def _leaks(chassis: str, readings: Readings) -> dict[str, Builder]:
    leaks = f"{chassis}/ThermalSubsystem/LeakDetection"
    detectors = [f"{leaks}/LeakDetectors/{name}" for name in ("manifold", "tray")]
    found: dict[str, Builder] = {
        leaks: lambda: resource(
            leaks, "LeakDetection.v1_1_1", Status=OK, LeakDetectors=to(f"{leaks}/LeakDetectors")
        ),
        f"{leaks}/LeakDetectors": lambda: collection(f"{leaks}/LeakDetectors", "LeakDetector", detectors),
    }
    for each in detectors:
        found[each] = lambda each=each: resource(
            each, "LeakDetector.v1_3_1", LeakDetectorType="Moisture", DetectorState=readings.leak, Status=OK
        )
    return found


def _power(chassis: str, readings: Readings) -> dict[str, Builder]:
    power = f"{chassis}/PowerSubsystem"
    supplies = [f"{power}/PowerSupplies/{each}" for each in range(1, 7)]
    found: dict[str, Builder] = {
        power: lambda: resource(
            power,
            "PowerSubsystem.v1_1_3",
            Status=OK,
            PowerSupplies=to(f"{power}/PowerSupplies"),
            PowerSupplyRedundancy=[
                {"RedundancyType": "NPlusM", "RedundancyGroup": [to(each) for each in supplies], "Status": OK}
            ],
        ),
        f"{power}/PowerSupplies": lambda: collection(f"{power}/PowerSupplies", "PowerSupply", supplies),
        f"{chassis}/EnvironmentMetrics": lambda: resource(
            f"{chassis}/EnvironmentMetrics",
            "EnvironmentMetrics.v1_3_2",
            PowerWatts=_excerpt(readings.power_w, chassis, "Power"),
        ),
    }
    for each in supplies:
        found[each] = lambda each=each: resource(
            each, "PowerSupply.v1_6_0", Status=OK, LineInputStatus="Normal", PowerSupplyType="AC"
        )
    return found


def _sensors(chassis: str, readings: Readings) -> dict[str, Builder]:
    path = f"{chassis}/Sensors"
    shown = {
        "Intake": ("Temperature", "Cel", "intake_c"),
        "CoolantIn": ("Temperature", "Cel", "coolant_in_c"),
        "CoolantOut": ("Temperature", "Cel", "coolant_out_c"),
        "CoolantFlow": ("LiquidFlowLPM", "L/min", "flow_l_per_min"),
        "Power": ("Power", "W", "power_w"),
    }
    found: dict[str, Builder] = {
        path: lambda: collection(path, "Sensor", [f"{path}/{name}" for name in shown])
    }
    for name, (kind, unit, key) in shown.items():
        found[f"{path}/{name}"] = lambda name=name, kind=kind, unit=unit, key=key: resource(
            f"{path}/{name}",
            "Sensor.v1_10_1",
            ReadingType=kind,
            ReadingUnits=unit,
            Reading=getattr(readings, key),
            Status=OK,
        )
    return found
