"""nodegate_drift: what the phases of verify.yml found on this host; fails when there is anything.

Runs on the controller. `folder`: also write HOST.json there. `begin`: only write that the host was not
compared, which stays where it cannot be reached: no report of an earlier run is taken for this one's.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase

from agent.provision.drift import NOT_COMPARED, drift_of, lines_of


class ActionModule(ActionBase):
    """Collect, write, tell."""

    TRANSFERS_FILES = False

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        """The result: drift, pending, faults, findings; failed with one line each if there is anything."""
        super().run(tmp, task_vars)
        begin = boolean(self._task.args.get("begin", False))
        found = NOT_COMPARED if begin else drift_of(task_vars)
        lines = [] if begin else lines_of(found)
        folder = str(self._task.args.get("folder") or "")
        if folder:
            path = Path(folder) / f"{task_vars['inventory_hostname']}.json"
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(json.dumps(found, indent=2) + "\n")
            except OSError as cause:
                lines.append(f"the report cannot be written to {path}: {cause.strerror}")
        if begin:
            return {"changed": False, "failed": bool(lines), "msg": "; ".join(lines)}
        if not lines:
            return {"changed": False, "msg": "as the profile says", **found}
        return {"changed": False, "failed": True, "msg": "\n".join(lines), **found}
