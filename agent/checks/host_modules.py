"""host.modules, host.modules_absent: are the needed kernel modules there, and the unwanted ones not?

/sys/module/NAME/initstate is `live` for a loaded module; code that is built into the kernel has a folder only
if it has parameters, and stands in /lib/modules/RELEASE/modules.builtin.
https://www.kernel.org/doc/Documentation/ABI/stable/sysfs-module
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from agent.checks import advice
from agent.checks.host_text import listed
from agent.checks.registry import Limits, check
from agent.errors import DeviceAbsent
from agent.model import Basis, Finding, ServingClass, Verdict
from agent.node_profile import NodeProfile
from agent.sources import Sources

MODULES = "sys/module"
BUILT_IN, LIVE = "built in", "live"
_HOW = "Load it with modprobe, name it in /etc/modules-load.d, and read the kernel log if that fails."
_LOAD = advice.play("kernel", _HOW)
#: They come with the driver's packages.
_LOAD_GPU = advice.play("gpu", _HOW)
_UNLOAD = advice.play(
    "kernel",
    "Forbid it in /etc/modprobe.d (blacklist and install NAME /bin/false), rebuild the initramfs and reboot.",
)
_BUILTIN_LINE = re.compile(r"([^/]+)\.ko(?:\.\w+)?$")


@check(
    "host.modules",
    title="Kernel modules",
    source="/sys/module/NAME/initstate, /lib/modules/RELEASE/modules.builtin",
    serving_class=ServingClass.INFO,
    period_s=60.0,
    fail_for_s=60.0,
    skip=lambda p: None if p.host.modules else "the profile asks for no modules",
    action=_LOAD,
)
def host_modules(sources: Sources, profile: NodeProfile, _limits: Limits) -> Iterator[Finding]:
    """Every module of the profile must be loaded or built in: CUDA needs nvidia_uvm, whatever guides say."""
    wanted = profile.host.modules
    states = {name: state_of(sources, name) for name in wanted}
    missing = [name for name, state in states.items() if state is None]
    if missing and (builtin := _builtin(sources)):
        missing = [name for name in missing if name not in builtin]
    basis = Basis.profile("host.modules")
    starting = [f"{name} ({state})" for name, state in states.items() if state not in (None, LIVE, BUILT_IN)]
    if missing or starting:
        words = [f"not loaded: {listed(missing)}"] if missing else []
        words += [f"not ready: {listed(starting)}"] if starting else []
        seen = listed([*missing, *starting])
        of_gpu = missing and all(name.startswith("nvidia") or name == "gdrdrv" for name in missing)
        load = _LOAD_GPU if of_gpu else _LOAD
        yield Finding(
            "node", Verdict.FAIL, "; ".join(words), seen, listed(wanted, 16), action=load, basis=basis
        )
        return
    yield Finding("node", Verdict.PASS, f"{len(wanted)} modules are loaded", basis=basis)


@check(
    "host.modules_absent",
    title="Unwanted kernel modules",
    source="/sys/module/NAME",
    serving_class=ServingClass.INFO,
    period_s=60.0,
    fail_for_s=60.0,
    skip=lambda p: None if p.host.modules_absent else "the profile excludes no modules",
    action=_UNLOAD,
)
def host_modules_absent(sources: Sources, profile: NodeProfile, _limits: Limits) -> Iterator[Finding]:
    """No module that the profile excludes may be loaded or built in: nouveau takes GPUs from the driver."""
    found = [name for name in profile.host.modules_absent if state_of(sources, name) is not None]
    basis = Basis.profile("host.modules_absent")
    if found:
        summary = f"loaded, and must not be: {listed(found)}"
        yield Finding("node", Verdict.FAIL, summary, listed(found), "absent", action=_UNLOAD, basis=basis)
        return
    yield Finding("node", Verdict.PASS, "none of them is loaded", "absent", "absent", basis=basis)


def state_of(sources: Sources, name: str) -> str | None:
    """`live`, `coming`, `going` or `built in`; None when /sys/module does not show the module.

    Raises DeviceAbsent when there is no /sys/module to look in.
    """
    if name not in sources.tree.names(MODULES):
        return None
    try:
        return sources.tree.text(f"{MODULES}/{name}/initstate")
    except DeviceAbsent:
        return BUILT_IN


def _builtin(sources: Sources) -> frozenset[str]:
    """Modules that are built into this kernel; empty when the list is not installed."""
    release = sources.tree.text("proc/sys/kernel/osrelease")
    try:
        lines = sources.tree.text(f"lib/modules/{release}/modules.builtin").splitlines()
    except DeviceAbsent:
        return frozenset()
    found = (_BUILTIN_LINE.search(line.strip()) for line in lines)
    return frozenset(match[1].replace("-", "_") for match in found if match)
