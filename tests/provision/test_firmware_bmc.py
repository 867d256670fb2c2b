"""Firmware through the BMC: order, tasks, activation, reruns, and every way in which it may go wrong.

None of it needs root; what waits through restarts is marked so because it takes seconds.
"""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from firmware_kit import GPUS, NEW, SWITCHES, Site, site

from agent.provision import firmware_push, firmware_run


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Site]:
    with site(tmp_path) as found:
        found.image("bmc", "BMC", activation="bmc_reset", kind="bmc")
        found.image(
            "hgx",
            GPUS,
            SWITCHES,
            activation="ac_power_cycle",
            kind="hgx",
            targets=["/redfish/v1/Chassis/HGX_Chassis_0"],
        )
        found.image("ssd", "SSD_*", activation="reset", kind="ssd")
        yield found
    assert found.bmc.record.leaks == []


def one_line(text: str) -> str:
    assert text and "\n" not in text and "Traceback" not in text
    return text


def test_all_is_written_in_a_safe_order_activated_and_read_again(here: Site) -> None:
    found = here.run(allow_reset=True)
    assert found.problems == []
    assert found.changed and found.activated and found.pending == []
    assert [here.running(id_) for id_ in ("BMC", "HGX_FW_GPU_SXM_1", "HGX_FW_NVSwitch_3", "SSD_1")] == [
        NEW["BMC"], NEW[GPUS], NEW[SWITCHES], NEW["SSD_*"],
    ]  # fmt: skip
    acts = [name for name in here.writes() if name != "ComputerSystem.Reset"]
    assert acts[0] == acts[2] == acts[4]  # three uploads, each after the activation of the one before
    assert acts[1::2] == ["Manager.Reset", "NvidiaChassis.AuxPowerReset"]
    assert here.bmc.machine.power == "On"
    told = "\n".join(here.told)
    assert "hgx: sending hgx.bin" in told and "hgx: Completed 100 %" in told
    fields = {each["field"] for each in found.drift}
    assert "bmc.images.hgx.versions.HGX_FW_GPU_SXM_*" in fields
    assert "BMC: 01.02.05\n" in found.result()["diff"]["before"]
    assert "BMC: 01.03.00\n" in found.result()["diff"]["after"]

    here.bmc.record.clear()
    again = here.run(allow_reset=True)
    assert (again.changed, again.drift, again.problems, here.writes()) == (False, [], [], [])


@pytest.mark.root
def test_without_leave_to_reset_it_waits_and_a_rerun_writes_nothing(here: Site) -> None:
    first = here.run()
    assert first.changed and first.pending == ["bmc (bmc_reset)"] and first.reboot_required
    assert "held back: hgx, ssd" in one_line(first.result()["msg"])
    here.bmc.record.clear()
    for check in (False, True):
        again = here.run(check=check)
        assert (again.changed, again.pending, again.problems) == (False, ["bmc (bmc_reset)"], [])
    assert here.writes() == []
    done = here.run(allow_reset=True)
    assert done.problems == [] and done.changed
    assert here.bmc.machine.firmware["BMC"].written == 1


def test_check_mode_tells_versions_and_writes_nothing(here: Site) -> None:
    found = here.run(check=True)
    assert found.changed and len(found.drift) == 1 + 2 + 4 + 2
    assert here.writes() == []


@pytest.mark.root
def test_images_of_one_place_share_one_activation(tmp_path: Path) -> None:
    with site(tmp_path) as here:
        here.image("bios", "BIOS", activation="reset", kind="bios")
        here.image("hgx", GPUS, activation="ac_power_cycle", kind="hgx")
        found = here.run(allow_reset=True)
        assert found.problems == []
        assert here.bmc.machine.resets.count("ACCycle") == 1
        assert here.running("BIOS") == NEW["BIOS"] and here.running("HGX_FW_GPU_SXM_2") == NEW[GPUS]
        assert "ForceRestart" not in here.bmc.machine.resets


@pytest.mark.root
@pytest.mark.parametrize("vendor", ["dell", "supermicro", "hpe", "generic"])
def test_ac_power_is_cycled_as_each_vendor_does_it(tmp_path: Path, vendor: str) -> None:
    with site(tmp_path, vendor) as here:
        here.image("hgx", GPUS, activation="ac_power_cycle", kind="hgx")
        found = here.run(allow_reset=True)
        assert found.problems == []
        assert "ACCycle" in here.bmc.machine.resets
        assert here.running("HGX_FW_GPU_SXM_1") == NEW[GPUS]


def test_a_file_with_another_hash_is_refused_before_anything_is_sent(here: Site) -> None:
    (here.folder / "ssd.bin").write_bytes(b"something else")
    line = one_line("; ".join(here.run(allow_reset=True).problems))
    assert "ssd.bin: SHA-256 is " in line and here.images["ssd"]["sha256"] in line
    assert here.writes() == []


def test_a_missing_file_is_refused_before_anything_is_sent(here: Site) -> None:
    (here.folder / "hgx.bin").unlink()
    (line,) = here.run(allow_reset=True).problems
    assert "hgx.bin: cannot be read" in one_line(line)
    assert here.writes() == []


def test_an_unknown_component_and_an_older_version_stop_everything(here: Site) -> None:
    here.image("erot", versions={"HGX_FW_ERoT_GPU_*": "1.0"}, activation="ac_power_cycle")
    here.image("old", versions={"CPLD_0": "0.21"}, activation="ac_power_cycle")
    found = here.run(allow_reset=True)
    assert len(found.problems) == 2 and not found.changed
    assert "HGX_FW_ERoT_GPU_*: no firmware in the BMC's inventory" in one_line(found.problems[0])
    assert "newer than 0.21; nothing is downgraded unless" in one_line(found.problems[1])
    assert here.writes() == []


@pytest.mark.root
def test_a_downgrade_that_is_asked_for(tmp_path: Path) -> None:
    with site(tmp_path) as here:
        here.image("bmc", versions={"BMC": "01.01.00"}, activation="bmc_reset")
        assert here.run(allow_reset=True).problems
        found = here.run(allow_reset=True, allow_downgrade=True)
        assert found.problems == [] and here.running("BMC") == "01.01.00"


def test_what_is_too_old_and_no_image_brings_is_told(here: Site) -> None:
    here.least = {"CPLD_0": "0.23", SWITCHES: "96.10.70"}
    (line,) = here.run(allow_reset=True).problems
    assert "CPLD_0 is 0.22, older than 0.23, and no image" in one_line(line)
    assert here.writes() == []


def test_a_task_that_fails_ends_it_and_says_what_is_done(here: Site) -> None:
    here.bmc.updates.plans.clear()
    here.run(allow_reset=True, check=True)
    here.images.pop("bmc")
    here.bmc.updates.fail_next(words="Failed to apply the image: flash is worn out.")
    found = here.run(allow_reset=True)
    (line,) = found.problems
    assert "flash is worn out" in one_line(line)
    assert "nothing was changed before; not done: hgx, ssd" in line
    assert len(here.writes()) == 1
    assert here.run(allow_reset=True).problems == []


@pytest.mark.root
def test_a_corrupt_image_with_the_right_hash_is_refused_by_the_bmc(here: Site) -> None:
    here.image("hgx", GPUS, activation="ac_power_cycle", kind="hgx", corrupt=True)
    (line,) = here.run(allow_reset=True).problems
    assert "hash is wrong" in one_line(line)
    assert "done: bmc written, bmc runs; not done: hgx, ssd" in line
    assert here.running("HGX_FW_GPU_SXM_1") != NEW[GPUS]


@pytest.mark.root
@pytest.mark.root
def test_a_part_that_was_exchanged_since_is_written_although_an_old_task_calls_it_written(here: Site) -> None:
    here.images = {"ssd": here.images["ssd"] | {"back_within_s": 300}}
    assert here.run(allow_reset=True).problems == []
    here.bmc.machine.firmware["SSD_0"].version = "1.2.0"
    found = here.run(allow_reset=True)
    assert found.problems == [] and here.running("SSD_0") == NEW["SSD_*"]


def test_completed_is_not_believed(here: Site) -> None:
    here.images = {"hgx": here.images["hgx"] | {"back_within_s": 300}}
    here.bmc.updates.lie_next()
    (line,) = here.run(allow_reset=True).problems
    assert "HGX_FW_GPU_SXM_1 still runs 96.00.89.00.01, not 97.10.1A.00.01" in one_line(line)


@pytest.mark.root
def test_a_task_that_never_ends_is_given_up_at_its_deadline(here: Site) -> None:
    here.images = {"hgx": here.images["hgx"] | {"update_deadline_s": 120}}
    here.bmc.updates.stall_next()
    (line,) = here.run(allow_reset=True).problems
    assert "after 120 s" in one_line(line) and "not done: hgx" in line
    assert len(here.writes()) == 1


@pytest.mark.root
def test_a_bmc_that_stays_away_after_the_power_cycle(here: Site) -> None:
    here.images = {"hgx": here.images["hgx"] | {"back_within_s": 300}}
    here.bmc.machine.times.bmc_start_s = 100_000.0
    (line,) = here.run(allow_reset=True).problems
    assert "300 s after AuxPowerCycleForce" in one_line(line)
    assert "not done: hgx" in line and "hgx written" in line


@pytest.mark.root
@pytest.mark.parametrize("fault", ["busy", "drop", "garbage"])
def test_five_bad_minutes_are_borne(here: Site, fault: str) -> None:
    here.images.pop("ssd")
    seconds = 300.0 if fault != "garbage" else 40.0
    here.bmc.faults.add(fault, "/redfish/v1/UpdateService*", method="GET", for_s=seconds)
    found = here.run(allow_reset=True)
    assert found.problems == [] and here.running("HGX_FW_GPU_SXM_1") == NEW[GPUS]


@pytest.mark.root
@pytest.mark.parametrize("fault", ["busy", "drop", "hang", "refuse"])
def test_a_bmc_that_does_not_come_back_ends_in_one_line(here: Site, fault: str) -> None:
    here.bmc.faults.add(fault)
    (line,) = here.run(allow_reset=True, request_s=0.2, patience_s=1.0).problems
    assert "no usable answer" in one_line(line)
    assert here.writes() == []


@pytest.mark.root
def test_an_upload_whose_answer_is_lost_is_not_sent_twice(here: Site) -> None:
    here.images.pop("ssd")
    here.images.pop("bmc")
    here.bmc.faults.add("drop-answer", "*", method="POST", after=1, requests=1)
    found = here.run(allow_reset=True)
    assert found.problems == [] and here.running("HGX_FW_GPU_SXM_1") == NEW[GPUS]
    assert any("may or may not have been done" in one_line(line) for line in here.told)
    assert here.writes().count("update-multipart") == 1


@pytest.mark.root
def test_an_upload_that_was_cut_off_is_sent_again_by_the_next_run(here: Site) -> None:
    here.images = {"bmc": here.images["bmc"]}
    here.bmc.faults.add("drop", "*update-multipart", method="POST", requests=1)
    (line,) = here.run(allow_reset=True).problems
    assert "may or may not have been done: run the play again" in one_line(line)
    assert here.run(allow_reset=True).problems == [] and here.running("BMC") == NEW["BMC"]


@pytest.mark.root
def test_a_run_that_comes_while_the_bmc_still_writes_waits_for_that(here: Site) -> None:
    here.images = {"hgx": here.images["hgx"] | {"update_deadline_s": 40}}
    (line,) = here.run(allow_reset=True).problems
    assert "after 40 s" in one_line(line)
    found = here.run(allow_reset=True)
    assert found.problems == [] and here.running("HGX_FW_GPU_SXM_1") == NEW[GPUS]
    assert here.writes().count("update-multipart") == 1


def test_a_file_that_changes_after_its_hash_was_proven_never_arrives(
    here: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = firmware_run.push

    def swapped(bmc: Any, service: Any, step: Any, path: Path, tell: Any) -> None:
        data = path.read_bytes()
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        sent(bmc, service, step, path, tell)

    monkeypatch.setattr(firmware_run, "push", swapped)
    (line,) = here.run(allow_reset=True).problems
    assert "bmc.bin: has changed after its SHA-256 was proven; the upload was cut off" in one_line(line)
    assert here.bmc.updates.images == []


def test_an_image_taken_without_a_task_is_never_followed_by_a_power_cycle(
    here: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.images = {"hgx": here.images["hgx"]}
    monkeypatch.setattr(firmware_push, "_task_of", lambda _reply: None)
    monkeypatch.setattr(firmware_push, "running_updates", lambda _bmc: [])
    (line,) = here.run(allow_reset=True).problems
    assert "the image was taken and no task is named" in one_line(line)
    assert here.writes() == ["update-multipart"] and here.bmc.machine.resets == []


def test_an_upload_that_a_web_page_answers_is_never_followed_by_a_power_cycle(here: Site) -> None:
    here.images = {"hgx": here.images["hgx"]}
    here.bmc.faults.add("garbage", "*update-multipart", method="POST", requests=1)
    (line,) = here.run(allow_reset=True).problems
    assert "answers with no JSON; it may or may not have been done" in one_line(line)
    assert here.bmc.machine.resets == []


@pytest.mark.root
@pytest.mark.parametrize("fault", ["forbidden", "error"])
def test_a_host_that_was_switched_off_for_nothing_is_switched_on_again(here: Site, fault: str) -> None:
    here.images = {"hgx": here.images["hgx"] | {"back_within_s": 300}}
    here.bmc.faults.add(fault, "*AuxPowerReset*", method="POST")
    (line,) = here.run(allow_reset=True).problems
    assert fault == "error" or "the host, which was off for this, was switched on again" in one_line(line)
    assert here.bmc.machine.power == "On"


@pytest.mark.root
def test_a_host_that_stays_off_is_told_to_come_on_until_it_does(here: Site) -> None:
    here.images = {"hgx": here.images["hgx"]}
    here.bmc.machine.ac_restore = "Off"
    here.bmc.faults.add("forbidden", "*ComputerSystem.Reset", method="POST", after=1, requests=2)
    assert here.run(allow_reset=True).problems == []
    assert here.bmc.machine.power == "On"


@pytest.mark.root
def test_a_host_that_was_off_is_switched_on_by_its_activation(tmp_path: Path) -> None:
    with site(tmp_path) as here:
        here.image("bios", "BIOS", activation="reset", kind="bios")
        here.bmc.machine.reset("ForceOff")
        assert here.run(allow_reset=True).problems == []
        assert (here.running("BIOS"), here.bmc.machine.power) == (NEW["BIOS"], "On")


@pytest.mark.root
def test_a_host_whose_system_hangs_is_forced_off_and_comes_back_on(here: Site) -> None:
    here.images = {"hgx": here.images["hgx"]}
    here.bmc.machine.os_hangs = True
    here.bmc.machine.ac_restore = "Off"
    assert here.run(allow_reset=True).problems == []
    assert here.bmc.machine.resets[:2] == ["GracefulShutdown", "ForceOff"]
    assert (here.running("HGX_FW_GPU_SXM_1"), here.bmc.machine.power) == (NEW[GPUS], "On")


@pytest.mark.root
def test_a_bmc_that_offers_no_ac_cycle_is_told_before_anything_is_sent(here: Site) -> None:
    here.images.pop("bmc")
    for path in ("Chassis/BMC_0", "Chassis/1"):
        here.bmc.override[f"/redfish/v1/{path}"] = {"Actions": None}
    restart = {"ResetType@Redfish.AllowableValues": ["GracefulRestart"]}
    here.bmc.override["/redfish/v1/Systems/1"] = {"Actions": {"#ComputerSystem.Reset": restart, "Oem": None}}
    (line,) = here.run(allow_reset=True).problems
    assert "offers no AC power cycle; cycle the node's power at its PDU" in one_line(line)
    assert here.writes() == []


@pytest.mark.root
@pytest.mark.parametrize("written", [False, True])
def test_a_task_that_the_bmc_forgets_is_judged_by_what_the_bmc_has(here: Site, written: bool) -> None:
    """As after a restart of the BMC in the middle of it; the next run goes on from what is there."""
    here.images = {"hgx": here.images["hgx"]}
    if written:
        here.bmc.machine.times.task_s, here.bmc.clock.speed = 0.0, 1.0
    here.bmc.faults.add("missing", "/redfish/v1/TaskService/Tasks/1", requests=1 if written else None)
    first = here.run(allow_reset=True)
    if not written:
        assert "no longer knows this task" in one_line("; ".join(first.problems))
        here.bmc.faults.clear()
        here.bmc.settle()
        first = here.run(allow_reset=True)
    assert first.problems == [] and here.bmc.machine.firmware["HGX_FW_GPU_SXM_1"].written == 1


@pytest.mark.root
def test_a_bmc_without_upload_fetches_the_image_itself(here: Site) -> None:
    here.bmc.override["/redfish/v1/UpdateService"] = {"MultipartHttpPushUri": None}
    here.images = {"bmc": here.images["bmc"]}
    (line,) = here.run(allow_reset=True).problems
    assert "takes no upload" in one_line(line) and here.writes() == []
    handler = partial(_Quiet, directory=str(here.folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        here.images["bmc"]["image_url"] = f"http://127.0.0.1:{server.server_port}/bmc.bin"
        assert here.run(allow_reset=True).problems == []
        server.shutdown()
    assert here.running("BMC") == NEW["BMC"]


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Silent."""
