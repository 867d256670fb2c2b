"""nic.cable: what does the transceiver or cable of each data port say of itself?

ETHTOOL_MSG_MODULE_EEPROM_GET (SFF-8636, CMIS): its own alarm and warning flags, whose thresholds are the
vendor's. It needs CAP_NET_ADMIN, and not every driver reads every kind of module (older mlx5 knows no OSFP):
then nothing is reported and nothing is judged. Read rarely, because each read is a slow I2C transfer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from pydantic import Field

from agent.checks import advice
from agent.checks.ports import judge_ports, netdev_of, no_ports, subject_of
from agent.checks.registry import Limits, check
from agent.errors import NotSupported, ParseError
from agent.model import Basis, Finding, ServingClass, Verdict
from agent.node_profile import NicPort, NodeProfile
from agent.sources import ModuleInfo, Sources

_CLEAN = advice.reseat("Clean and reseat both ends of this cable, then replace the transceiver or the cable.")
_COOL = advice.person("Look at the air flow past this transceiver: fans, blanking panels, inlet temperature.")


class CableLimits(Limits):
    """Tolerances of nic.cable; unset ones leave the judgement to the module's own flags."""

    temperature_warn_c: float | None = Field(
        None, description="Temperature of the module from which on it warns, in C; unset = its own flags only"
    )
    rx_power_warn_mw: float | None = Field(
        None,
        description="Received power of a lane below which it warns, in mW; unset = its own flags only",
        gt=0,
    )


def _no_interfaces(profile: NodeProfile) -> str | None:
    named = any(port.netdev is not None for port in profile.fabric.ports)
    return no_ports(profile) or (None if named else "no data port has a network interface to ask")


@check(
    "nic.cable",
    title="Transceiver and cable",
    source="ETHTOOL_MSG_MODULE_EEPROM_GET: SFF-8636 and CMIS memory",
    serving_class=ServingClass.SOFT,
    limits=CableLimits,
    network=True,
    period_s=300.0,
    deadline_s=30.0,
    fail_for_s=300.0,
    # Only with CAP_NET_ADMIN; a link that does not carry is nic.port's.
    unknown_blocks_admission=False,
    skip=_no_interfaces,
    action=_CLEAN,
)
def nic_cable(sources: Sources, profile: NodeProfile, limits: CableLimits) -> Iterator[Finding]:
    """No module may raise an alarm; its warnings are told."""
    yield from judge_ports(
        profile, lambda port: _port(sources, port, limits), absent="no module is plugged; see nic.port"
    )


def _port(sources: Sources, port: NicPort, limits: CableLimits) -> Finding:
    try:
        module = sources.net.module(netdev_of(port))
    except NotSupported as cause:
        # Nothing was looked at: that is no PASS.
        return Finding(subject_of(port), Verdict.SKIP, f"not reported: {cause}"[:200], "not reported")
    return _judge(port, module, limits)


def _judge(port: NicPort, module: ModuleInfo, limits: CableLimits) -> Finding:
    subject, named = subject_of(port), f"{module.vendor} {module.part_number} {module.serial}".strip()
    _proven(module)
    alarms = [flag for flag in module.alarms if "warning" not in flag]
    flags = alarms or list(module.alarms)
    if flags:
        own = Basis.device("thresholds in the module")
        words = f"{named[:60]} raises {', '.join(flags)}"[:200]
        verdict = Verdict.FAIL if alarms else Verdict.WARN
        action = _COOL if all(flag.startswith("temperature") for flag in flags) else _CLEAN
        return Finding(subject, verdict, words, len(flags), 0, "flags", action, basis=own)
    warm, hot = module.temperature_c, limits.temperature_warn_c
    if warm is not None and hot is not None and warm >= hot:
        basis = Basis.limit("temperature_warn_c")
        summary = f"{named[:60]} is {warm:.1f} C warm"
        return Finding(subject, Verdict.WARN, summary, warm, hot, "C", _COOL, basis=basis)
    least, low = min(module.rx_power_mw, default=None), limits.rx_power_warn_mw
    if least is not None and low is not None and least < low:
        basis = Basis.limit("rx_power_warn_mw")
        summary = f"{named[:60]} receives {least:g} mW on its weakest lane"
        return Finding(subject, Verdict.WARN, summary, least, low, "mW", _CLEAN, basis=basis)
    return Finding(subject, Verdict.PASS, f"{module.kind}, {named[:60]}{_readings(module)}", 0, 0, "flags")


def _proven(module: ModuleInfo) -> None:
    """Refuse readings that are no numbers. Raises ParseError."""
    readings = [*module.rx_power_mw, *module.tx_power_mw]
    if module.temperature_c is not None:
        readings.append(module.temperature_c)
    for value in readings:
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ParseError(f"a reading of the module is {value!r}, not a number")


def _readings(module: ModuleInfo) -> str:
    parts = [] if module.temperature_c is None else [f"{module.temperature_c:.1f} C"]
    if module.rx_power_mw:
        parts.append(f"receives {min(module.rx_power_mw):g} mW at least")
    return f": {', '.join(parts)}" if parts else ": no sensors"
