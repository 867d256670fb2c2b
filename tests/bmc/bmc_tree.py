"""The documents of a BMC that have a fixed place: root, system, chassis, manager, update service, logs."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from bmc_chassis import OK, Builder, R, chassis_documents, chassis_links, collection, resource, to
from bmc_reply import Document
from bmc_update import INVENTORY

if TYPE_CHECKING:
    from bmc_service import Bmc

RESETS = (
    "On",
    "ForceOff",
    "GracefulShutdown",
    "GracefulRestart",
    "ForceRestart",
    "PowerCycle",
    "PushPowerButton",
    "Nmi",
)
MANAGER_RESETS = ("GracefulRestart", "ForceRestart")
UPDATE = f"{R}/UpdateService"
MULTIPART = f"{UPDATE}/update-multipart"
PUSH = f"{UPDATE}/update"
SIMPLE = f"{UPDATE}/Actions/UpdateService.SimpleUpdate"
BASEBOARD = "HGX_Baseboard_0"
BASEBOARD_CHASSIS = "HGX_Chassis_0"


def system_path(bmc: Bmc) -> str:
    return f"{R}/Systems/{bmc.vendor.system}"


def reset_types(bmc: Bmc) -> list[str]:
    """What ComputerSystem.Reset takes."""
    return [*RESETS, *(["FullPowerCycle"] if bmc.vendor.full_power_cycle else [])]


def ac_cycle_target(bmc: Bmc) -> str:
    """Where the AC power cycle is asked for."""
    where, action, _ = bmc.vendor.ac_cycle
    return f"{R}/{where}/Actions/{action}"


def tree(bmc: Bmc) -> dict[str, Builder]:
    """Path -> how to build the document."""
    found: dict[str, Builder] = {
        "/redfish": lambda: {"v1": f"{R}/"},
        R: lambda: _root(bmc),
        f"{R}/odata": lambda: _odata(),
        f"{R}/Systems": lambda: collection(f"{R}/Systems", "ComputerSystem", _systems(bmc)),
        system_path(bmc): lambda: _system(bmc),
        f"{R}/Systems/{BASEBOARD}": lambda: resource(
            f"{R}/Systems/{BASEBOARD}", "ComputerSystem.v1_23_1", Status=OK, PowerState=bmc.machine.power,
            SystemType="Physical",
        ),
        bmc.bios.path: bmc.bios.document,
        bmc.bios.settings_path: bmc.bios.settings_document,
        f"{R}/TaskService": lambda: resource(
            f"{R}/TaskService", "TaskService.v1_2_1", ServiceEnabled=True, Status=OK,
            DateTime=bmc.clock.timestamp(), Tasks=to(f"{R}/TaskService/Tasks"),
        ),
        f"{R}/SessionService": lambda: resource(
            f"{R}/SessionService", "SessionService.v1_1_9", ServiceEnabled=True, Status=OK,
            SessionTimeout=int(bmc.sessions.timeout_s), Sessions=to(f"{R}/SessionService/Sessions"),
        ),
    }  # fmt: skip
    return found | _update(bmc) | _chassis(bmc) | _managers(bmc) | _registries(bmc) | _log(bmc)


def _systems(bmc: Bmc) -> list[str]:
    found = [system_path(bmc), f"{R}/Systems/{BASEBOARD}"]
    return found[::-1] if bmc.vendor.baseboard_first else found


def _root(bmc: Bmc) -> Document:
    return {
        "@odata.id": f"{R}/",
        "@odata.type": "#ServiceRoot.v1_17_0.ServiceRoot",
        "Id": "RootService",
        "Name": "Root Service",
        "RedfishVersion": "1.20.0",
        "UUID": str(uuid.uuid5(uuid.NAMESPACE_DNS, bmc.name)),
        "Product": f"{bmc.vendor.model} (SIMULATED)",
        "Vendor": bmc.vendor.manufacturer,
        "ProtocolFeaturesSupported": {
            "ExpandQuery": {
                "ExpandAll": False,
                "Levels": True,
                "MaxLevels": 1,
                "Links": False,
                "NoLinks": True,
            },
            "FilterQuery": False,
            "SelectQuery": False,
            "OnlyMemberQuery": False,
            "ExcerptQuery": False,
        },
        "Systems": to(f"{R}/Systems"),
        "Chassis": to(f"{R}/Chassis"),
        "Managers": to(f"{R}/Managers"),
        "UpdateService": to(UPDATE),
        "Tasks": to(f"{R}/TaskService"),
        "SessionService": to(f"{R}/SessionService"),
        "AccountService": to(f"{R}/AccountService"),
        "Registries": to(f"{R}/Registries"),
        "Links": {"Sessions": to(f"{R}/SessionService/Sessions")},
    }


def _odata() -> Document:
    names = ("Systems", "Chassis", "Managers", "UpdateService", "TaskService", "SessionService", "Registries")
    return {
        "@odata.context": f"{R}/$metadata",
        "value": [{"name": name, "kind": "Singleton", "url": f"{R}/{name}"} for name in names],
    }


def _system(bmc: Bmc) -> Document:
    machine, vendor, path = bmc.machine, bmc.vendor, system_path(bmc)
    actions: Document = {
        "#ComputerSystem.Reset": {
            "target": f"{path}/Actions/ComputerSystem.Reset",
            "ResetType@Redfish.AllowableValues": reset_types(bmc),
        }
    }
    if vendor.ac_cycle[0].startswith("Systems/"):
        actions["Oem"] = _oem_action(bmc)
    found = resource(
        path,
        "ComputerSystem.v1_23_1",
        SystemType="Physical",
        Manufacturer=vendor.manufacturer,
        Model=vendor.model,
        SerialNumber=bmc.serial,
        UUID=str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{bmc.name}.system")),
        BiosVersion=machine.bios_version,
        PowerState=machine.power,
        Status=OK,
        ProcessorSummary={"Count": 2, "Status": OK},
        MemorySummary={"TotalSystemMemoryGiB": 2048, "Status": OK},
        Bios=to(bmc.bios.path),
        LogServices=to(f"{path}/LogServices"),
        Links={
            "Chassis": [to(f"{R}/Chassis/{vendor.chassis}")],
            "ManagedBy": [to(f"{R}/Managers/{vendor.manager}")],
        },
        Actions=actions,
    )
    if machine.boot_progress:
        found["BootProgress"] = {"LastState": machine.boot_phase}
    return found


def _oem_action(bmc: Bmc) -> Document:
    action = "#" + bmc.vendor.ac_cycle[1].rpartition("/")[2]
    values = [bmc.vendor.ac_cycle[2]]
    return {action: {"target": ac_cycle_target(bmc), "ResetType@Redfish.AllowableValues": values}}


def _update(bmc: Bmc) -> dict[str, Builder]:
    def service() -> Document:
        found = resource(
            UPDATE,
            "UpdateService.v1_14_1",
            ServiceEnabled=True,
            Status=OK,
            FirmwareInventory=to(INVENTORY),
            MultipartHttpPushUri=MULTIPART,
            MaxImageSizeBytes=bmc.updates.max_image_bytes,
            Actions={
                "#UpdateService.SimpleUpdate": {
                    "target": SIMPLE,
                    "TransferProtocol@Redfish.AllowableValues": ["HTTP"],
                }
            },
        )
        if bmc.updates.http_push:
            found["HttpPushUri"] = PUSH
        return found

    return {
        UPDATE: service,
        INVENTORY: lambda: collection(
            INVENTORY, "SoftwareInventory", [f"{INVENTORY}/{name}" for name in bmc.machine.firmware]
        ),
    }


def firmware_document(bmc: Bmc, name: str) -> Document:
    """One item of the inventory: the version that runs."""
    item = bmc.machine.firmware[name]
    maker = "NVIDIA" if name.startswith(("HGX_", "CX")) else bmc.vendor.manufacturer
    return resource(
        f"{INVENTORY}/{name}",
        "SoftwareInventory.v1_11_0",
        Version=item.version,
        Updateable=item.updateable,
        Manufacturer=maker,
        Status=OK,
    )


def _chassis(bmc: Bmc) -> dict[str, Builder]:
    vendor = bmc.vendor
    ids = [vendor.chassis, BASEBOARD_CHASSIS]
    where = vendor.ac_cycle[0]
    if where.startswith("Chassis/") and where.removeprefix("Chassis/") not in ids:
        ids.append(where.removeprefix("Chassis/"))

    def one(id_: str) -> Document:
        actions: Document = {}
        if where == f"Chassis/{id_}":
            actions["Oem"] = _oem_action(bmc)
        if id_ == vendor.chassis:
            actions["#Chassis.Reset"] = {
                "target": f"{R}/Chassis/{id_}/Actions/Chassis.Reset",
                "ResetType@Redfish.AllowableValues": reset_types(bmc),
            }
        found = resource(
            f"{R}/Chassis/{id_}",
            "Chassis.v1_26_0",
            ChassisType="RackMount" if id_ == vendor.chassis else "Component",
            Manufacturer=vendor.manufacturer,
            PowerState=bmc.machine.power,
            Status=OK,
        )
        if actions:
            found["Actions"] = actions
        return found | (chassis_links(id_) if id_ == vendor.chassis else {})

    found: dict[str, Builder] = {
        f"{R}/Chassis": lambda: collection(f"{R}/Chassis", "Chassis", [f"{R}/Chassis/{id_}" for id_ in ids])
    }
    for id_ in ids:
        found[f"{R}/Chassis/{id_}"] = lambda id_=id_: one(id_)
    return found | chassis_documents(vendor.chassis, bmc.readings)


def _managers(bmc: Bmc) -> dict[str, Builder]:
    path = f"{R}/Managers/{bmc.vendor.manager}"

    def manager() -> Document:
        return resource(
            path,
            "Manager.v1_20_0",
            ManagerType="BMC",
            FirmwareVersion=bmc.machine.firmware["BMC"].version,
            DateTime=bmc.clock.timestamp(),
            Status=OK,
            Links={"ManagerForServers": [to(system_path(bmc))]},
            Actions={
                "#Manager.Reset": {
                    "target": f"{path}/Actions/Manager.Reset",
                    "ResetType@Redfish.AllowableValues": list(MANAGER_RESETS),
                }
            },
        )

    return {f"{R}/Managers": lambda: collection(f"{R}/Managers", "Manager", [path]), path: manager}


def _registries(bmc: Bmc) -> dict[str, Builder]:
    vendor = bmc.vendor
    file = f"{R}/Registries/{vendor.registry}"
    return {
        f"{R}/Registries": lambda: collection(f"{R}/Registries", "MessageRegistryFile", [file]),
        file: lambda: resource(
            file,
            "MessageRegistryFile.v1_1_5",
            Languages=["en"],
            Registry=vendor.registry,
            Location=[{"Language": "en", "Uri": vendor.registry_uri}],
        ),
        vendor.registry_uri: bmc.bios.registry_document,
    }


def _log(bmc: Bmc) -> dict[str, Builder]:
    services = f"{system_path(bmc)}/LogServices"
    log = f"{services}/SEL"
    return {
        services: lambda: collection(services, "LogService", [log]),
        log: lambda: resource(log, "LogService.v1_7_0", Entries=to(f"{log}/Entries"), Status=OK),
        f"{log}/Entries": lambda: {
            **collection(f"{log}/Entries", "LogEntry", []),
            "Members": [_entry(f"{log}/Entries", number, each) for number, each in enumerate(bmc.log, 1)],
            "Members@odata.count": len(bmc.log),
        },
    }


def _entry(entries: str, number: int, entry: tuple[str, str]) -> Document:
    severity, words = entry
    return resource(
        f"{entries}/{number}", "LogEntry.v1_17_0", EntryType="SEL", Severity=severity, Message=words
    )
