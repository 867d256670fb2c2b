"""driver.modules: are the driver's kernel modules loaded without which CUDA cannot start?

Kernel: /sys/module (Documentation/ABI/stable/sysfs-module). nvidia and nvidia_uvm are needed wherever GPUs
are, whatever a tuning guide says about unloading nvidia_uvm to "bypass PCIe". What else a site needs
(nvidia_peermem where RDMA has no dma-buf) is its profile's to say: host.modules.
"""

from __future__ import annotations

from collections.abc import Iterator

from agent.checks import advice
from agent.checks.gpus import no_gpus
from agent.checks.registry import Limits, check, unknown
from agent.errors import DeviceAbsent, SourceError
from agent.model import Basis, Finding, ServingClass, Verdict
from agent.node_profile import NodeProfile
from agent.sources import Sources

MODULES = "sys/module"
#: The driver, and the module of unified memory, which every CUDA context opens.
NEEDED = ("nvidia", "nvidia_uvm")
_BASIS = Basis.standard("modules that CUDA needs")
_LOAD = advice.play("gpu", "Load the module (modprobe) and name it in /etc/modules-load.d.")


@check(
    "driver.modules",
    title="Kernel modules of the driver",
    source="/sys/module/nvidia, /sys/module/nvidia_uvm: initstate",
    serving_class=ServingClass.SOFT,
    period_s=30.0,
    fail_for_s=30.0,
    needed_to_start=True,
    skip=no_gpus,
    action=_LOAD,
)
def driver_modules(sources: Sources, profile: NodeProfile, _limits: Limits) -> Iterator[Finding]:
    """The driver's module and that of unified memory must be loaded and live."""
    del profile
    try:
        yield _judge(sources)
    except SourceError as cause:
        yield unknown("node", cause)


def _judge(sources: Sources) -> Finding:
    loaded = sources.tree.names(MODULES)
    missing = [name for name in NEEDED if name not in loaded]
    if missing:
        load = advice.play("gpu", f"Run modprobe {' '.join(missing)}; name it in /etc/modules-load.d.")
        text = f"not loaded: {', '.join(missing)}; CUDA cannot start without it"
        return Finding("node", Verdict.FAIL, text, "not loaded", "live", action=load, basis=_BASIS)
    states = {name: _state(sources, name) for name in NEEDED}
    for name, state in states.items():
        if state != "live":
            look = advice.person(
                f"Read `dmesg` for why {name} does not get ready; reboot the node if it stays."
            )
            text = f"module {name} is {state!r}, not live"
            return Finding("node", Verdict.FAIL, text, state, "live", action=look, basis=_BASIS)
    return Finding("node", Verdict.PASS, f"loaded: {', '.join(NEEDED)}", "live", "live", basis=_BASIS)


def _state(sources: Sources, name: str) -> str:
    """`live`, `coming` or `going`; a module without the file is built into the kernel, and live."""
    try:
        return sources.tree.text(f"{MODULES}/{name}/initstate")
    except DeviceAbsent:
        return "live"
