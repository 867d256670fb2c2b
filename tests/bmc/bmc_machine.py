"""The machine behind a BMC: power, boot, BIOS settings current and pending, firmware. State and its rules.

Nothing runs by itself: tick() brings the state to the clock's time, and is called before every request.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from bmc_attributes import Value
from bmc_clock import BmcClock
from bmc_reply import Document, message
from bmc_vendors import Vendor

#: Boot phases (ComputerSystem.BootProgress.LastState) and the share of POST after which each begins.
PHASES = (
    (0.0, "PrimaryProcessorInitializationStarted"),
    (0.2, "MemoryInitializationStarted"),
    (0.5, "PCIResourceConfigStarted"),
    (0.8, "SystemHardwareInitializationComplete"),
    (0.9, "OSBootStarted"),
    (1.0, "OSRunning"),
)
#: Share of POST at which the BIOS has taken over its settings.
SETTINGS_TAKEN = 0.5


@dataclass
class Times:
    """How long things take, in BMC seconds; the defaults are those of a large server."""

    post_s: float = 240.0
    off_s: float = 15.0
    #: Until an operating system that was asked nicely is down; the machine still looks as before meanwhile.
    shutdown_s: float = 45.0
    bmc_start_s: float = 180.0
    task_s: float = 600.0


@dataclass
class Firmware:
    """One item of the inventory. `activation`: reset, ac or bmc = what makes a new image the running one."""

    version: str
    activation: str
    updateable: bool = True
    staged: str | None = None
    image_sha256: str | None = None
    written: int = 0


def default_firmware(gpus: int = 8, switches: int = 4, nics: int = 8, disks: int = 2) -> dict[str, Firmware]:
    """The inventory of an HGX machine."""
    found = {
        "BMC": Firmware("01.02.05", "bmc"),
        "BIOS": Firmware("2.4", "reset"),
        "CPLD_0": Firmware("0.22", "ac", updateable=False),
        "HGX_FW_BMC_0": Firmware("HGX-22.10-1-rc44", "ac"),
        "HGX_FW_ERoT_BMC_0": Firmware("00.02.0182.0000_n04", "ac"),
        "HGX_FW_FPGA_0": Firmware("2.53", "ac"),
    }
    found |= {f"HGX_FW_GPU_SXM_{each}": Firmware("96.00.89.00.01", "ac") for each in range(1, gpus + 1)}
    found |= {f"HGX_FW_NVSwitch_{each}": Firmware("96.10.6D.00.01", "ac") for each in range(switches)}
    found |= {f"CX7_{each}": Firmware("28.39.1002", "ac") for each in range(nics)}
    found |= {f"SSD_{each}": Firmware("1.2.0", "reset") for each in range(disks)}
    return found


@dataclass
class Machine:
    """State of one machine. `on_reset` is told (kind) outside of every lock, e.g. to reboot a test host."""

    vendor: Vendor
    clock: BmcClock
    times: Times = field(default_factory=Times)
    power: str = "On"
    bios: dict[str, Value] = field(default_factory=dict)
    pending: dict[str, Value] = field(default_factory=dict)
    #: Whether what waits is to be applied at the next reset (a job exists, where the vendor needs one).
    scheduled: bool = False
    firmware: dict[str, Firmware] = field(default_factory=default_firmware)
    #: Values that the BMC takes and the BIOS refuses at POST: attribute -> values ("*" = any).
    rejects: dict[str, tuple[str, ...]] = field(default_factory=dict)
    #: Components whose new image never becomes the running one, whatever is done (patterns).
    never_activates: list[str] = field(default_factory=list)
    boot_progress: bool = True
    #: An operating system that does not follow GracefulShutdown and GracefulRestart.
    os_hangs: bool = False
    #: What the machine does when mains are back: On, Off or Last.
    ac_restore: str = "Last"
    boot_began_s: float | None = None
    off_until_s: float | None = None
    #: A graceful reset that the operating system works on: when it is done, and what it is.
    shutting_down: tuple[float, str] | None = None
    bmc_down_until_s: float | None = None
    settings_messages: list[Document] = field(default_factory=list)
    settings_time_s: float | None = None
    resets: list[str] = field(default_factory=list)
    on_applied: Callable[[bool], None] = lambda _well: None

    def __post_init__(self) -> None:
        if not self.bios:
            self.bios = {name: each.default for name, each in self.vendor.attributes.items()}
            for name in ("SystemModelName", "SystemBiosVersion"):
                if name in self.bios:
                    self.bios[name] = (
                        self.vendor.model if name == "SystemModelName" else self.vendor.bios_version
                    )
        self.firmware["BIOS"].version = self.vendor.bios_version
        self._taken = True

    @property
    def bios_version(self) -> str:
        return self.firmware["BIOS"].version

    @property
    def in_post(self) -> bool:
        return self.power == "On" and self.boot_began_s is not None

    @property
    def bmc_down(self) -> bool:
        return self.bmc_down_until_s is not None and self.clock.now_s() < self.bmc_down_until_s

    @property
    def boot_phase(self) -> str:
        """BootProgress.LastState."""
        if self.power != "On":
            return "None"
        if self.boot_began_s is None:
            return "OSRunning"
        share = (self.clock.now_s() - self.boot_began_s) / max(self.times.post_s, 1e-9)
        return [name for begins, name in PHASES if share >= begins][-1] if share >= 0 else "None"

    def tick(self) -> None:
        """Bring everything to the time of now."""
        now_s = self.clock.now_s()
        if self.bmc_down_until_s is not None and now_s >= self.bmc_down_until_s:
            self.bmc_down_until_s = None
        if self.shutting_down is not None and now_s >= self.shutting_down[0]:
            kind = {"GracefulShutdown": "ForceOff"}.get(self.shutting_down[1], "ForceRestart")
            self.shutting_down = None
            self._reset(kind)
        if self.off_until_s is not None and now_s >= self.off_until_s:
            self.power, self.boot_began_s, self._taken = "On", self.off_until_s, False
            self.off_until_s = None
        if self.boot_began_s is not None:
            ran_s = now_s - self.boot_began_s
            if not self._taken and ran_s >= self.times.post_s * SETTINGS_TAKEN:
                self._taken = True
                self._take_settings()
            if ran_s >= self.times.post_s:
                self.boot_began_s = None

    def reset(self, kind: str) -> None:
        """What an operator or the operating system does to the host. `kind` is a ResetType."""
        self.resets.append(kind)
        if kind in ("GracefulShutdown", "GracefulRestart") and self.power == "On":
            if not self.os_hangs:
                self.shutting_down = (self.clock.now_s() + self.times.shutdown_s, kind)
            return
        self._reset(kind)

    def _reset(self, kind: str) -> None:
        """At once, without asking the operating system."""
        now_s = self.clock.now_s()
        self.shutting_down = None
        if kind in ("ForceOff", "GracefulShutdown") or (kind == "PushPowerButton" and self.power == "On"):
            self.power, self.boot_began_s, self.off_until_s = "Off", None, None
        elif kind in ("On", "ForceOn", "PushPowerButton"):
            if self.power != "On":
                self._activate("reset")
                self.power, self.boot_began_s, self._taken = "On", now_s, False
        elif kind != "Nmi":
            self._activate("reset")
            if kind == "FullPowerCycle":
                self._activate("ac", all_of_it=self.vendor.full_power_cycle_reaches_baseboard)
            self.power, self.boot_began_s = "Off", None
            self.off_until_s = now_s + (0 if "Restart" in kind else self.times.off_s)
            self.tick()

    def restart_bmc(self) -> None:
        """The BMC alone starts anew."""
        self._activate("bmc")
        self.bmc_down_until_s = self.clock.now_s() + self.times.bmc_start_s

    def cycle_ac(self, final: str | None = None) -> None:
        """Mains off and on: host and BMC start anew, every waiting image becomes the running one."""
        comes_back = (final or (self.power if self.ac_restore == "Last" else self.ac_restore)) == "On"
        self.shutting_down = None
        self.resets.append("ACCycle")
        for kind in ("reset", "bmc", "ac"):
            self._activate(kind)
        now_s = self.clock.now_s()
        self.power, self.boot_began_s = "Off", None
        self.bmc_down_until_s = now_s + self.times.bmc_start_s
        self.off_until_s = now_s + self.times.off_s if comes_back else None

    def clear_pending(self) -> None:
        self.pending.clear()
        self.scheduled = False

    def _activate(self, kind: str, *, all_of_it: bool = True) -> None:
        for name, each in self.firmware.items():
            reached = all_of_it or not name.startswith("HGX_")
            stuck = any(fnmatch.fnmatchcase(name, pattern) for pattern in self.never_activates)
            if each.activation == kind and each.staged is not None and reached and not stuck:
                each.version, each.staged = each.staged, None
                if name == "BIOS" and "SystemBiosVersion" in self.bios:
                    self.bios["SystemBiosVersion"] = each.version

    def _take_settings(self) -> None:
        """The BIOS reads its new settings in POST."""
        if not self.pending or not self.scheduled:
            return
        messages = []
        for name, value in self.pending.items():
            refused = self.rejects.get(name, ())
            if "*" in refused or str(value) in refused:
                words = f"The value '{value}' for the property {name} was refused by the BIOS."
                where = (f"#/Attributes/{name}",)
                messages.append(message("PropertyValueIncorrect", words, name, str(value), properties=where))
                continue
            self.bios[name] = value
            self.bios |= {
                other: each
                for other, each in self.vendor.implied.get((name, str(value)), {}).items()
                if other in self.bios and other not in self.pending
            }
        well = not messages
        self.settings_messages = messages or [message("Success", "The settings were applied.", severity="OK")]
        self.settings_time_s = self.clock.now_s()
        self.clear_pending()
        self.on_applied(well)

    def to_json(self) -> dict[str, Any]:
        """What outlives a restart of the emulator."""
        return {
            "power": self.power,
            "bios": self.bios,
            "pending": self.pending,
            "scheduled": self.scheduled,
            "firmware": {name: asdict(each) for name, each in self.firmware.items()},
        }

    def load_json(self, state: dict[str, Any]) -> None:
        """Take over some or all of that; firmware by item."""
        self.power = state.get("power", self.power)
        self.scheduled = state.get("scheduled", self.scheduled)
        self.pending = dict(state.get("pending", self.pending))
        self.bios |= state.get("bios", {})
        for name, each in state.get("firmware", {}).items():
            if isinstance(each, str):
                each = {"version": each}
            known = asdict(self.firmware[name]) if name in self.firmware else {"activation": "ac"}
            self.firmware[name] = Firmware(**(known | each))
