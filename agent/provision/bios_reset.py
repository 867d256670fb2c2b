"""Reset a machine by its BMC and wait until its BIOS has been through POST, with the settings taken over.

A BMC may show settings before POST ends, and may be silent meanwhile: only settings that are right on a
machine that has finished its POST are a success.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from agent.checks.redfish_tree import said
from agent.provision.bios_state import Acts, State, read_again
from agent.provision.redfish_words import NotThere, RedfishError, Uncertain

#: In this order, if the profile's play does not name one; the first asks the operating system.
RESET_TYPES = ("GracefulRestart", "ForceRestart", "PowerCycle")
#: BootProgress.LastState values at which the BIOS has done its part.
POST_ENDED = frozenset({"OSBootStarted", "OSRunning", "SystemHardwareInitializationComplete", "SetupEntered"})
POLL_S = 5.0
#: No POST takes longer; BootProgress of some BMCs stands still though.
POST_WITHIN_S = 900.0
#: After the end of POST, a BMC takes a while to show what the BIOS told it.
SHOWN_WITHIN_S = 120.0
#: A restart that the operating system has been asked for, and that has not begun by then, does not come.
BEGINS_WITHIN_S = 600.0


@dataclass(slots=True)
class _Watch:
    """Whether the reset has been seen to begin, and when POST was over."""

    before: State
    asked_s: float
    began: bool = False
    ended_s: float | None = None

    def look(self, now: State, now_s: float) -> None:
        power = now.system.get("PowerState")
        moved = (now.boot, _boot_time(now), now.applied_at) != (
            self.before.boot, _boot_time(self.before), self.before.applied_at,
        )  # fmt: skip
        self.began = self.began or moved or power != self.before.system.get("PowerState")
        ended = power in ("On", None) and (now.boot is None or now.boot in POST_ENDED)
        if not ended:
            self.ended_s = None
        elif self.ended_s is None and self.began:
            self.ended_s = now_s

    @property
    def post_over(self) -> bool:
        """Whether POST is over, as far as the BMC follows it."""
        return self.ended_s is not None or self.before.boot is None


def reset(bmc: Acts, state: State, wanted: str | None) -> str:
    """Ask for a reset; the ResetType that was asked for. Raises RedfishError."""
    actions = state.system.get("Actions")
    action = actions.get("#ComputerSystem.Reset") if isinstance(actions, Mapping) else None
    target = action.get("target") if isinstance(action, Mapping) else None
    where = f"{bmc.origin}{state.system_path}"
    if not isinstance(action, Mapping) or not isinstance(target, str):
        raise RedfishError("the system offers no reset", where=where, remedy="reset the node by hand")
    offered = action.get("ResetType@Redfish.AllowableValues")
    known = [str(each) for each in offered] if isinstance(offered, list) and offered else list(RESET_TYPES)
    kinds = (wanted,) if wanted else RESET_TYPES
    if state.system.get("PowerState") == "Off":
        kinds, known = ("On",), [*known, "On"]
    kind = next((each for each in kinds if each in known), None)
    if kind is None:
        listed = ", ".join(said(each) for each in known)
        remedy = "name one of those by bios_reset_type, or reset the node by hand"
        raise RedfishError(
            f"the system offers no {' or '.join(kinds)}, but {listed}", where=where, remedy=remedy
        )
    # When the answer is lost, whether the reset comes is seen by watching; it is asked for once only.
    with contextlib.suppress(Uncertain):
        bmc.post(target, {"ResetType": kind})
    return kind


def after_post(bmc: Acts, state: State, tell: Callable[[str], None]) -> State:
    """The state once a POST that goes on is over, as after a run that was cut off while it waited for it.

    A machine is not reset in the middle of it, unless it takes longer than any POST does.
    """
    end_s = bmc.mono_s() + POST_WITHIN_S
    tell(f"{bmc.origin}: the machine is in POST ({said(str(state.boot))}); waiting for its end")
    while bmc.mono_s() < end_s:
        bmc.sleep(POLL_S)
        now = _look(bmc, state, end_s)
        if now is not None and not now.in_post:
            bmc.sleep(POLL_S)  # what the BIOS told the BMC at the end of POST is shown a moment later
            return read_again(bmc, state.system_path)
    tell(f"{bmc.origin}: still in POST after {POST_WITHIN_S:.0f} s; going on")
    return read_again(bmc, state.system_path)


def wait_for_settings(
    bmc: Acts, before: State, right: Callable[[State], bool], timeout_s: float, tell: Callable[[str], None]
) -> State:
    """The state after POST, with the settings right. Raises RedfishError if they do not get so."""
    watch, told = _Watch(before, bmc.mono_s()), ""
    end_s = watch.asked_s + timeout_s
    while True:
        bmc.sleep(POLL_S)
        now = _look(bmc, before, end_s)
        now_s = bmc.mono_s()
        if now is not None:
            watch.look(now, now_s)
            if right(now) and watch.post_over:
                return now
            if now.boot is not None and now.boot != told:
                told = now.boot
                tell(f"{bmc.origin}: boot: {said(told)}")
        _give_up(bmc, watch, now, now_s, timeout_s)


def _give_up(bmc: Acts, watch: _Watch, now: State | None, now_s: float, timeout_s: float) -> None:
    where = f"{bmc.origin}{watch.before.system_path}"
    if now is not None and watch.ended_s is not None and now_s - watch.ended_s >= SHOWN_WITHIN_S:
        return_to = "see the BMC's log, correct the profile or set it by hand"
        words = "; ".join(now.rejects())
        told = f": {words}" if words else ""
        raise RedfishError(
            f"POST is over and the BIOS has not taken the settings{told}", where=where, remedy=return_to
        )
    if not watch.began and watch.before.boot is not None and now_s - watch.asked_s >= BEGINS_WITHIN_S:
        remedy = (
            "the operating system did not restart: reboot it, or run again with bios_reset_type=ForceRestart"
        )
        raise RedfishError(f"no reset in {BEGINS_WITHIN_S:.0f} s", where=where, remedy=remedy)
    if now_s - watch.asked_s >= timeout_s:
        words = "; ".join(now.rejects()) if now is not None else ""
        at = f", boot is at {said(now.boot)}" if now is not None and now.boot else ""
        at += ", the host is off" if now is not None and now.system.get("PowerState") == "Off" else ""
        told = f": {words}" if words else ""
        raise RedfishError(
            f"the settings are not there {timeout_s:.0f} s after the reset{at}{told}",
            where=where,
            remedy="look at the node's console, then run the play again, which reads first",
        )


def _look(bmc: Acts, before: State, end_s: float) -> State | None:
    """What there is now; None while the BMC shows no BIOS, as some do during POST."""
    try:
        now = read_again(bmc, before.system_path, patience_s=max(end_s - bmc.mono_s(), POLL_S))
    except NotThere:
        return None
    return now if now.current else None


def _boot_time(state: State) -> Any:
    progress = state.system.get("BootProgress")
    last = progress.get("LastBootTimeSeconds") if isinstance(progress, Mapping) else None
    return (last, state.system.get("LastResetTime"))
