"""What to do about a finding, worded once: one imperative sentence that a person can follow by hand."""

from __future__ import annotations

from agent.model import Action, ActionKind


def play(tag: str, hint: str) -> Action:
    """A setting that provisioning repairs: site.yml with `tag`, the name of a role (gpu, kernel, nic, ...).

    `hint` says what to do by hand.
    """
    return Action(ActionKind.APPLY_PLAY, hint, tag)


def person(hint: str) -> Action:
    """A person has to look; no play and no reset repairs it."""
    return Action(ActionKind.NONE, hint)


def reseat(hint: str) -> Action:
    """Hands on the hardware."""
    return Action(ActionKind.RESEAT_OR_REPLACE, hint)


REBOOT = Action(
    ActionKind.REBOOT,
    "Drain and reboot the node; if it comes back after the reboot, reseat or replace the GPU.",
)
RESET_GPU = Action(
    ActionKind.RESET_GPU,
    "Stop the engine and reset the GPU (nvidia-smi -r); reboot the node if the reset is refused.",
)
RESTART_ENGINE = Action(ActionKind.RESTART_ENGINE, "Restart the engine that used this GPU.")
SUPPORT = Action(ActionKind.CONTACT_SUPPORT, "Open a case with the vendor and attach an evidence bundle.")
COOL = person("Check coolant flow, inlet temperature and air flow of this GPU before opening the gate.")
RACK_POWER = person("Check PDU and power supply alarms of the rack: its power is cut for moments at a time.")
MODEL = person("Put the right GPU back, or correct gpus.model in the profile.")
VBIOS = person(
    "Drain the node and bring this GPU to a VBIOS of gpus.vbios, or add its version to the profile."
)
RECORD_PINS = play(
    "pins",
    "Put the right GPU back, or, if it was changed on purpose, record it by its slot:"
    " pins.yml -e accept_pins=true -e replace_pins=SLOT.",
)
