"""The BIOS role's work against the BMC emulator over loopback: staging, resets, each failure as a line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from bmc_emulator import PASSWORD, USER, BmcEmulator, Times

from agent.bmc_profile import Bmc
from agent.provision.bios_run import Options, Outcome, run
from agent.provision.redfish_writer import RedfishWriter

#: In seconds of the BMC: few looks, and still some during POST.
TIMES = Times(post_s=20.0, off_s=5.0)
SETTINGS = "/redfish/v1/Systems/1/Bios/Settings"


@pytest.fixture
def bmc() -> Iterator[BmcEmulator]:
    with BmcEmulator("generic", speed=1, times=TIMES) as made:
        yield made


def settle(bmc: BmcEmulator, profile: dict[str, Any], *, patience_s: float = 360.0, **how: Any) -> Outcome:
    """One run; waiting advances the emulator's clock."""
    wanted = Bmc.model_validate({"redfish": {"url": bmc.url}, **profile})
    with RedfishWriter(
        bmc.url,
        USER,
        how.pop("password", PASSWORD),
        request_s=how.pop("request_s", 1.0),
        patience_s=patience_s,
        mono_s=bmc.clock.now_s,
        sleep=bmc.clock.advance,
    ) as writer:
        return run(writer, wanted, Options(**how))


def line(outcome: Outcome) -> str:
    """The one line of a failure; nothing was changed, nobody's password is in it."""
    text = "; ".join(outcome.problems)
    assert text and "\n" not in text and PASSWORD not in text
    assert not outcome.changed
    return text


WANTED = {
    "bios": {"ACSControl": "Disabled", "NumaNodesPerSocket": 2, "BootRetryCount": 5, "QuietBoot": False}
}


def test_all_is_staged_with_one_patch_and_a_rerun_changes_nothing(bmc: BmcEmulator) -> None:
    first = settle(bmc, WANTED)
    assert first.changed and first.reboot_required and not first.problems
    assert bmc.record.writes() == [("PATCH", SETTINGS)]
    assert bmc.machine.pending == {
        "ACSControl": "Disabled", "NumaNodesPerSocket": "2", "BootRetryCount": 5, "QuietBoot": False,
    }  # fmt: skip
    again = settle(bmc, WANTED)
    assert (again.changed, again.reboot_required) == (False, True)
    assert again.pending == sorted(bmc.machine.pending)
    assert len(bmc.record.writes()) == 1


def test_one_reset_applies_them_and_every_one_is_read_again(bmc: BmcEmulator) -> None:
    settle(bmc, WANTED)
    done = settle(bmc, WANTED, allow_reset=True)
    assert done.changed and done.activated and not done.reboot_required and not done.problems, done
    assert bmc.machine.resets == ["GracefulRestart"]
    assert bmc.machine.bios["NumaNodesPerSocket"] == "2"
    quiet = settle(bmc, WANTED, allow_reset=True)
    assert quiet.result() | {"diff": None} == {
        "changed": False, "diff": None, "drift": [], "pending": [], "reboot_required": False,
        "activated": False, "msg": "the BIOS is as the profile asks",
    }  # fmt: skip
    assert bmc.machine.resets == ["GracefulRestart"]


def test_check_mode_says_what_would_be_done_and_does_nothing(bmc: BmcEmulator) -> None:
    told = settle(bmc, WANTED, check=True, allow_reset=True)
    assert told.changed and not bmc.record.writes()
    assert "ACSControl: Enabled\n" in told.result()["diff"]["before"]
    assert "ACSControl: Disabled\n" in told.result()["diff"]["after"]
    assert {
        "field": "bmc.bios.ACSControl", "name": "ACSControl", "before": "Enabled", "after": "Disabled",
        "pending": False,
    } in told.drift  # fmt: skip


@pytest.mark.parametrize(
    ("bios", "words"),
    [
        ({"AcsControl": "Disabled"}, "no attribute AcsControl; near: ACSControl"),
        ({"PCIEASPM": "Disabled"}, "no attribute PCIEASPM; near: PcieAspm"),
        ({"PcieAspm": "Off"}, "PcieAspm cannot be Off; allowed: Enabled, Disabled, Auto"),
        ({"BootRetryCount": 99}, "BootRetryCount cannot be 99; allowed: 0 to 10"),
        ({"BiosReleaseDate": "x"}, "BiosReleaseDate is read-only"),
        ({"TurboPower": 90}, "TurboPower cannot be set while PowerProfile is Balanced"),
        ({"QuietBoot": "maybe"}, "QuietBoot is true or false"),
    ],
)
def test_what_the_registry_forbids_is_told_before_anything_is_written(
    bmc: BmcEmulator, bios: dict[str, Any], words: str
) -> None:
    told = line(settle(bmc, {"bios": {"ACSControl": "Disabled", **bios}}))
    assert words in told
    assert not bmc.record.writes() and not bmc.machine.pending


def test_a_dependency_is_judged_by_the_settings_as_they_are_to_be(bmc: BmcEmulator) -> None:
    done = settle(bmc, {"bios": {"TurboPower": 90, "PowerProfile": "Custom"}}, allow_reset=True)
    assert not done.problems and bmc.machine.bios["TurboPower"] == 90
    assert len([each for each in bmc.record.writes() if each[0] == "PATCH"]) == 1


def test_an_intent_without_a_map_stops_all_of_it(bmc: BmcEmulator) -> None:
    told = line(settle(bmc, {**WANTED, "bios_intent": {"nvlink_topology": "mesh"}}))
    assert "bmc.bios_intent.nvlink_topology: mesh: no map is about SIMULATED HGX H200 8-GPU BIOS 2.4" in told
    assert "under bmc.bios" in told and not bmc.record.writes()


def test_what_waits_and_nobody_asked_for_is_never_applied_silently(bmc: BmcEmulator) -> None:
    bmc.machine.pending, bmc.machine.scheduled = {"PcieAspm": "Enabled"}, True
    told = line(settle(bmc, WANTED, allow_reset=True))
    assert "PcieAspm=Enabled" in told and "bios_accept_pending=true" in told
    assert not bmc.record.writes()
    done = settle(bmc, WANTED, allow_reset=True, accept_pending=True)
    assert not done.problems and bmc.machine.bios["PcieAspm"] == "Enabled"


def test_another_value_that_waits_for_one_of_ours_is_replaced(bmc: BmcEmulator) -> None:
    bmc.machine.pending, bmc.machine.scheduled = {"ACSControl": "Enabled", "NumaNodesPerSocket": "4"}, True
    done = settle(bmc, {"bios": {"NumaNodesPerSocket": 1}})
    assert done.changed and not done.problems
    assert bmc.machine.pending.get("NumaNodesPerSocket", "1") == "1"


def test_a_value_that_the_bios_refuses_at_post_is_told(bmc: BmcEmulator) -> None:
    bmc.machine.rejects = {"ACSControl": ("Disabled",)}
    done = settle(bmc, WANTED, allow_reset=True)
    text = "; ".join(done.problems)
    assert "has not taken the settings" in text and "ACSControl" in text, done


def test_what_is_staged_in_part_is_taken_back(bmc: BmcEmulator) -> None:
    bmc.bios.partial = True
    bmc.override["/redfish/v1/Systems/1/Bios"] = {"AttributeRegistry": "none"}
    told = line(settle(bmc, {"bios": {"ACSControl": "Disabled", "PcieAspm": "Off"}}))
    assert "did not stage PcieAspm" in told and "nothing of it is left staged" in told
    assert bmc.machine.pending.get("ACSControl", "Enabled") == "Enabled"


def test_five_minutes_of_503_are_survived(bmc: BmcEmulator) -> None:
    bmc.faults.add("busy", "*", for_s=300)
    done = settle(bmc, WANTED)
    assert done.changed and not done.problems


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("busy", "HTTP 503"),
        ("drop-handshake", "connection reset by peer"),
        ("refuse", "connection refused"),
        ("hang", "no answer in"),
        ("drip", "no answer in"),
        ("garbage", "no JSON"),
        ("truncated-json", "no JSON"),
        ("redirect", "HTTP 308"),
    ],
)
def test_past_the_patience_it_is_one_line(bmc: BmcEmulator, fault: str, words: str) -> None:
    bmc.faults.add(fault)
    told = line(settle(bmc, WANTED, patience_s=100.0, request_s=0.1))
    assert words in told and "no usable answer for" in told
    assert not bmc.record.writes() and not bmc.machine.pending


@pytest.mark.parametrize("fault", ["drop", "drop-answer", "error", "busy"])
def test_a_patch_whose_answer_is_lost_is_made_sure_of(bmc: BmcEmulator, fault: str) -> None:
    bmc.faults.add(fault, SETTINGS, method="PATCH", requests=1)
    done = settle(bmc, WANTED)
    assert done.changed and not done.problems
    assert len(bmc.machine.pending) == 4


def test_a_wrong_password_is_tried_once(bmc: BmcEmulator) -> None:
    told = line(settle(bmc, WANTED, password="wrong-Pa55word"))
    assert "refuses user and password" in told
    assert bmc.record.asked("POST", "/redfish/v1/SessionService/Sessions") == 1


def test_somebody_who_writes_at_the_same_time_is_seen(bmc: BmcEmulator) -> None:
    bmc.require_if_match = True
    bmc.faults.add("stale", SETTINGS, method="PATCH", requests=1)
    assert settle(bmc, WANTED).changed
    bmc.machine.clear_pending()
    bmc.faults.add("stale", SETTINGS, method="PATCH")
    assert "HTTP 412" in line(settle(bmc, WANTED))


@pytest.mark.root
def test_a_run_that_comes_in_the_middle_of_post_does_not_reset_again(bmc: BmcEmulator) -> None:
    bmc.machine.times = Times(post_s=240.0, off_s=5.0)
    told = settle(bmc, WANTED, allow_reset=True, reset_timeout_s=90).problems
    assert "90 s after the reset, boot is at Primary" in told[0]
    done = settle(bmc, WANTED, allow_reset=True)
    assert not done.problems and bmc.machine.bios["NumaNodesPerSocket"] == "2"
    assert bmc.machine.resets == ["GracefulRestart"] and (done.changed, done.reboot_required) == (
        False,
        False,
    )


@pytest.mark.parametrize("scheduled", [False, True])
def test_what_was_staged_without_a_job_is_applied_all_the_same(scheduled: bool) -> None:
    with BmcEmulator("dell-intel", speed=1, times=TIMES) as bmc:
        bmc.machine.bios["SriovGlobalEnable"] = "Disabled"
        bmc.machine.pending, bmc.machine.scheduled = {"SriovGlobalEnable": "Enabled"}, scheduled
        done = settle(bmc, {"bios": {"SriovGlobalEnable": "Enabled"}}, allow_reset=True)
        assert not done.problems and bmc.machine.bios["SriovGlobalEnable"] == "Enabled"
        assert len(bmc.machine.resets) == 1


OFF = {"aspm": "disabled", "c_states": "disabled", "sriov": "enabled"}
BY_VENDOR: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "dell-amd": (
        {**OFF, "numa_nodes_per_socket": 2},
        {"PcieAspmL1": "Disabled", "SysProfile": "Custom", "NumaNodesPerSocket": "2"},
    ),
    "dell-intel": (
        {**OFF, "performance_profile": "max_performance"},
        {"PcieAspmL1": "Disabled", "ProcCStates": "Disabled", "SysProfile": "PerfOptimized"},
    ),
    "supermicro-amd": (
        {**OFF, "acs": "disabled", "iommu": "disabled"},
        {"ACSEnable": "Disable", "ASPMSupport": "Disabled", "GlobalC-stateControl": "Disabled"},
    ),
    "supermicro-intel": ({**OFF, "iommu": "disabled"}, {"SR_IOVSupport_0048": "Enabled"}),
    "hpe": (
        {**OFF, "numa_nodes_per_socket": 4},
        {"PciSlot3Aspm": "Disabled", "WorkloadProfile": "Custom", "MinProcIdlePower": "NoCStates"},
    ),
}


@pytest.mark.parametrize("vendor", BY_VENDOR)
def test_intents_of_each_vendor_go_all_the_way(vendor: str) -> None:
    intents, expected = BY_VENDOR[vendor]
    with BmcEmulator(vendor, speed=1, times=TIMES) as bmc:
        done = settle(bmc, {"bios_intent": intents}, allow_reset=True)
        assert not done.problems, done.problems
        assert expected.items() <= bmc.machine.bios.items()
        again = settle(bmc, {"bios_intent": intents}, allow_reset=True)
        assert not again.changed and not again.problems
        assert len(bmc.machine.resets) == 1
