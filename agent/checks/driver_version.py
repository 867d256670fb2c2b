"""host.driver: is the loaded driver the profile's, and do kernel module and library belong together?

NVML: nvmlSystemGetDriverVersion (the loaded module's), nvmlSystemGetNVMLVersion (the library's, CUDA's major
number before it). Kernel: /sys/module/nvidia/version, /proc/driver/nvidia/version. A package upgrade replaces
the library under a running module; whoever starts next, the engine too, is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from agent.checks import advice
from agent.checks.gpus import no_gpus
from agent.checks.registry import Limits, check, unknown
from agent.errors import DeviceAbsent, ParseError, SourceError
from agent.model import Action, ActionKind, Basis, Finding, ServingClass, Verdict
from agent.node_profile import NodeProfile
from agent.sources import Sources

_MODULE_FILES = ("sys/module/nvidia/version", "proc/driver/nvidia/version")
_VERSION = re.compile(r"\b(\d{3}\.\d{1,3}(?:\.\d{1,3})?)\b")
_MISMATCH = "LIB_RM_VERSION_MISMATCH"
_RELOAD = Action(
    ActionKind.REBOOT,
    "Stop the engines and reboot the node (or reload the nvidia modules), so that module and library match.",
)


@check(
    "host.driver",
    title="NVIDIA driver version",
    source="nvmlSystemGetDriverVersion, nvmlSystemGetNVMLVersion; /sys/module/nvidia/version",
    serving_class=ServingClass.SOFT,
    period_s=60.0,
    fail_for_s=60.0,
    skip=no_gpus,
    action=advice.play("gpu", "Install the driver of the profile (driver_version) and reboot the node."),
)
def host_driver(sources: Sources, profile: NodeProfile, _limits: Limits) -> Iterator[Finding]:
    """Loaded module and library must be of one version, the profile's where it names one."""
    try:
        yield _judge(sources, profile)
    except SourceError as cause:
        if _MISMATCH not in str(cause):
            yield unknown("node", cause)
            return
        text = "kernel module and NVML library are of different driver versions: NVML refuses to start"
        yield _unlike(text, _MISMATCH, "one version")


def _judge(sources: Sources, profile: NodeProfile) -> Finding:
    system = sources.nvml.system()
    loaded, library = system.driver_version, system.nvml_version.partition(".")[2]
    if not loaded:
        raise ParseError("NVML gives no driver version")
    module = _module_version(sources)
    if module is not None and module != loaded:
        return _unlike(f"NVML says driver {loaded}, the loaded module is {module}", loaded, module)
    if _VERSION.fullmatch(library) and library != loaded:
        return _unlike(f"library of driver {library}, loaded module {loaded}", library, loaded)
    want = profile.driver_version
    if want is not None and loaded != want:
        repair = advice.play("gpu", f"Install driver {want} and reboot the node.")
        text = f"driver {loaded}, expected {want}"
        basis = Basis.profile("driver_version")
        return Finding("node", Verdict.FAIL, text, loaded, want, action=repair, basis=basis)
    note = "" if want is not None else ", not compared with the profile"
    return Finding("node", Verdict.PASS, f"driver {loaded}{note}", loaded, want)


def _unlike(text: str, observed: str, expected: str) -> Finding:
    basis = Basis.device("version of the loaded kernel module")
    return Finding("node", Verdict.FAIL, text, observed, expected, action=_RELOAD, basis=basis)


def _module_version(sources: Sources) -> str | None:
    """The version that the kernel gives; None where neither file is there, and NVML alone says it."""
    for path in _MODULE_FILES:
        try:
            text = sources.tree.text(path)
        except DeviceAbsent:
            continue
        match = _VERSION.search(text)
        if match is None:
            raise ParseError(f"/{path} reads {text[:60]!r}, which holds no driver version")
        return match[1]
    return None
