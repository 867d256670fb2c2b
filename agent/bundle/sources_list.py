"""Every source of a bundle, its share of the size and its deadline; shares make one."""

from __future__ import annotations

from agent.bundle.parts import Source
from agent.bundle.read_host import read_engine_logs, read_profile, read_units
from agent.bundle.read_node import read_capture, read_driver, read_firmware, read_kernel_log
from agent.bundle.read_state import read_captures, read_checklists, read_journal, read_status

#: Seconds. A capture reads thousands of files, and a BMC takes a second for a document.
_SOON_S, _LATER_S = 20.0, 45.0
#: nvidia-smi is asked three times, each with a deadline of its own.
_COMMANDS_S = 65.0

SOURCES = (
    Source("status", "what the daemon says now, holds", 0.03, _SOON_S, read_status, free_text=True),
    Source("journal", "the agent's journal", 0.15, _SOON_S, read_journal, free_text=True),
    Source("captures-at-faults", "captures made when a gate closed", 0.15, _SOON_S, read_captures),
    Source("capture-now", "a capture of now, for replay", 0.2, _LATER_S, read_capture),
    Source("kernel", "kernel log", 0.1, _LATER_S, read_kernel_log),
    Source("nvidia", "nvidia-smi", 0.05, _COMMANDS_S, read_driver),
    Source("redfish", "firmware by Redfish", 0.04, _LATER_S, read_firmware),
    Source("units", "units of systemd and their journal", 0.08, _LATER_S, read_units, free_text=True),
    Source("engine-logs", "the engines' output", 0.14, _SOON_S, read_engine_logs, free_text=True),
    Source("profile", "profile and versions", 0.01, _SOON_S, read_profile),
    Source("checklists", "records and reports of checklists", 0.05, _SOON_S, read_checklists),
)
