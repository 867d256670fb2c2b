"""driver.modules: are the kernel modules loaded that the node's work needs, and none that harms it?

Kernel: /sys/module (Documentation/ABI/stable/sysfs-module). nvidia and nvidia_uvm are needed wherever there
are GPUs: CUDA cannot start without nvidia_uvm, whatever a tuning guide says about unloading it. Further
modules (nvidia_peermem, mlx5_ib) are the profile's to name.
"""

from __future__ import annotations

from collections.abc import Iterator

from agent.checks import advice
from agent.checks.registry import Limits, check, unknown
from agent.errors import DeviceAbsent, SourceError
from agent.model import Basis, Finding, ServingClass, Verdict
from agent.node_profile import NodeProfile
from agent.sources import Sources

MODULES = "sys/module"
#: What CUDA needs: the driver, and the module of unified memory that every CUDA context opens.
FOR_GPUS = ("nvidia", "nvidia_uvm")
_BUILT_IN = Basis.standard("modules that CUDA needs")
_ACTION = advice.play("gpu", "Load the module (modprobe) and name it in /etc/modules-load.d.")


def _nothing_needed(profile: NodeProfile) -> str | None:
    host = profile.host
    if profile.gpus.count or host.modules or host.modules_absent:
        return None
    return "the profile has no GPUs and names no kernel modules"


@check(
    "driver.modules",
    title="Kernel modules",
    source="/sys/module/*, /sys/module/*/initstate",
    serving_class=ServingClass.SOFT,
    period_s=30.0,
    fail_for_s=30.0,
    clear_for_s=0.0,
    skip=_nothing_needed,
    action=_ACTION,
)
def driver_modules(sources: Sources, profile: NodeProfile, _limits: Limits) -> Iterator[Finding]:
    """Every needed kernel module must be loaded and live, and none of those that the profile bans."""
    try:
        yield _judge(sources, profile)
    except SourceError as cause:
        yield unknown("node", cause)


def _judge(sources: Sources, profile: NodeProfile) -> Finding:
    built_in = FOR_GPUS if profile.gpus.count else ()
    wanted = list(dict.fromkeys((*built_in, *(_canonical(name) for name in profile.host.modules))))
    banned = [_canonical(name) for name in profile.host.modules_absent]
    loaded = {_canonical(name) for name in sources.tree.names(MODULES)}
    missing = [name for name in wanted if name not in loaded]
    if missing:
        basis = _BUILT_IN if missing[0] in built_in else Basis.profile("host.modules")
        repair = advice.play(
            "gpu", f"Load {missing[0]} (modprobe {missing[0]}) and name it in /etc/modules-load.d."
        )
        text = f"not loaded: {', '.join(missing)}{_why(missing)}"
        return Finding("node", Verdict.FAIL, text, "not loaded", "loaded", action=repair, basis=basis)
    halfway = {name: state for name in wanted if (state := _state(sources, name)) not in ("live", None)}
    if halfway:
        name, state = next(iter(halfway.items()))
        repair = advice.person(f"See `dmesg` for why {name} does not finish; reboot the node if it stays.")
        basis = _BUILT_IN if name in built_in else Basis.profile("host.modules")
        text = f"module {name} is {state}, not live"
        return Finding("node", Verdict.FAIL, text, state, "live", action=repair, basis=basis)
    present = [name for name in banned if name in loaded]
    if present:
        repair = advice.person(f"Blacklist {present[0]} in /etc/modprobe.d and reboot the node.")
        text, basis = f"loaded although banned: {', '.join(present)}", Basis.profile("host.modules_absent")
        return Finding("node", Verdict.FAIL, text, "loaded", "not loaded", action=repair, basis=basis)
    return Finding("node", Verdict.PASS, f"loaded: {', '.join(wanted) or 'none needed'}", "loaded", "loaded")


def _canonical(name: str) -> str:
    """The kernel writes `_` where a package may write `-`."""
    return name.replace("-", "_")


def _why(missing: list[str]) -> str:
    return " (CUDA cannot start without it)" if "nvidia_uvm" in missing else ""


def _state(sources: Sources, name: str) -> str | None:
    """`live`, `coming` or `going`; None for one that is built into the kernel, which has no such file."""
    try:
        return sources.tree.text(f"{MODULES}/{name}/initstate")
    except DeviceAbsent:
        return None
