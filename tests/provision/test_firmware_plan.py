"""What the plan makes of images and inventory."""

from __future__ import annotations

from typing import Any

import pytest

from agent.bmc_profile import FirmwareImage
from agent.provision.firmware_inventory import read_inventory
from agent.provision.firmware_plan import Inventory, Plan, State, plan, relation
from agent.provision.redfish_words import NotThere, Refused

SHA = "0" * 64


def image(versions: dict[str, str], **more: Any) -> FirmwareImage:
    given = {"versions": versions, "image": "x.bin", "sha256": SHA, "activation": "reset", **more}
    return FirmwareImage.model_validate(given)


def planned(images: dict[str, FirmwareImage], running: dict[str, str], **more: Any) -> Plan:
    waiting = more.pop("waiting", {})
    return plan(images, Inventory(running, waiting, more.pop("unreadable", {})), **more)


@pytest.mark.parametrize(
    ("have", "want", "told"),
    [
        ("2.19.1", "2.19.1", "same"),
        ("2.19.1 ", "2.19.1", "same"),
        ("40.48.1000 (NVD0072)", "40.48.1000", "same"),
        ("96.10.57.00.01", "96.10.6D", "older"),
        ("96.10.6D.00.01", "96.10.57", "newer"),
        ("GB200Nvl-25.06-A", "GB200Nvl-25.06-B", "older"),
        ("HGX-22.10-1-rc44", "25.06", "cannot be compared"),
        ("unknown", "1.0", "cannot be compared"),
    ],
)
def test_relation(have: str, want: str, told: str) -> None:
    assert relation(have, want) == told


def test_order_is_bmc_then_bios_and_baseboard_then_the_rest_unless_the_profile_says() -> None:
    images = {
        "a": image({"SSD_1": "2"}, kind="ssd"),
        "b": image({"BIOS": "2"}, kind="bios"),
        "c": image({"GPU": "2"}, kind="hgx"),
        "d": image({"BMC": "2"}, kind="bmc"),
        "e": image({"CPLD": "2"}, order=1),
    }
    running = {"SSD_1": "1", "BIOS": "1", "GPU": "1", "BMC": "1", "CPLD": "1"}
    assert [step.name for step in planned(images, running).due] == ["e", "d", "b", "c", "a"]


def test_states_of_an_image_with_several_components() -> None:
    images = {"hgx": image({"GPU_*": "97.10", "SW": "2.0"})}
    running = {"GPU_1": "97.10", "GPU_2": "96.00", "SW": "2.0", "BMC": ""}
    (step,) = planned(images, running).steps
    assert step.state is State.UPDATE
    assert [row.id for row in step.rows if row.state is State.UPDATE] == ["GPU_2"]
    assert step.drift() == [
        {"field": "bmc.images.hgx.versions.GPU_*", "name": "GPU_2", "before": "96.00", "after": "97.10"}
    ]
    (step,) = planned(images, running, waiting={"GPU_2": ("97.10",)}).steps
    assert step.state is State.PENDING
    (step,) = planned(images, running, waiting={"GPU_2": ("97.09",)}).steps
    assert step.state is State.UPDATE
    (step,) = planned(images, running | {"GPU_2": "97.10"}).steps
    assert step.state is State.CURRENT


def test_newer_is_refused_unless_the_profile_or_the_operator_lets_it() -> None:
    running = {"BMC": "2.1"}
    refused = planned({"bmc": image({"BMC": "2.0"})}, running)
    assert "BMC runs 2.1, which is newer than 2.0" in refused.problems[0]
    least = planned({"bmc": image({"BMC": "2.0"}, match="least")}, running)
    assert (least.problems, least.due) == ((), ())
    forced = planned({"bmc": image({"BMC": "2.0"})}, running, allow_downgrade=True)
    assert forced.problems == () and forced.due[0].force


@pytest.mark.parametrize(
    ("running", "more", "words"),
    [
        ({"HGX_FW_BMC_0": "1"}, {}, "no firmware in the BMC's inventory of 1 has that name"),
        ({"BMC": " "}, {}, "gives no version"),
        ({"BMC": "alpha"}, {}, "cannot be compared with 2.0"),
        ({}, {"unreadable": {"BMC": "HTTP 500"}}, "BMC: HTTP 500"),
    ],
)
def test_a_doubt_is_a_problem(running: dict[str, str], more: dict[str, Any], words: str) -> None:
    found = planned({"bmc": image({"BMC": "2.0"})}, running, **more)
    assert len(found.problems) == 1
    assert words in found.problems[0] and found.problems[0].startswith("bmc.images.bmc.versions.BMC: ")


def test_a_name_nearby_is_offered() -> None:
    (problem,) = planned({"x": image({"HGX_FW_NVSwich_0": "1"})}, {"HGX_FW_NVSwitch_0": "1"}).problems
    assert "near: HGX_FW_NVSwitch_0" in problem


def test_what_is_too_old_and_no_image_brings() -> None:
    found = planned({"x": image({"A_1": "2.0"})}, {"A_1": "1", "A_2": "1", "B": "1"}, least={"A_*": "1.5"})
    assert len(found.problems) == 1 and "A_2 is 1, older than 1.5" in found.problems[0]


UPDATE = "/redfish/v1/UpdateService"
TASKS = "/redfish/v1/TaskService/Tasks"


class Documents:
    """A BMC that is a dict."""

    def __init__(self, documents: dict[str, Any]) -> None:
        self.documents = documents
        self.asked: list[str] = []

    def get(self, path: str, *, patience_s: float | None = None) -> Any:
        self.asked.append(path)
        if path not in self.documents:
            raise NotThere("not there", where=path)
        return self.documents[path], None


def bmc(versions: dict[str, Any], tasks: list[dict[str, Any]] | None = None) -> Documents:
    inventory = f"{UPDATE}/FirmwareInventory"
    found: dict[str, Any] = {
        UPDATE: {"FirmwareInventory": {"@odata.id": inventory}},
        inventory: {"Members": [{"@odata.id": f"{inventory}/{id_}"} for id_ in versions]},
    }
    found |= {f"{inventory}/{id_}": {"Id": id_, "Version": version} for id_, version in versions.items()}
    if tasks is not None:
        found[TASKS] = {"Members": [{"@odata.id": f"{TASKS}/{n}"} for n in range(len(tasks))]}
        found |= {f"{TASKS}/{n}": task for n, task in enumerate(tasks)}
    return Documents(found)


def awaits(
    *arguments: str, state: str = "Completed", id_: str = "Update.1.0.AwaitToActivate"
) -> dict[str, Any]:
    return {
        "TaskState": state,
        "Messages": [{"MessageId": id_, "MessageArgs": [*arguments]}, {"MessageId": 3}, 7],
    }


def test_only_what_is_asked_for_is_read_and_waiting_versions_come_from_tasks_in_either_order() -> None:
    service = bmc({"BMC": "1", "GPU_1": "1", "SSD": "9"}, [awaits("GPU_1", "2"), awaits("3", "BMC"), {}])
    found = read_inventory(service, ["BMC", "GPU_*"])
    assert found.running == {"BMC": "1", "GPU_1": "1", "SSD": ""}
    assert found.waiting["GPU_1"] == ("2",) and found.waiting["BMC"] == ("3",)
    assert f"{UPDATE}/FirmwareInventory/SSD" not in service.asked


@pytest.mark.parametrize(
    "task",
    [
        awaits("GPU_1", "2", state="Running"),
        awaits("GPU_1", "2", state="Exception"),
        awaits("GPU_1", "2", id_="Update.1.0.ApplyFailed"),
        awaits("GPU_1"),
        {"TaskState": "Completed", "Messages": "none"},
    ],
)
def test_other_tasks_say_nothing(task: dict[str, Any]) -> None:
    assert read_inventory(bmc({"GPU_1": "1"}, [task]), ["*"]).waiting == {}


def test_a_bmc_without_tasks_and_one_without_a_version() -> None:
    found = read_inventory(bmc({"GPU_1": None}), ["*"])
    assert (found.running, found.waiting) == ({"GPU_1": ""}, {})


def test_a_list_that_is_none_is_refused() -> None:
    service = bmc({})
    service.documents[f"{UPDATE}/FirmwareInventory"] = {"Members": [{"id": 1}]}
    with pytest.raises(Refused, match="no list of members"):
        read_inventory(service, ["*"])


def test_a_bmc_without_an_inventory_shows_bios_and_itself() -> None:
    service = Documents(
        {
            UPDATE: {},
            "/redfish/v1/Systems": {"Members": [{"@odata.id": "/redfish/v1/Systems/1"}]},
            "/redfish/v1/Systems/1": {"BiosVersion": "1.0.0"},
            "/redfish/v1/Managers": {"Members": [{"@odata.id": "/redfish/v1/Managers/1"}]},
            "/redfish/v1/Managers/1": {"FirmwareVersion": None},
        }
    )
    assert read_inventory(service, ["BIOS"]).running == {"BIOS": "1.0.0"}
