"""Host and BMC of the healthy H200 node of fake_h200.py: procfs and sysfs files, units, disks, Redfish."""

from __future__ import annotations

from typing import Any


def host_files() -> dict[str, Any]:
    """Files by path."""
    return {}


def host_data() -> dict[str, Any]:
    """The parts `host` and `bmc` of FakeNode."""
    return {"host": {}, "bmc": {}}
