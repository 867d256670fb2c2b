"""The Bios resource, its settings object and the rules of a PATCH to it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from bmc_attributes import Value, registry_document
from bmc_machine import Machine
from bmc_reply import Document, Refusal, Reply, message, success
from bmc_tasks import Task, Tasks

CONFIG = "BIOS configuration"


class BiosService:
    """Documents and writes. `partial`: good attributes of a request are taken although others are refused."""

    def __init__(self, machine: Machine, tasks: Tasks, etag_of: Callable[[Document], str]) -> None:
        self.machine, self.tasks = machine, tasks
        self.partial = False
        self._etag_of = etag_of
        vendor = machine.vendor
        self.path = f"/redfish/v1/Systems/{vendor.system}/Bios"
        self.settings_path = f"/redfish/v1/Systems/{vendor.system}/{vendor.settings}"
        machine.on_applied = self._applied

    def document(self) -> Document:
        """Bios: what the machine runs with."""
        machine, vendor = self.machine, self.machine.vendor
        settings: Document = {
            "@odata.type": "#Settings.v1_3_5.Settings",
            "SettingsObject": {"@odata.id": self.settings_path},
            "SupportedApplyTimes": list(vendor.apply_times),
            "Messages": list(machine.settings_messages),
        }
        if machine.settings_time_s is not None:
            settings["Time"] = machine.clock.timestamp(machine.settings_time_s)
            settings["ETag"] = self._etag_of({"Attributes": machine.bios})
        return {
            "@odata.id": self.path,
            "@odata.type": "#Bios.v1_2_3.Bios",
            "Id": "Bios",
            "Name": "BIOS configuration, current settings",
            "AttributeRegistry": vendor.registry,
            "Attributes": dict(machine.bios),
            "ResetBiosToDefaultsPending": False,
            "Actions": {"#Bios.ResetBios": {"target": f"{self.path}/Actions/Bios.ResetBios"}},
            "@Redfish.Settings": settings,
        }

    def settings_document(self) -> Document:
        """What is set for the next reset."""
        machine = self.machine
        view = dict(machine.bios) if machine.vendor.pending_view == "full" else {}
        return {
            "@odata.id": self.settings_path,
            "@odata.type": "#Bios.v1_2_3.Bios",
            "Id": self.settings_path.rpartition("/")[2],
            "Name": "BIOS configuration, settings for the next reset",
            "AttributeRegistry": machine.vendor.registry,
            "Attributes": view | machine.pending,
        }

    def registry_document(self) -> Document:
        vendor = self.machine.vendor
        return registry_document(
            vendor.attributes.values(),
            self.machine.bios,
            id_=vendor.registry,
            owner=vendor.manufacturer,
            version="1.0.0",
            systems=(vendor.model, self.machine.bios_version),
            numbered_values=vendor.numbered_values,
            path=vendor.registry_uri,
        )

    def patch(self, sent: Document) -> Reply:
        """Stage attributes; nothing is staged if one of them is refused (unless `partial`)."""
        machine, vendor = self.machine, self.machine.vendor
        if vendor.refuses_in_post and machine.in_post:
            words = "The operation cannot be done while the system is in POST."
            raise Refusal(400, message("UnableToModifyDuringSystemPOST", words, registry="iLO.2.19"))
        wanted = sent.get("Attributes")
        if not isinstance(wanted, dict):
            words = "The property Attributes is a required property and must be included in the request."
            raise Refusal(400, message("PropertyMissing", words, "Attributes"))
        when = self._apply_time(sent)
        if vendor.locks_when_scheduled and machine.scheduled:
            raise _committed(sorted(wanted))
        bad = self._problems(wanted)
        if bad and not (self.partial and len(bad) < len(wanted)):
            raise Refusal(400, *bad.values())
        machine.pending |= {name: value for name, value in wanted.items() if name not in bad}
        return self._staged(when, bad)

    def reset_to_defaults(self) -> Reply:
        machine = self.machine
        known = machine.vendor.attributes.items()
        machine.pending = {name: each.default for name, each in known if not each.read_only}
        machine.scheduled = True
        return Reply(200, {"@Message.ExtendedInfo": [success()]})

    def cancel(self, task: Task) -> None:
        """Delete the job: nothing waits any more."""
        self.machine.clear_pending()
        task.cancel(self.machine.clock.now_s())

    def _staged(self, when: str | None, bad: dict[str, Document]) -> Reply:
        vendor = self.machine.vendor
        if vendor.needs_apply_time and when is None:
            return Reply(200, {"@Message.ExtendedInfo": [success(), *bad.values()]})
        self.machine.scheduled = True
        if vendor.needs_apply_time:
            task = self.tasks.start(CONFIG, None)
            return Reply(202, None, {"Location": f"/redfish/v1/TaskService/Tasks/{task.id}"})
        said = message(
            "SystemResetRequired", "One or more properties were changed and will not take effect until reset."
        )
        return Reply(200, {"@Message.ExtendedInfo": [said, *bad.values()]})

    def _apply_time(self, sent: Document) -> str | None:
        asked = sent.get("@Redfish.SettingsApplyTime")
        if asked is None:
            return None
        when = asked.get("ApplyTime") if isinstance(asked, dict) else None
        if when not in self.machine.vendor.apply_times:
            words = f"The value '{when}' for the property ApplyTime is not in the list of acceptable values."
            where = ("#/@Redfish.SettingsApplyTime/ApplyTime",)
            raise Refusal(
                400, message("PropertyValueNotInList", words, str(when), "ApplyTime", properties=where)
            )
        return str(when)

    def _problems(self, wanted: dict[str, Any]) -> dict[str, Document]:
        found: dict[str, Document] = {}
        would_be: dict[str, Value] = self.machine.bios | self.machine.pending | wanted
        for name, value in wanted.items():
            where = (f"#/Attributes/{name}",)
            known = self.machine.vendor.attributes.get(name)
            if known is None:
                words = f"The property {name} is not in the list of valid properties for the resource."
                found[name] = message("PropertyUnknown", words, name, properties=where)
                continue
            hinged = known.hinges is not None and would_be.get(known.hinges[0]) != known.hinges[1]
            problem = known.problem(value)
            if known.read_only or (hinged and value != self.machine.bios.get(name)):
                words = f"The property {name} is a read-only property and cannot be assigned a value."
                found[name] = message("PropertyNotWritable", words, name, properties=where)
            elif problem is not None:
                found[name] = problem
        return found

    def _applied(self, well: bool) -> None:
        """POST has dealt with the settings: the job that stood for them ends."""
        task = self.tasks.running(CONFIG)
        if task is not None:
            failure = (
                None if well else message("PropertyValueIncorrect", "Some settings were refused by the BIOS.")
            )
            task.finish(self.machine.clock.now_s(), failure)


def _committed(names: list[str]) -> Refusal:
    words = "Pending configuration values are already committed, unable to perform another set operation."
    resolution = (
        "Wait for the scheduled job to complete or delete the configuration jobs before attempting more set "
        "attribute operations."
    )
    said = message(
        "SYS011",
        words,
        *names,
        properties=tuple(f"#/Attributes/{name}" for name in names),
        resolution=resolution,
        registry="IDRAC.2.14",
    )
    return Refusal(400, said)


def canonical(document: Document) -> bytes:
    """One form for equal documents."""
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
