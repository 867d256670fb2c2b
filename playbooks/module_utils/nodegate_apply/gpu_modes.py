"""Settings of each GPU: persistence, ECC, MIG, power limit; a driver that waits for a reboot has none yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .gpu_driver import Driver
from .gpu_smi import Gpu, Smi, has, value_of
from .host import HostError
from .setting import Setting

ON, OFF = "Enabled", "Disabled"
#: The driver gives limits in hundredths of a W.
_TOLERANCE_W = 0.5
_OUT_OF_BAND = (
    "a lower cap was set outside the driver: look for one in the BMC (EnvironmentMetrics of this GPU), at the"
    " power shelf or PDU"
)


class Presence:
    """Whether GPUs can be asked at all: at boot they can."""

    def waits(self, reader: str) -> bool:
        """Not before a reboot: then the boot unit sets them."""
        del reader
        return False

    def absent(self) -> bool:
        """Not before packages are installed, which this run does."""
        return False


def mode_settings(
    smi: Smi, gpus: dict[str, Any], driver: Presence | Driver, *, staged_too: bool = True
) -> list[Setting]:
    """All of each GPU; without `staged_too` only what the driver forgets."""
    settings: list[Setting] = []
    for slot in range(gpus["count"]):
        if gpus["persistence"]:
            settings.append(_persistence(smi, slot, driver))
        if gpus["ecc"] and staged_too:
            settings.append(_mode(smi, slot, driver, "ECC", "gpus.ecc", ON, "ecc.mode", ("-e", "1")))
        if gpus["mig_off"] and staged_too:
            settings.append(_mode(smi, slot, driver, "MIG", "gpus.mig_off", OFF, "mig.mode", ("-mig", "0")))
        if gpus["has_power_limit"]:
            settings.append(_power(smi, slot, driver, gpus["power_limit_w"]))
    return settings


def _setting(
    smi: Smi, slot: int, driver: Presence | Driver, name: str, field: str, want: str,
    seen: Callable[[Gpu], str], words: Callable[[Gpu], tuple[str, ...]], advice: str,
    staged: Callable[[Gpu], str] | None = None,
) -> Setting:  # fmt: skip
    """One value of one GPU: read from the shared look, set by UUID."""
    title = f"gpu{slot} {name}"

    def read() -> str | None:
        return None if driver.absent() or driver.waits(title) else seen(smi.gpu(slot, title))

    def later() -> str | None:
        if driver.absent():
            return None
        at = f"{title} staged"
        return want if driver.waits(at) else (staged or seen)(smi.gpu(slot, at))

    def write() -> None:
        if not driver.waits(f"{title} write"):
            smi.change(slot, *words(smi.gpu(slot, f"{title} write")))

    return Setting(title, field, want, read, write, later, advice=advice)


def _persistence(smi: Smi, slot: int, driver: Presence | Driver) -> Setting:
    return _setting(
        smi, slot, driver, "persistence mode", "gpus.persistence", ON,
        lambda gpu: value_of(gpu, "persistence_mode", slot), lambda _: ("-pm", "1"),
        "read journalctl -u nvidia-persistenced",
    )  # fmt: skip


def _mode(
    smi: Smi,
    slot: int,
    driver: Presence | Driver,
    name: str,
    field: str,
    want: str,
    key: str,
    words: tuple[str, ...],
) -> Setting:
    """A mode that a GPU takes at its next reset or boot."""

    def value(gpu: Gpu, when: str) -> str:
        seen = value_of(gpu, f"{key}.{when}", slot)
        if has(seen):
            return seen
        if want == OFF:  # what it does not have is not on
            return OFF
        raise HostError(f"gpu{slot} has no {name} mode ({seen}); write `{field}: false` into the profile")

    return _setting(
        smi, slot, driver, f"{name} mode", field, want, lambda gpu: value(gpu, "current"), lambda _: words,
        "stop what uses the GPU, then reboot the node", lambda gpu: value(gpu, "pending"),
    )  # fmt: skip


def _power(smi: Smi, slot: int, driver: Presence | Driver, limit_w: float | None) -> Setting:
    """The limit that is set, and that is enforced; without one in the profile the device's default."""
    want = "the default" if limit_w is None else f"{limit_w:g} W"

    def target_w(gpu: Gpu) -> float:
        return _watts(gpu, slot, "power.default_limit") if limit_w is None else limit_w

    def seen(gpu: Gpu) -> str:
        goal_w, set_w = target_w(gpu), _watts(gpu, slot, "power.limit")
        least_w, most_w = _watts(gpu, slot, "power.min_limit"), _watts(gpu, slot, "power.max_limit")
        if not least_w - _TOLERANCE_W <= goal_w <= most_w + _TOLERANCE_W:
            raise HostError(
                f"{goal_w:g} W cannot be: this GPU takes {least_w:g} to {most_w:g} W;"
                " correct gpus.power_limit_w in the profile"
            )
        enforced_w = _watts(gpu, slot, "enforced.power.limit")
        right = abs(set_w - goal_w) <= _TOLERANCE_W
        if right and abs(enforced_w - goal_w) <= _TOLERANCE_W:
            return want
        default = f" (default {goal_w:g} W)" if limit_w is None else ""
        lower = f", enforced {enforced_w:g} W" if abs(enforced_w - set_w) > _TOLERANCE_W else ""
        return f"{set_w:g} W{lower}{default}"

    return _setting(
        smi, slot, driver, "power limit", "gpus.power_limit_w", want, seen,
        lambda gpu: ("-pl", f"{target_w(gpu):g}"), _OUT_OF_BAND,
    )  # fmt: skip


def _watts(gpu: Gpu, slot: int, field: str) -> float:
    text = value_of(gpu, field, slot)
    try:
        watts = float(text)
    except ValueError:
        watts = -1.0
    if not 0 < watts < 100_000:
        raise HostError(
            f"nvidia-smi tells no {field} of gpu{slot} ({text[:40]}); where GPUs have none, write"
            " `gpus: {has_power_limit: false}` into the profile"
        )
    return watts
