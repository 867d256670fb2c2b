"""The work of the role `nic`: make it so now, at every boot, and leave a record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .boot_unit import ETC, boot_groups, boot_settings
from .files import no_file_setting
from .host import Host, HostError
from .nic import wanted
from .reading import look_at_once
from .record import write_record
from .setting import Report, settle

#: What `python3 -m nodegate_apply nic` needs on the node besides the common modules.
MODULES = ("mlxconfig", "nic", "nic_dcb", "nic_ports", "nic_roce", "reading")


def apply_nic(host: Host, fabric: Mapping[str, Any], *, check: bool, settled: bool = False) -> Report:
    """Settle everything that `fabric` wants; in check mode only look."""
    if fabric["kind"] == "none":
        return settle([no_file_setting(host, f"{ETC}/nic.json", "fabric.kind")], check=check)
    found = wanted(host, fabric)
    look_at_once(found.readings)
    settings = [*found.settings(), *boot_settings(host, "nic", {"fabric": dict(fabric)}, MODULES)]
    report = settle(settings, check=check, settled=settled, groups=boot_groups(host))
    if not report.problems:
        proofs = settle(found.proofs, check=check)
        report.problems += proofs.problems
        report.records += proofs.records
    report.pending += found.waiting
    if not check:
        try:
            write_record(host, "nic", [report])
        except HostError as cause:
            report.problems.append(str(cause))
    return report
