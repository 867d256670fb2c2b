"""What each role wants for a profile, as plain data: the roles' own code on nodes in memory. SIMULATED."""

from __future__ import annotations

import copy
import json
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from apply_host import ApplyHost, said
from fake_nic_host import NicHost
from nodegate_apply.engine import wanted_engines
from nodegate_apply.gpu import wanted_gpu
from nodegate_apply.kernel import wanted_kernel
from nodegate_apply.nic import wanted_nic
from nodegate_apply.nic_firmware import Card, Image, Query, firmware_settings
from nodegate_apply.setting import Setting
from nodegate_apply.topology import wanted_topology

from agent.bios.intent_map import load_maps
from agent.bios.resolve import Machine, resolve
from agent.node_profile import NodeProfile
from agent.provision.firmware_plan import Inventory, plan

Wants = Callable[[dict[str, Any], Path], Any]
#: One machine for each map of intents that is shipped, with every attribute that the map knows.
MACHINES = (
    Machine("Dell Inc.", "PowerEdge XE9685L", "2.4"),
    Machine("Dell Inc.", "PowerEdge XE9680", "2.4"),
    Machine("Supermicro", "AS -8125GS-TNHR", "3.1"),
    Machine("HPE", "ProLiant DL380 Gen11", "U54"),
    Machine("Lenovo", "ThinkSystem SR685a V3", "1.0"),
)
PSID, BURNED = "MT_0000000838", "28.39.1002"
RUNNING = {"HGX_FW_NVSwitch_0": "96.10.6D.00.01", "BMC": "01.02", "BIOS": "2.4"}


def shown(settings: list[Setting]) -> list[tuple[str, ...]]:
    """What settings want."""
    return [(one.name, one.field, one.want) for one in settings]


def of_kernel(profile: dict[str, Any], folder: Path) -> Any:
    """Role kernel."""
    host = ApplyHost(folder)
    host.put("/proc/cpuinfo", "vendor_id\t: AuthenticAMD\n")
    host.put("/proc/cmdline", "ro quiet\n")
    host.put("/proc/self/mounts", "/dev/sda1 / ext4 rw 0 0\n")
    host.put("/etc/default/grub", 'GRUB_CMDLINE_LINUX=""\n')
    return shown(wanted_kernel(profile, host))


def of_gpu(profile: dict[str, Any], folder: Path) -> Any:
    """Role gpu."""
    host = ApplyHost(folder)
    host.programs["nvidia-smi"] = lambda argv: said("")
    return shown(wanted_gpu(profile, host))


def of_nic(profile: dict[str, Any], folder: Path) -> Any:
    """Role nic, with the first two ports."""
    fabric = copy.deepcopy(profile["fabric"])
    fabric["ports"] = fabric["ports"][:2]
    return shown(wanted_nic(NicHost(folder), fabric))


def of_bios(profile: dict[str, Any], _folder: Path) -> Any:
    """Role bios: the attributes on a machine of each kind that there is a map for."""
    bmc = NodeProfile.model_validate(profile).bmc
    found = []
    for machine in MACHINES:
        resolved = resolve(bmc, machine, _names(machine, tuple(bmc.bios)))
        refused = [
            fault.where for fault in resolved.faults
        ]  # with a fault the role sets nothing and says why
        found.append([*((want.name, want.values) for want in resolved.wants), *refused])
    return found


@cache
def _names(machine: Machine, explicit: tuple[str, ...]) -> frozenset[str]:
    """Names that every intent of the machine's maps can find."""
    words = {
        pattern
        for one in load_maps()
        if one.fits(machine.manufacturer, machine.model, machine.version)
        for values in one.intents.values()
        for setting in values.values()
        for pattern in (*setting.set, *setting.requires)
    }
    return frozenset({word.split("|")[0].replace("*", "X1") for word in words} | set(explicit))


def of_firmware(profile: dict[str, Any], folder: Path) -> Any:
    """Role firmware: the plan for a BMC, and the settings of one NIC."""
    bmc = NodeProfile.model_validate(profile).bmc
    made = plan(bmc.images, Inventory(RUNNING), least=bmc.firmware)
    asked = profile["fabric"]["nic"]["images"]
    keys = ("board_id", "version", "match", "sha256")
    images = [Image(*(each[key] for key in keys), path=each["image"]) for each in asked]
    card = Card("0000:06:00.0", ["mlx5_0"], Query(PSID, BURNED))
    settings = firmware_settings(NicHost(folder), None, [card], images)  # type: ignore[arg-type]
    newer = [one.is_so("99.0.0") for one in settings]
    return [repr(made), shown(settings), newer, [repr(image) for image in images]]


def of_engine(profile: dict[str, Any], folder: Path) -> Any:
    """Role engine."""
    release = folder / "release"
    units = release / "lib/python3.11/site-packages/agent/units"
    units.mkdir(parents=True)
    (units / "podman.conf").write_text("[Service]\n")
    return shown(wanted_engines(ApplyHost(folder / "node"), profile, {}, str(release)))


def of_nccl_topology(profile: dict[str, Any], folder: Path) -> Any:
    """Role nccl_topology."""

    class File:
        def text(self) -> str:
            return "<system/>\n"

    return shown(wanted_topology(ApplyHost(folder), profile["topology"]["nccl_file"], "", File()))  # type: ignore[arg-type]


ROLES: dict[str, Wants] = {
    "bios": of_bios,
    "engine": of_engine,
    "firmware": of_firmware,
    "gpu": of_gpu,
    "kernel": of_kernel,
    "nccl_topology": of_nccl_topology,
    "nic": of_nic,
}


def wants(role: str, profile: NodeProfile) -> str:
    """What the role wants for this profile, as text."""
    with tempfile.TemporaryDirectory(prefix="nodegate-wants-") as folder:
        return json.dumps(ROLES[role](profile.model_dump(mode="json"), Path(folder)), default=str)
