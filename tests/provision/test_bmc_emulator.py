"""The simulated BMC itself: sessions, ETags, staged settings, resets, updates."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from bmc_client import INVENTORY, PLAIN, SESSIONS, Client, R, Start, frozen_bmcs, message_ids, retried
from bmc_emulator import make_image


@pytest.fixture
def started() -> Iterator[Start]:
    with frozen_bmcs() as start:
        yield start


def test_a_session_is_needed_and_can_be_ended(started) -> None:
    bmc, client = started()
    assert httpx.get(f"{bmc.url}{R}/", **PLAIN).json()["RedfishVersion"]
    assert httpx.get(f"{bmc.url}{R}/Systems", **PLAIN).status_code == 401
    wrong = httpx.post(f"{bmc.url}{SESSIONS}", json={"UserName": bmc.username, "Password": "no"}, **PLAIN)
    assert wrong.status_code == 401
    assert client.get(client.session)["UserName"] == bmc.username
    assert client.http.delete(client.session).status_code == 204
    assert client.http.get(f"{R}/Systems").status_code == 401


def test_http_basic_is_taken_and_may_be_turned_off(started) -> None:
    bmc, _ = started()
    pair = base64.b64encode(f"{bmc.username}:{bmc.password}".encode()).decode()
    asked = {
        "url": f"{bmc.url}{R}/Systems",
        "headers": {"Authorization": f"Basic {pair}"},
        **PLAIN,
    }
    assert httpx.get(**asked).status_code == 200
    bmc.sessions.basic_auth = False
    assert httpx.get(**asked).status_code == 401


def test_sessions_are_few_and_expire(started) -> None:
    bmc, client = started()
    bmc.sessions.most = 2
    Client(bmc)
    sent = {"UserName": bmc.username, "Password": bmc.password}
    assert message_ids(client.http.post(SESSIONS, json=sent)) == ["SessionLimitExceeded"]
    bmc.sessions.age(bmc.sessions.timeout_s)
    assert client.http.get(f"{R}/Systems").status_code == 401
    assert client.http.post(SESSIONS, json=sent).status_code == 201


def test_settings_wait_for_a_reset(started) -> None:
    bmc, client = started()
    before = client.get(bmc.bios.path)
    assert client.settings(bmc, {"ACSControl": "Disabled"}).status_code == 200
    assert client.get(bmc.bios.settings_path)["Attributes"] == {"ACSControl": "Disabled"}
    assert client.get(bmc.bios.path)["Attributes"] == before["Attributes"]
    assert client.reset(bmc).status_code == 204
    system = client.get(f"{R}/Systems/1")
    assert system["BootProgress"]["LastState"] != "OSRunning"
    assert client.get(bmc.bios.path)["Attributes"] == before["Attributes"], "the BMC answers before POST ends"
    bmc.clock.advance(bmc.machine.times.post_s + 1)
    assert client.get(f"{R}/Systems/1")["BootProgress"]["LastState"] == "OSRunning"
    after = client.get(bmc.bios.path)
    assert after["Attributes"]["ACSControl"] == "Disabled"
    assert after["@Redfish.Settings"]["Time"]
    assert client.get(bmc.bios.settings_path)["Attributes"] == {}


@pytest.mark.parametrize(
    ("attributes", "told"),
    [
        ({"NoSuchName": "Enabled"}, ["PropertyUnknown"]),
        ({"ACSControl": "Perhaps"}, ["PropertyValueNotInList"]),
        ({"BootRetryCount": 11}, ["PropertyValueOutOfRange"]),
        ({"BootRetryCount": "3"}, ["PropertyValueTypeError"]),
        ({"BiosReleaseDate": "today"}, ["PropertyNotWritable"]),
        ({"TurboPower": 90}, ["PropertyNotWritable"]),
        ({"ACSControl": "Disabled", "NoSuchName": 1}, ["PropertyUnknown"]),
    ],
)
def test_a_bad_attribute_stages_nothing(started, attributes: dict[str, Any], told: list[str]) -> None:
    bmc, client = started()
    answer = client.settings(bmc, attributes)
    assert (answer.status_code, message_ids(answer)) == (400, told)
    assert bmc.machine.pending == {}


def test_a_dependent_attribute_can_be_set_with_what_it_hinges_on(started) -> None:
    bmc, client = started()
    assert client.settings(bmc, {"PowerProfile": "Custom", "TurboPower": 90}).status_code == 200
    location = client.get(f"{R}/Registries/{bmc.vendor.registry}")["Location"][0]["Uri"]
    entries = client.get(location)["RegistryEntries"]
    assert [each["DependencyFor"] for each in entries["Dependencies"]] == ["TurboPower"]
    assert {each["AttributeName"] for each in entries["Attributes"]} == set(bmc.machine.bios)


def test_a_bios_may_refuse_what_the_bmc_took(started) -> None:
    bmc, client = started()
    bmc.machine.rejects["ACSControl"] = ("Disabled",)
    client.settings(bmc, {"ACSControl": "Disabled", "PcieAspm": "Disabled"})
    client.reset(bmc)
    bmc.settle()
    bios = client.get(bmc.bios.path)
    assert (bios["Attributes"]["ACSControl"], bios["Attributes"]["PcieAspm"]) == ("Enabled", "Disabled")
    (told,) = bios["@Redfish.Settings"]["Messages"]
    assert told["RelatedProperties"] == ["#/Attributes/ACSControl"]


def test_etags(started) -> None:
    bmc, client = started()
    answer = client.http.get(bmc.bios.settings_path)
    tag = answer.headers["etag"]
    assert answer.json()["@odata.etag"] == tag
    assert client.http.get(bmc.bios.settings_path, headers={"If-None-Match": tag}).status_code == 304
    bmc.require_if_match = True
    assert client.settings(bmc, {"ACSControl": "Disabled"}).status_code == 428
    client.http.headers["If-Match"] = tag
    assert client.settings(bmc, {"ACSControl": "Disabled"}).status_code == 200
    assert client.settings(bmc, {"ACSControl": "Enabled"}).status_code == 412
    assert bmc.machine.pending == {"ACSControl": "Disabled"}


def test_dell_needs_a_job_and_then_takes_nothing_more(started) -> None:
    bmc, client = started("dell")
    assert client.settings(bmc, {"SriovGlobalEnable": "Enabled"}).status_code == 200
    client.reset(bmc)
    bmc.settle()
    assert bmc.machine.bios["SriovGlobalEnable"] == "Disabled", "no job, nothing applied"
    on_reset = {"@Redfish.SettingsApplyTime": {"ApplyTime": "OnReset"}}
    answer = client.settings(bmc, {"SysProfile": "PerfOptimized"}, **on_reset)
    assert answer.status_code == 202
    task = answer.headers["location"]
    assert message_ids(client.settings(bmc, {"NodeInterleave": "Enabled"}, **on_reset)) == ["SYS011"]
    client.reset(bmc)
    bmc.settle()
    assert client.get(task)["TaskState"] == "Completed"
    assert bmc.machine.bios["SriovGlobalEnable"] == "Enabled"
    assert bmc.machine.bios["ProcCStates"] == "Disabled", "the profile sets it"


def test_a_dell_job_can_be_deleted(started) -> None:
    bmc, client = started("dell")
    apply = {"@Redfish.SettingsApplyTime": {"ApplyTime": "OnReset"}}
    task = client.settings(bmc, {"SriovGlobalEnable": "Enabled"}, **apply).headers["location"]
    assert client.http.delete(task).status_code == 200
    assert (bmc.machine.pending, client.get(task)["TaskState"]) == ({}, "Cancelled")
    assert client.settings(bmc, {}, **{"@Redfish.SettingsApplyTime": {"ApplyTime": "Now"}}).status_code == 400


def test_other_vendors_differ(started) -> None:
    bmc, client = started("hpe")
    assert set(client.get(bmc.bios.settings_path)["Attributes"]) == set(bmc.machine.bios)
    client.reset(bmc)
    assert message_ids(client.settings(bmc, {"Sriov": "Disabled"})) == ["UnableToModifyDuringSystemPOST"]
    bmc, client = started("supermicro", cpu="intel")
    assert bmc.bios.settings_path.endswith("/Bios/SD")
    values = client.get(bmc.vendor.registry_uri)["RegistryEntries"]["Attributes"][1]["Value"]
    assert values[1] == {"ValueName": "1", "ValueDisplayName": "Force BIOS"}
    assert client.http.patch(bmc.bios.path, json={"Attributes": {"QuietBoot_0027": False}}).status_code == 200
    assert bmc.machine.pending == {"QuietBoot_0027": False}


def test_links_and_order_differ_too(started) -> None:
    bmc, client = started("hpe")
    assert client.get(f"{R}/Systems")["Members"][0] == {"@odata.id": f"{R}/Systems/1/"}
    assert client.get(f"{R}/Systems/1/")["Bios"] == {"@odata.id": f"{bmc.bios.path}/"}
    _, client = started("generic")
    assert client.get(f"{R}/Systems")["Members"][0] == {"@odata.id": f"{R}/Systems/HGX_Baseboard_0"}
    _, client = started("generic", quirks={"baseboard_first": False, "apply_times": ("OnReset", "Immediate")})
    assert client.get(f"{R}/Systems")["Members"][0] == {"@odata.id": f"{R}/Systems/1"}


def test_power(started) -> None:
    bmc, client = started()
    assert client.reset(bmc, "Sideways").status_code == 400
    assert client.http.post(f"{R}/Systems/1/Actions/ComputerSystem.Reset", json={}).status_code == 400
    client.reset(bmc, "ForceOff")
    assert client.get(f"{R}/Systems/1")["PowerState"] == "Off"
    client.reset(bmc, "On")
    assert client.get(f"{R}/Systems/1")["PowerState"] == "On"
    client.reset(bmc, "PowerCycle")
    assert client.get(f"{R}/Systems/1")["PowerState"] == "Off"
    bmc.clock.advance(bmc.machine.times.off_s)
    assert client.get(f"{R}/Systems/1")["PowerState"] == "On"
    assert bmc.machine.resets == ["ForceOff", "On", "PowerCycle"]


def test_a_graceful_reset_takes_its_time_and_may_hang(started) -> None:
    bmc, client = started()
    client.reset(bmc, "GracefulRestart")
    system = client.get(f"{R}/Systems/1")
    assert (system["PowerState"], system["BootProgress"]["LastState"]) == ("On", "OSRunning"), "not yet"
    bmc.clock.advance(bmc.machine.times.shutdown_s)
    assert (
        client.get(f"{R}/Systems/1")["BootProgress"]["LastState"] == "PrimaryProcessorInitializationStarted"
    )
    bmc.settle()
    bmc.machine.os_hangs = True
    client.reset(bmc, "GracefulShutdown")
    bmc.settle()
    assert client.get(f"{R}/Systems/1")["PowerState"] == "On"
    client.reset(bmc, "ForceOff")
    assert client.get(f"{R}/Systems/1")["PowerState"] == "Off"


def test_hpe_cycles_power_only_when_off_and_then_stays_off(started) -> None:
    bmc, client = started("hpe")
    where, action, kind = bmc.vendor.ac_cycle
    path = f"{R}/{where}/Actions/{action}/"
    answer = client.http.post(path, json={"ResetType": kind})
    assert message_ids(answer) == ["InvalidOperationForSystemState"]
    client.reset(bmc, "ForceOff")
    assert client.http.post(path, json={"ResetType": kind}).status_code == 204
    bmc.settle()
    assert bmc.machine.power == "Off"


def test_good_attributes_may_be_taken_beside_bad_ones(started) -> None:
    bmc, client = started()
    bmc.bios.partial = True
    answer = client.settings(bmc, {"CStates": "Disabled", "NoSuchName": 1})
    told = [each["MessageId"].rpartition(".")[2] for each in answer.json()["@Message.ExtendedInfo"]]
    assert (answer.status_code, told) == (200, ["SystemResetRequired", "PropertyUnknown"])
    assert bmc.machine.pending == {"CStates": "Disabled"}
    assert client.http.post(f"{bmc.bios.path}/Actions/Bios.ResetBios", json={}).status_code == 200
    assert bmc.machine.pending["CStates"] == "Enabled"


def test_what_dell_has_pending_can_be_cleared(started) -> None:
    bmc, client = started("dell")
    client.settings(bmc, {"SriovGlobalEnable": "Enabled"})
    clear = f"{bmc.bios.settings_path}/Actions/Oem/DellManager.ClearPending"
    assert client.http.post(clear, json={}).status_code == 204
    assert bmc.machine.pending == {}


def test_a_reset_is_told_to_the_test(started) -> None:
    bmc, client = started()
    told: list[str] = []
    bmc.on_reset = told.append
    client.reset(bmc, "GracefulRestart")
    assert told == ["GracefulRestart"]


def test_an_update_runs_and_waits_for_the_ac_power_cycle(started) -> None:
    bmc, client = started()
    image = make_image({"HGX_FW_GPU_*": "97.10.1A.00.01"})
    answer = client.update(image, f'{{"Targets": ["{R}/Chassis/HGX_Chassis_0"]}}')
    assert (answer.status_code, answer.json()["TaskState"]) == (202, "New")
    monitor, task = answer.headers["location"], answer.json()["@odata.id"]
    assert client.update(image).status_code == 503, "one update at a time"
    bmc.clock.advance(300)
    seen = client.get(task)
    assert (seen["TaskState"], seen["PercentComplete"]) == ("Running", 50)
    assert client.http.get(monitor).status_code == 202
    bmc.clock.advance(300)
    assert client.get(task)["TaskState"] == "Completed"
    assert client.http.get(monitor).status_code == 200
    gpu = f"{INVENTORY}/HGX_FW_GPU_SXM_3"
    assert client.get(gpu)["Version"] == "96.00.89.00.01", "completed is not running"
    client.reset(bmc)
    assert client.get(gpu)["Version"] == "96.00.89.00.01"
    where, action, kind = bmc.vendor.ac_cycle
    assert client.http.post(f"{R}/{where}/Actions/{action}", json={"ResetType": kind}).status_code == 204
    with pytest.raises(httpx.TransportError):
        httpx.get(f"{bmc.url}{R}/", **PLAIN)
    bmc.settle()
    bmc_back = retried(lambda: Client(bmc))
    assert bmc_back.get(gpu)["Version"] == "97.10.1A.00.01"
    assert bmc.machine.firmware["HGX_FW_NVSwitch_0"].version == "96.10.6D.00.01"


@pytest.mark.parametrize(
    ("image", "parameters", "status"),
    [
        (b"MZ no image", "{}", 400),
        (make_image({"BMC": "2"}), "no json", 400),
        (make_image({"BMC": "2"}), f'{{"Targets": ["{INVENTORY}/NoSuch"]}}', 400),
        (make_image({"CPLD_0": "2"}), f'{{"Targets": ["{INVENTORY}/CPLD_0"]}}', 400),
    ],
)
def test_a_wrong_upload_is_refused(started, image: bytes, parameters: str, status: int) -> None:
    bmc, client = started()
    assert client.update(image, parameters).status_code == status
    assert bmc.tasks.all == {}


@pytest.mark.parametrize(
    ("image", "told"),
    [
        (make_image({"HGX_FW_GPU_*": "97.1"}, corrupt=True), "VerificationFailed"),
        (make_image({"OtherMachine": "97.1"}), "NoTargetsDetermined"),
    ],
)
def test_a_bad_image_ends_in_an_exception(started, image: bytes, told: str) -> None:
    bmc, client = started()
    task = client.update(image).json()["@odata.id"]
    bmc.settle()
    seen = client.get(task)
    assert (seen["TaskState"], seen["Messages"][-1]["MessageId"]) == ("Exception", f"Update.1.3.{told}")
    assert all(each.staged is None for each in bmc.machine.firmware.values())


def test_an_update_fails_stalls_or_lies_on_demand(started) -> None:
    bmc, client = started()
    image = make_image({"BIOS": "2.5"})
    bmc.updates.fail_next(0.4, "flash write error")
    task = client.update(image).json()["@odata.id"]
    bmc.settle()
    seen = client.get(task)
    assert (seen["TaskState"], seen["PercentComplete"]) == ("Exception", 40)
    assert seen["Messages"][-1]["Message"] == "flash write error"
    bmc.updates.lie_next()
    client.update(image)
    bmc.settle()
    client.reset(bmc)
    assert client.get(f"{R}/Systems/1")["BiosVersion"] == "2.4"
    client.update(image)
    bmc.settle()
    client.reset(bmc)
    assert client.get(f"{R}/Systems/1")["BiosVersion"] == "2.5"
    bmc.updates.stall_next(0.6)
    task = client.update(make_image({"BIOS": "2.6"})).json()["@odata.id"]
    bmc.settle()
    assert (client.get(task)["TaskState"], client.get(task)["PercentComplete"]) == ("Running", 60)


def test_older_and_equal_versions_are_skipped_unless_forced(started) -> None:
    bmc, client = started()
    for version, parameters, staged in (
        ("2.4", "{}", None),
        ("2.3", "{}", None),
        ("2.3", '{"ForceUpdate": true}', "2.3"),
    ):
        client.update(make_image({"BIOS": version}), parameters)
        bmc.settle()
        assert bmc.machine.firmware["BIOS"].staged == staged
