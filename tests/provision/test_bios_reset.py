"""What becomes of a reset: asked for once, waited for until POST is over, one line when it does not come."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from bmc_emulator import PASSWORD, USER, BmcEmulator, Times

from agent.bmc_profile import Bmc
from agent.provision import bios_reset
from agent.provision.bios_run import Options, Outcome, run
from agent.provision.redfish_writer import RedfishWriter

TIMES = Times(post_s=20.0, off_s=5.0)
RESET = "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset"


@pytest.fixture
def bmc() -> Iterator[BmcEmulator]:
    with BmcEmulator("generic", speed=1, times=TIMES) as made:
        yield made


def settle(bmc: BmcEmulator, **how: Any) -> Outcome:
    wanted = Bmc.model_validate({"redfish": {"url": bmc.url}, "bios": {"ACSControl": "Disabled"}})
    with RedfishWriter(
        bmc.url, USER, PASSWORD, request_s=1.0, mono_s=bmc.clock.now_s,
        sleep=bmc.clock.advance,
    ) as writer:  # fmt: skip
        return run(writer, wanted, Options(allow_reset=True, **how))


def resets(bmc: BmcEmulator) -> int:
    return bmc.record.asked("POST", RESET)


def test_settings_that_show_before_post_is_over_are_not_believed_yet(bmc: BmcEmulator) -> None:
    assert not settle(bmc).problems
    assert bmc.machine.boot_phase in ("SystemHardwareInitializationComplete", "OSBootStarted", "OSRunning")


def test_a_bmc_that_does_not_follow_the_boot(bmc: BmcEmulator) -> None:
    bmc.machine.boot_progress = False
    done = settle(bmc)
    assert done.activated and not done.problems and bmc.machine.bios["ACSControl"] == "Disabled"


def test_a_machine_that_is_off_is_switched_on(bmc: BmcEmulator) -> None:
    bmc.machine.power = "Off"
    assert not settle(bmc).problems
    assert bmc.machine.resets == ["On"]


def test_a_reset_whose_answer_is_lost_is_asked_for_once(bmc: BmcEmulator) -> None:
    bmc.faults.add("drop-answer", RESET, requests=1)
    done = settle(bmc)
    assert not done.problems and resets(bmc) == 1


def test_a_bmc_that_is_silent_during_post_is_waited_for(bmc: BmcEmulator) -> None:
    fault = bmc.faults.add("busy", "*/Systems/1*", method="GET", after=9, for_s=400)
    done = settle(bmc)
    assert (
        fault.hits and resets(bmc) == 1 and not done.problems and bmc.machine.bios["ACSControl"] == "Disabled"
    )


def test_an_operating_system_that_does_not_restart(bmc: BmcEmulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bmc.machine, "reset", lambda _kind: None)
    monkeypatch.setattr(bios_reset, "POLL_S", 60.0)
    done = settle(bmc)
    (line,) = done.problems
    assert "no reset in 600 s" in line and "bios_reset_type=ForceRestart" in line
    assert done.reboot_required and resets(bmc) == 1


def test_a_reset_type_that_there_is_not(bmc: BmcEmulator) -> None:
    (line,) = settle(bmc, reset_type="WarmBoot").problems
    assert "offers no WarmBoot, but On, ForceOff" in line
    assert not bmc.machine.resets


def test_past_the_deadline_it_says_where_the_boot_is(bmc: BmcEmulator) -> None:
    bmc.machine.times.post_s = 100_000.0
    (line,) = settle(bmc, reset_timeout_s=200).problems
    assert "not there 200 s after the reset, boot is at PrimaryProcessorInitializationStarted" in line
