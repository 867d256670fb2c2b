"""What the kernel log says of the host itself: lockups, memory and hardware errors, the OOM killer, disks.

Wordings: kernel/watchdog.c, kernel/hung_task.c, kernel/rcu/tree_stall.h, drivers/edac/edac_mc.c,
drivers/firmware/efi/cper.c, arch/x86/kernel/cpu/mce/, mm/oom_kill.c, mm/memory-failure.c, block/blk-core.c,
drivers/nvme/host/. One line may be of several families; the first one counts.
"""

from __future__ import annotations

import re

LOCKUP = "lockup"
HUNG_TASK = "hung_task"
OOM = "oom"
UNCORRECTED = "uncorrected"
CORRECTED = "corrected"
DRIVER = "driver"
DISK = "disk"
PREVIOUS_BOOT = "previous_boot"

FAMILIES: dict[str, re.Pattern[str]] = {
    LOCKUP: re.compile(
        r"soft lockup - CPU|hard LOCKUP|\brcu.{0,40}detected (?:expedited )?stalls?\b|self-detected stall"
    ),
    HUNG_TASK: re.compile(r"blocked (?:in I/O wait )?for more than \d+ seconds"),
    OOM: re.compile(r"[Oo]ut of memory.{0,40}Kill(?:ed)? process (?P<pid>\d+) \((?P<name>[^)]*)\)"),
    UNCORRECTED: re.compile(
        r"EDAC .{0,40}\bUE\b|(?:mce|\[Hardware Error\]): .{0,40}Uncorrected|Machine Check Exception"
        r"|\}\[Hardware Error\]: event severity: (?:fatal|recoverable)|Memory failure: 0x"
    ),
    CORRECTED: re.compile(
        r"EDAC .{0,40}\bCE\b|\bCorrected error|event severity: corrected|Machine check events logged"
    ),
    # drivers/acpi/apei/bert.c: what ended the boot before, without the `{number}` of an error of this boot.
    PREVIOUS_BOOT: re.compile(
        r"^\[Hardware Error\]: event severity: (?:fatal|recoverable)|BERT: Error records from previous boot"
    ),
    DRIVER: re.compile(r"NVRM:.*(?:API mismatch|out of sync)"),
    DISK: re.compile(
        r"\bI/O error\b|nvme nvme\d+: .*(?:timeout|controller is down|Device not ready|failed|[Rr]emoving)"
        r"|(?:EXT4-fs|XFS|BTRFS)\b.{0,60}\berror\b|Remounting filesystem read-only"
    ),
}  # fmt: skip


def family_of(text: str) -> str | None:
    """Which family a log line belongs to, None for most. AER lines are the PCIe checks' own."""
    if "AER:" in text or "PCIe Bus Error" in text:
        return None
    return next((name for name, pattern in FAMILIES.items() if pattern.search(text)), None)
