"""Make written firmware run: reset the host or the BMC, or cycle the power; then wait for it to be back.

Reset types are those that the service lists. Vendors' own actions want the host off before they cycle power.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from agent.checks.redfish_tree import said
from agent.errors import AgentError
from agent.provision.firmware_inventory import document, link, members
from agent.provision.firmware_push import ImageRefused, Writes
from agent.provision.redfish_words import LoginRefused, RedfishError, Refused, Uncertain, Untrusted

_ROOT = "/redfish/v1"
_RESTARTS = ("GracefulRestart", "ForceRestart", "PowerCycle")
_BMC_RESTARTS = ("GracefulRestart", "ForceRestart")
#: Actions of vendors that cycle auxiliary power, the ResetTypes that do it, and what else they take. They
#: come before FullPowerCycle, which does not reach the GPU baseboard on some machines (Dell KB 000355295).
_AUX: tuple[tuple[str, tuple[str, ...], Mapping[str, str]], ...] = (
    ("NvidiaChassis.AuxPowerReset", ("AuxPowerCycle", "AuxPowerCycleForce"), {}),
    ("DellOemChassis.ExtendedReset", ("PowerCycle",), {"FinalPowerState": "On"}),
    ("OemSystemExtensions.Reset", ("ACCycle",), {}),
    ("HpeComputerSystemExt.SystemReset", ("AuxCycle",), {}),
)
_OFF_WITHIN_S, _POLL_S, _LOOK_S = 180.0, 5.0, 20.0
#: A host that is off this long after its power came back has to be switched on; how often it is told to.
_COMES_ON_S = 60.0
#: What one activation of a group of images must be, strongest first: each does what those after it do.
STRENGTH = ("ac_power_cycle", "reset", "bmc_reset", "none")


class Acts(Writes, Protocol):
    """What is needed of a Redfish client to reset and to wait."""

    mono_s: Callable[[], float]
    sleep: Callable[[float], None]


@dataclass(frozen=True, slots=True)
class Action:
    """One reset that the service offers."""

    target: str
    body: Mapping[str, Any]
    #: The system that must be off first, and on afterwards.
    system: str | None = None
    host_off: bool = False


def find_action(bmc: Acts, kind: str) -> Action:
    """How this BMC does it. Raises ImageRefused when it offers nothing, or RedfishError."""
    if kind == "bmc_reset":
        return _bmc_reset(bmc)
    path, system = _host(bmc)
    if kind == "reset":
        for type_ in ("On",) if system.get("PowerState") == "Off" else _RESTARTS:
            target = _offered(bmc, system, "#ComputerSystem.Reset", type_)
            if target:
                return Action(target, {"ResetType": type_}, path)
        raise ImageRefused(f"{path}: offers no restart of the host; restart it by hand and run again")
    parts = [(path, system)]
    parts += [(each, document(bmc, each)) for each in members(document(bmc, f"{_ROOT}/Chassis"))]
    for _where, part in parts:
        found = _aux(bmc, part, path)
        if found is not None:
            return found
    for name, (_where, part) in zip(
        ("#ComputerSystem.Reset", *["#Chassis.Reset"] * len(parts)), parts, strict=False
    ):
        target = _offered(bmc, part, name, "FullPowerCycle")
        if target:
            return Action(target, {"ResetType": "FullPowerCycle"}, path)
    raise ImageRefused(
        f"{bmc_name(bmc)}: offers no AC power cycle; cycle the node's power at its PDU and run again"
    )


def bmc_name(bmc: object) -> str:
    """The service as lines name it."""
    return f"BMC {getattr(bmc, 'origin', '')}".strip()


def activate(
    bmc: Acts, action: Action, within_s: float, is_done: Callable[[], str | None], tell: Callable[[str], None]
) -> None:
    """Do it and wait until `is_done` has nothing to say. Raises ImageRefused with what it says at the end."""
    try:
        if action.host_off and action.system is not None:
            _switch_off(bmc, action.system, tell)
        tell(f"activation: {action.body['ResetType']} by {action.target}")
        bmc.post(action.target, action.body)
    except Uncertain:
        tell("activation: the BMC went away while it was told; looking what comes of it")
    except AgentError as cause:
        raise ImageRefused(f"{cause}{_on_again(bmc, action, tell)}") from None
    _wait(bmc, action, bmc.mono_s(), within_s, is_done, tell)


def _on_again(bmc: Acts, action: Action, tell: Callable[[str], None]) -> str:
    """Leave no host off that was switched off for nothing: a play reaches only a host that is on."""
    if not action.host_off or action.system is None:
        return ""
    try:
        if _is_on(bmc, action.system):
            return ""
        if _switch(bmc, action.system, "On", tell):
            return "; the host, which was off for this, was switched on again"
    except RedfishError:
        pass  # what is said next is what a person has to know
    return "; the host was to be off for this: see that it is on"


def _wait(
    bmc: Acts,
    action: Action,
    start_s: float,
    within_s: float,
    is_done: Callable[[], str | None],
    tell: Callable[[str], None],
) -> None:
    waits_for: str | None = "nothing has been read yet"
    told: str | None = None
    switch_on_s = _COMES_ON_S
    while waits_for is not None:
        spent_s = bmc.mono_s() - start_s
        if spent_s >= within_s:
            raise ImageRefused(
                f"{bmc_name(bmc)}: {within_s:.0f} s after {action.body['ResetType']}: {waits_for}; look at"
                " the BMC's log, allow more time (back_within_s), or cycle the power by hand; then run again"
            )
        bmc.sleep(min(_POLL_S, within_s - spent_s))
        try:
            waits_for = is_done()
            if action.system is not None and not _is_on(bmc, action.system):
                waits_for = f"{waits_for}; the host is off" if waits_for else "the host is off"
                if spent_s >= switch_on_s:
                    switch_on_s = spent_s + _COMES_ON_S
                    _switch(bmc, action.system, "On", tell)
        except (Untrusted, LoginRefused):
            raise
        except RedfishError as cause:
            waits_for = cause.problem
        if waits_for is not None and waits_for != told:
            tell(f"activation: {spent_s:.0f} of {within_s:.0f} s: {waits_for}")
        told = waits_for


def _host(bmc: Acts) -> tuple[str, dict[str, Any]]:
    """The system that is the host: it has a Bios; a baseboard that is listed as a system has none."""
    found: list[tuple[str, dict[str, Any]]] = []
    for path in members(document(bmc, f"{_ROOT}/Systems")):
        system = document(bmc, path)
        if _action(system, "#ComputerSystem.Reset") is not None:
            found.append((path, system))
    found.sort(key=lambda each: link(each[1], "Bios") is None)
    if not found:
        raise ImageRefused(f"{bmc_name(bmc)}: shows no system that can be reset; reset it by hand")
    return found[0]


def _bmc_reset(bmc: Acts) -> Action:
    _path, system = _host(bmc)
    managed = _part(system, "Links").get("ManagedBy")
    first = (
        [each.get("@odata.id") for each in managed if isinstance(each, dict)]
        if isinstance(managed, list)
        else []
    )
    for path in [*filter(None, first), *members(document(bmc, f"{_ROOT}/Managers"))]:
        manager = document(bmc, path)
        for type_ in _BMC_RESTARTS:
            target = _offered(bmc, manager, "#Manager.Reset", type_)
            if target:
                return Action(target, {"ResetType": type_})
    raise ImageRefused(f"{bmc_name(bmc)}: offers no reset of itself; restart it by hand and run again")


def _aux(bmc: Acts, holder: Mapping[str, Any], system: str) -> Action | None:
    """A vendor's action of this resource that cycles auxiliary power."""
    offered = _oem_actions(holder)
    for name, types, more in _AUX:
        action = offered.get(name)
        if action is None:
            continue
        listed = _types(bmc, action)
        type_ = next((each for each in types if listed is None or each in listed), None)
        if type_ is not None:
            return Action(str(action["target"]), {"ResetType": type_, **more}, system, host_off=True)
    return None


def _oem_actions(holder: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Actions of vendors by name: under Actions.Oem, also by vendor, or under Oem.VENDOR.Actions."""
    groups = [_part(holder, "Actions", "Oem")]
    groups += [each for each in groups[0].values() if isinstance(each, dict)]
    groups += [_part(each, "Actions") for each in _part(holder, "Oem").values() if isinstance(each, dict)]
    return {
        name.lstrip("#"): action
        for group in groups
        for name, action in group.items()
        if isinstance(action, dict) and isinstance(action.get("target"), str)
    }


def _part(holder: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    """An object within an object; an empty one where there is none."""
    found: Any = holder
    for key in keys:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found if isinstance(found, dict) else {}


def _action(holder: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    action = _part(holder, "Actions", name)
    return action if isinstance(action.get("target"), str) else None


def _offered(bmc: Acts, holder: Mapping[str, Any], name: str, type_: str) -> str | None:
    """The action's target if it says that it takes this ResetType."""
    action = _action(holder, name)
    if action is None or type_ not in (_types(bmc, action) or ()):
        return None
    return str(action["target"])


def _types(bmc: Acts, action: Mapping[str, Any]) -> Sequence[Any] | None:
    """ResetTypes that an action takes, by itself or by its ActionInfo; None when it does not say."""
    listed = action.get("ResetType@Redfish.AllowableValues")
    info = action.get("@Redfish.ActionInfo")
    if listed is None and isinstance(info, str):
        try:
            listed = _of_info(document(bmc, info))
        except Refused:
            return None
    return listed if isinstance(listed, list) else None


def _of_info(info: Mapping[str, Any]) -> Sequence[Any] | None:
    parameters = info.get("Parameters")
    for each in parameters if isinstance(parameters, list) else ():
        if isinstance(each, dict) and each.get("Name") == "ResetType":
            values = each.get("AllowableValues")
            return values if isinstance(values, list) else None
    return None


def _is_on(bmc: Acts, system: str) -> bool:
    state = document(bmc, system, _LOOK_S).get("PowerState")
    return state is None or state == "On"


def _switch_off(bmc: Acts, system: str, tell: Callable[[str], None]) -> None:
    """First as the host likes it, then without asking it. Raises ImageRefused when it stays on."""
    for type_ in ("GracefulShutdown", "ForceOff"):
        if document(bmc, system).get("PowerState") == "Off":
            return
        end_s = bmc.mono_s() + (_OFF_WITHIN_S if _switch(bmc, system, type_, tell) else 0.0)
        while bmc.mono_s() < end_s and document(bmc, system).get("PowerState") != "Off":
            bmc.sleep(_POLL_S)
    state = said(str(document(bmc, system).get("PowerState")), 20)
    if state != "Off":
        raise ImageRefused(
            f"{system}: PowerState is {state} {_OFF_WITHIN_S:.0f} s after ForceOff; switch it off by hand"
        )


def _switch(bmc: Acts, system: str, type_: str, tell: Callable[[str], None]) -> bool:
    """Ask for it if it is offered."""
    target = _offered(bmc, document(bmc, system), "#ComputerSystem.Reset", type_)
    if target is not None:
        tell(f"activation: {type_}")
        bmc.post(target, {"ResetType": type_}, again=True)
    return target is not None
