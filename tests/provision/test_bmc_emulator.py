"""The simulated BMC itself: sessions, ETags, staged settings, resets, updates, faults."""

from __future__ import annotations

import base64
import json
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import bmc_emulator
import httpx
import pytest
from bmc_emulator import BmcEmulator, make_image
from check_cases import run_twice
from fake_h200 import h200_node, h200_profile
from redfish_server import make_certificates

from agent.bmc_profile import Bmc as BmcProfile
from agent.checks.registry import load_all
from agent.model import Verdict
from agent.sources.redfish import RedfishClient

R = "/redfish/v1"
SESSIONS = f"{R}/SessionService/Sessions"
UPDATE = f"{R}/UpdateService/update-multipart"
INVENTORY = f"{R}/UpdateService/FirmwareInventory"


#: All that a test has opened, for the fixture to close.
_clients: list[httpx.Client] = []


class Client:
    """A logged-in client of one emulator."""

    def __init__(self, bmc: BmcEmulator, **more: Any) -> None:
        self.http = httpx.Client(base_url=bmc.url, timeout=5, trust_env=False, **more)
        _clients.append(self.http)
        sent = {"UserName": bmc.username, "Password": bmc.password}
        answer = self.http.post(SESSIONS, json=sent)
        assert answer.status_code == 201, answer.text
        self.session = answer.headers["location"]
        self.http.headers["X-Auth-Token"] = answer.headers["x-auth-token"]

    def get(self, path: str) -> dict[str, Any]:
        answer = self.http.get(path)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def reset(self, bmc: BmcEmulator, kind: str = "ForceRestart") -> httpx.Response:
        path = f"{R}/Systems/{bmc.vendor.system}/Actions/ComputerSystem.Reset"
        return self.http.post(path, json={"ResetType": kind})

    def settings(self, bmc: BmcEmulator, attributes: dict[str, Any], **more: Any) -> httpx.Response:
        sent = {"Attributes": attributes, **more}
        return self.http.patch(bmc.bios.settings_path, json=sent)

    def update(self, image: bytes, parameters: str = "{}") -> httpx.Response:
        files = {
            "UpdateParameters": (None, parameters, "application/json"),
            "UpdateFile": ("image.fwpkg", image, "application/octet-stream"),
        }
        return self.http.post(UPDATE, files=files)


@pytest.fixture
def started() -> Iterator[Callable[..., tuple[BmcEmulator, Client]]]:
    """Start emulators over plain HTTP whose clock only advance() moves."""
    with ExitStack() as stack:

        def start(vendor: str = "generic", **more: Any) -> tuple[BmcEmulator, Client]:
            bmc = stack.enter_context(BmcEmulator(vendor, speed=0, **more))
            return bmc, Client(bmc)

        yield start
        while _clients:
            _clients.pop().close()


def _ids(answer: httpx.Response) -> list[str]:
    """Names of the messages of an error, without registry and version."""
    told = answer.json()["error"]["@Message.ExtendedInfo"]
    return [each["MessageId"].rpartition(".")[2] for each in told]


def test_a_session_is_needed_and_can_be_ended(started) -> None:
    bmc, client = started()
    assert httpx.get(f"{bmc.url}{R}/", trust_env=False).json()["RedfishVersion"]
    assert httpx.get(f"{bmc.url}{R}/Systems", trust_env=False).status_code == 401
    wrong = httpx.post(
        f"{bmc.url}{SESSIONS}", json={"UserName": bmc.username, "Password": "no"}, trust_env=False
    )
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
        "trust_env": False,
    }
    assert httpx.get(**asked).status_code == 200
    bmc.sessions.basic_auth = False
    assert httpx.get(**asked).status_code == 401


def test_sessions_are_few_and_expire(started) -> None:
    bmc, client = started()
    bmc.sessions.most = 2
    Client(bmc)
    sent = {"UserName": bmc.username, "Password": bmc.password}
    assert _ids(client.http.post(SESSIONS, json=sent)) == ["SessionLimitExceeded"]
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
    assert (answer.status_code, _ids(answer)) == (400, told)
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
    assert _ids(client.settings(bmc, {"NodeInterleave": "Enabled"}, **on_reset)) == ["SYS011"]
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
    assert _ids(client.settings(bmc, {"Sriov": "Disabled"})) == ["UnableToModifyDuringSystemPOST"]
    bmc, client = started("supermicro", cpu="intel")
    assert bmc.bios.settings_path.endswith("/Bios/SD")
    values = client.get(bmc.vendor.registry_uri)["RegistryEntries"]["Attributes"][1]["Value"]
    assert values[1] == {"ValueName": "1", "ValueDisplayName": "Force BIOS"}
    assert client.http.patch(bmc.bios.path, json={"Attributes": {"QuietBoot_0027": False}}).status_code == 200
    assert bmc.machine.pending == {"QuietBoot_0027": False}


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
        httpx.get(f"{bmc.url}{R}/", trust_env=False)
    bmc.settle()
    bmc_back = _retried(lambda: Client(bmc))
    assert bmc_back.get(gpu)["Version"] == "97.10.1A.00.01"
    assert bmc.machine.firmware["HGX_FW_NVSwitch_0"].version == "96.10.6D.00.01"


def _retried(work: Callable[[], Client]) -> Client:
    """The listener comes back a moment after the clock was moved."""
    for _ in range(200):
        try:
            return work()
        except httpx.TransportError:
            threading.Event().wait(0.01)
    return work()


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


def test_faults_of_requests(started) -> None:
    bmc, client = started()
    for kind, status in (
        ("busy", 503),
        ("error", 500),
        ("forbidden", 403),
        ("missing", 404),
        ("redirect", 308),
    ):
        bmc.faults.add(kind, f"{R}/Systems*", requests=1)
        assert client.http.get(f"{R}/Systems").status_code == status
        assert client.http.get(f"{R}/Systems").status_code == 200
    bmc.faults.add("busy", for_s=300, retry_after_s=7)
    assert client.http.get(f"{R}/Systems").headers["retry-after"] == "7"
    bmc.clock.advance(299)
    assert client.http.get(f"{R}/Systems").status_code == 503
    bmc.clock.advance(1)
    assert client.http.get(f"{R}/Systems").status_code == 200
    bmc.faults.add("garbage", requests=1)
    assert client.http.get(f"{R}/Systems").text.startswith("<html>")
    for kind in ("drop", "drop-body"):
        bmc.faults.add(kind, requests=1)
        with pytest.raises(httpx.TransportError):
            client.http.get(f"{R}/Systems")
    bmc.faults.add("unauthorized", requests=1)
    assert [client.http.get(f"{R}/Systems").status_code for _ in range(2)] == [401, 401]


def test_a_lost_answer_was_carried_out(started) -> None:
    bmc, client = started()
    bmc.faults.add("drop-answer", method="PATCH", after=1, requests=1)
    assert client.settings(bmc, {"CStates": "Disabled"}).status_code == 200
    with pytest.raises(httpx.TransportError):
        client.settings(bmc, {"ACSControl": "Disabled"})
    assert bmc.machine.pending == {"CStates": "Disabled", "ACSControl": "Disabled"}


def test_refused_connections(started) -> None:
    bmc, _ = started()
    bmc.faults.add("refuse", for_s=60)
    with pytest.raises(ConnectionRefusedError):
        for _ in range(200):  # the listener closes a moment later
            with suppress(ConnectionResetError):
                socket.create_connection(bmc.server.address, 5).close()
    bmc.clock.advance(60)
    assert _retried(lambda: Client(bmc)).get(f"{R}/Systems")["Members"]


def test_the_record_tells_writes_and_hides_secrets(started) -> None:
    bmc, client = started()
    client.get(f"{R}/Systems")
    assert bmc.record.writes() == []
    client.settings(bmc, {"CStates": "Disabled"})
    assert bmc.record.writes() == [("PATCH", bmc.bios.settings_path)]
    assert bmc.record.leaks == []
    assert bmc.password not in repr(bmc.record.seen)
    assert client.http.headers["X-Auth-Token"] not in repr(bmc.record.seen)
    client.http.get(f"{R}/Systems?password={bmc.password}")
    assert bmc.record.leaks == ["GET: URL"]


def test_lists_can_be_expanded_and_documents_overlaid(started) -> None:
    bmc, client = started()
    members = client.get(f"{INVENTORY}?$expand=.($levels=1)")["Members"]
    assert {each["Id"] for each in members} == set(bmc.machine.firmware)
    bmc.override[f"{R}/Systems/1"] = {"Status": {"Health": "Critical"}}
    bmc.override[f"{R}/TaskService"] = None
    assert client.get(f"{R}/Systems/1")["Status"] == {
        "State": "Enabled",
        "Health": "Critical",
        "HealthRollup": "OK",
    }
    assert client.http.get(f"{R}/TaskService").status_code == 404


def test_methods_and_queries_that_are_none(started) -> None:
    _, client = started()
    assert client.http.put(f"{R}/Systems", json={}).headers["allow"] == "GET, HEAD"
    assert client.http.get(f"{R}/Systems?$top=1").status_code == 501
    assert client.http.get(f"{R}/Nowhere").status_code == 404
    assert client.http.head(f"{R}/Systems").content == b""


def test_tls_and_a_handshake_that_breaks(tmp_path: Path) -> None:
    certificates = make_certificates(tmp_path)
    trust = ssl.create_default_context(cafile=str(certificates.ca))
    with BmcEmulator(certificate=certificates.here) as bmc:
        client = Client(bmc, verify=trust)
        assert client.get(f"{R}/Systems")["Members"]
        bmc.faults.add("drop-handshake", requests=1)
        with httpx.Client(verify=trust, trust_env=False) as other:
            with pytest.raises(httpx.TransportError):
                other.get(f"{bmc.url}{R}/")
            assert other.get(f"{bmc.url}{R}/").status_code == 200
        client.http.close()


def test_roles(started) -> None:
    bmc, client = started()
    bmc.accounts.add("reader", "reader-pa55word", "ReadOnly")
    bmc.username, bmc.password = "reader", "reader-pa55word"
    reader = Client(bmc)
    assert reader.get(bmc.bios.path)["Attributes"]
    answer = reader.settings(bmc, {"CStates": "Disabled"})
    assert (answer.status_code, _ids(answer)) == (403, ["InsufficientPrivilege"])
    assert client.settings(bmc, {"CStates": "Disabled"}).status_code == 200


def test_as_a_process(tmp_path: Path) -> None:
    script = Path(bmc_emulator.__file__).with_name("serve.py")
    state = tmp_path / "state.json"
    state.write_text(json.dumps({"bios": {"AssetTag": "rack 3"}, "firmware": {"BMC": "9.9"}}))
    command = [sys.executable, str(script), "--state", str(state), "--speed", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            told = json.loads(process.stdout.readline())
            url, side = told["url"], told["control"]
            pair = (told["username"], bmc_emulator.PASSWORD)
            with httpx.Client(base_url=url, auth=pair, trust_env=False) as http:
                sent = {"Attributes": {"CStates": "Disabled"}}
                assert http.patch(f"{R}/Systems/1/Bios/Settings", json=sent).status_code == 200
                assert json.loads(state.read_text())["pending"] == {"CStates": "Disabled"}
                httpx.post(f"{side}/host-reset", json={}, trust_env=False)
                httpx.post(f"{side}/settle", json={}, trust_env=False)
                bios = http.get(f"{R}/Systems/1/Bios").json()["Attributes"]
                assert (bios["CStates"], bios["AssetTag"]) == ("Disabled", "rack 3")
                httpx.post(f"{side}/faults", json={"kind": "busy", "requests": 1}, trust_env=False)
                assert http.get(f"{R}/Systems").status_code == 503
            seen = httpx.get(f"{side}/requests", trust_env=False).json()
            assert [each["status"] for each in seen] == [200, 200, 503]
            assert httpx.post(f"{side}/faults", json={"kind": "odd"}, trust_env=False).status_code == 400
        finally:
            process.terminate()
        assert process.wait(10) == 0


@pytest.mark.parametrize("vendor", ["generic", "dell", "supermicro", "hpe"])
def test_the_agents_checks_pass(started, vendor: str, tmp_path: Path) -> None:
    bmc, _ = started(vendor)
    login = tmp_path / "login"
    login.write_text(f"username: {bmc.username}\npassword: {bmc.password}\n")
    login.chmod(0o600)
    name, value = next(
        (name, value) for name, value in bmc.machine.bios.items() if isinstance(value, str) and value
    )
    asked = {
        "redfish": {"url": bmc.url, "credentials_file": str(login)},
        "bios_version": bmc.machine.bios_version,
        "bios": {name: value},
        "firmware": {"HGX_FW_GPU_*": "96.00.89", "BMC": "01.02"},
        "power_max_w": 12000,
        "cooling": {
            "inlet_max_c": 30,
            "flow_min_l_per_min": 8,
            "air_inlet_max_c": 27,
            "leak_detection": True,
        },
    }
    profile = h200_profile().model_copy(update={"bmc": BmcProfile.model_validate(asked)})
    node = h200_node()
    client = RedfishClient()
    node.sources = replace(node.sources, bmc=client)
    checks = [check for id_, check in load_all().items() if id_.startswith("bmc.")]
    found = {check.id: finding for check in checks for finding in run_twice(check, node, profile).values()}
    client.close()
    assert {
        id_: finding.summary for id_, finding in found.items() if finding.verdict is not Verdict.PASS
    } == {}
    assert bmc.record.writes() == []
