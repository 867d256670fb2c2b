"""Judges what a node saw of GPUs and topology, and records it in the inventory when that is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible.utils.vars import load_extra_vars

from agent.errors import ConfigError
from agent.provision.pins_record import Outcome, names_of, refuse_standing, seen_from, settle_pins


class ActionModule(ActionBase):
    """`nodegate_pins`: the look is the node's, the file the controller's."""

    _requires_connection = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Look, judge, record."""
        result = super().run(tmp, task_vars)
        values = dict(self._task.args)
        looked = self._execute_module("nodegate_pins", module_args=values, task_vars=task_vars)
        if looked.get("failed") or looked.get("told") is None:
            return {**result, **looked}
        try:
            refuse_standing(values.get("replace"), load_extra_vars(self._loader))
            outcome = settle_pins(
                seen_from(looked["told"]),
                str((task_vars or {})["inventory_hostname"]),
                Path(values["file"]),
                accept=boolean(values.get("accept", False)),
                replace=names_of(values.get("replace")),
                check=self._task.check_mode,
            )
        except ConfigError as fault:
            outcome = Outcome(problem=str(fault))
        if outcome.problem:
            return {**result, "failed": True, "changed": False, "msg": outcome.problem, "drift": []}
        told = {"changed": outcome.changed, "drift": [], "reboot_required": False}
        if outcome.changed:
            header = {"before_header": outcome.file, "after_header": outcome.file}
            told |= {
                "file": outcome.file,
                "diff": {"before": outcome.before, "after": outcome.after, **header},
            }
        return {**result, **told}
