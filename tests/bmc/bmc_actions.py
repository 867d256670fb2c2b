"""POST to a BMC other than login: resets, AC power cycle, updates, BIOS defaults."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bmc_chassis import R
from bmc_reply import (
    Refusal,
    Reply,
    Request,
    bad_parameter,
    body_of,
    message,
    missing_parameter,
    not_allowed,
    not_there,
)
from bmc_tree import MANAGER_RESETS, MULTIPART, PUSH, SIMPLE, ac_cycle_target, reset_types, system_path

if TYPE_CHECKING:
    from bmc_service import Bmc


def act(bmc: Bmc, path: str, request: Request) -> Reply:
    """Carry out a POST. Raises Refusal."""
    if path == MULTIPART:
        return bmc.updates.multipart(request)
    if path == PUSH and bmc.updates.http_push:
        return bmc.updates.push(request)
    if path == SIMPLE:
        return bmc.updates.simple(body_of(request))
    if path == f"{bmc.bios.path}/Actions/Bios.ResetBios":
        return bmc.bios.reset_to_defaults()
    if (
        path == f"{bmc.bios.settings_path}/Actions/Oem/DellManager.ClearPending"
        and bmc.vendor.needs_apply_time
    ):
        if bmc.machine.scheduled:
            raise Refusal(400, message("SYS011", "Pending values are committed.", registry="IDRAC.2.14"))
        bmc.machine.clear_pending()
        return Reply(204)
    return _reset(bmc, path, request)


def _reset(bmc: Bmc, path: str, request: Request) -> Reply:
    if path == f"{system_path(bmc)}/Actions/ComputerSystem.Reset":
        kind = _kind(body_of(request), tuple(reset_types(bmc)), "ComputerSystem.Reset")
        return _host(bmc, kind)
    if path == f"{R}/Chassis/{bmc.vendor.chassis}/Actions/Chassis.Reset":
        return _host(bmc, _kind(body_of(request), tuple(reset_types(bmc)), "Chassis.Reset"))
    if path == f"{R}/Managers/{bmc.vendor.manager}/Actions/Manager.Reset":
        _kind(body_of(request), MANAGER_RESETS, "Manager.Reset")
        bmc.machine.restart_bmc()
        return Reply(204)
    if path == ac_cycle_target(bmc):
        sent = body_of(request)
        _kind(sent, (bmc.vendor.ac_cycle[2],), bmc.vendor.ac_cycle[1].rpartition("/")[2])
        if bmc.vendor.ac_needs_off and bmc.machine.power == "On":
            words = "The operation was not successful due to the current power state."
            raise Refusal(400, message("InvalidOperationForSystemState", words, registry="iLO.2.19"))
        final = sent.get("FinalPowerState") if bmc.vendor.needs_apply_time else None
        bmc.machine.cycle_ac(str(final) if final in ("On", "Off") else None)
        return Reply(204)
    if "/Actions/" in path:
        raise not_there(path)
    bmc.document(path)
    raise not_allowed("POST", ("GET", "HEAD"))


def _host(bmc: Bmc, kind: str) -> Reply:
    if kind == "On" and bmc.machine.power == "On" and bmc.vendor.on_when_on >= 400:
        words = "Server is already powered ON."
        raise Refusal(bmc.vendor.on_when_on, message("PSU501", words, registry="IDRAC.2.14"))
    bmc.machine.reset(kind)
    return Reply(204)


def _kind(sent: dict[str, object], allowed: tuple[str, ...], action: str) -> str:
    kind = sent.get("ResetType")
    if kind is None:
        raise missing_parameter("ResetType", action)
    if kind not in allowed:
        raise bad_parameter("ResetType", kind, action)
    return str(kind)
