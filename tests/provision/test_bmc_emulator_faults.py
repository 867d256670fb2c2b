"""The simulated BMC itself: faults, its record, roles, TLS, as a process, and the agent's checks of it."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

import bmc_emulator
import httpx
import pytest
from bmc_certificates import bmc_certificates
from bmc_client import INVENTORY, PLAIN, Client, R, Start, frozen_bmcs, message_ids, retried
from bmc_emulator import BmcEmulator
from check_cases import run_twice
from fake_h200 import h200_node, h200_profile
from redfish_server import make_certificates

from agent.bmc_profile import Bmc as BmcProfile
from agent.checks.registry import load_all
from agent.model import Verdict
from agent.sources.redfish import RedfishClient


@pytest.fixture
def started() -> Iterator[Start]:
    with frozen_bmcs() as start:
        yield start


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
    assert retried(lambda: Client(bmc)).get(f"{R}/Systems")["Members"]


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


def test_an_answer_may_hang_or_drip(started) -> None:
    bmc, client = started()
    client.http.timeout = httpx.Timeout(0.15)
    for kind in ("hang", "drip"):
        bmc.faults.add(kind, requests=1)
        with pytest.raises(httpx.ReadTimeout), client.http.stream("GET", f"{R}/Systems") as answer:
            assert kind == "drip" and answer.status_code == 200
            pieces = answer.iter_raw()
            assert len(next(pieces)) < 20
            raise httpx.ReadTimeout("slow enough")
    assert client.http.get(f"{R}/Systems").status_code == 200


def test_eight_of_them_over_tls_leave_no_thread(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    addresses = [f"127.0.0.{each}" for each in range(11, 19)]
    ca, certificate = bmc_certificates(tmp_path, addresses)
    trust = ssl.create_default_context(cafile=str(ca))
    with ExitStack() as stack:
        bmcs = [
            stack.enter_context(BmcEmulator("dell", certificate=certificate, address=each, name=f"h{each}"))
            for each in addresses
        ]
        clients = [Client(bmc, verify=trust) for bmc in bmcs]
        assert len({client.get(f"{R}/Systems/System.Embedded.1")["UUID"] for client in clients}) == 8
    for client in clients:
        client.http.close()
    for thread in set(threading.enumerate()) - before:
        thread.join(5)
        assert not thread.is_alive(), thread


def test_roles(started) -> None:
    bmc, client = started()
    bmc.accounts.add("reader", "reader-pa55word", "ReadOnly")
    bmc.username, bmc.password = "reader", "reader-pa55word"
    reader = Client(bmc)
    assert reader.get(bmc.bios.path)["Attributes"]
    answer = reader.settings(bmc, {"CStates": "Disabled"})
    assert (answer.status_code, message_ids(answer)) == (403, ["InsufficientPrivilege"])
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
            with httpx.Client(base_url=url, auth=pair, **PLAIN) as http:
                sent = {"Attributes": {"CStates": "Disabled"}}
                assert http.patch(f"{R}/Systems/1/Bios/Settings", json=sent).status_code == 200
                assert json.loads(state.read_text())["pending"] == {"CStates": "Disabled"}
                httpx.post(f"{side}/host-reset", json={}, **PLAIN)
                httpx.post(f"{side}/settle", json={}, **PLAIN)
                bios = http.get(f"{R}/Systems/1/Bios").json()["Attributes"]
                assert (bios["CStates"], bios["AssetTag"]) == ("Disabled", "rack 3")
                httpx.post(f"{side}/faults", json={"kind": "busy", "requests": 1}, **PLAIN)
                assert http.get(f"{R}/Systems").status_code == 503
            seen = httpx.get(f"{side}/requests", **PLAIN).json()
            assert [each["status"] for each in seen] == [200, 200, 503]
            assert httpx.post(f"{side}/faults", json={"kind": "odd"}, **PLAIN).status_code == 400
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
