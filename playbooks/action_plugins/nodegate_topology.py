"""Adds the text of nccl.conf, which follows from the profile by the rules of the engines' launch."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase

from agent.errors import AgentError
from agent.launch.nccl_conf import nccl_conf
from agent.node_profile import NodeProfile


class ActionModule(ActionBase):
    """`nodegate_topology`."""

    _requires_connection = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the module with it."""
        result = super().run(tmp, task_vars)
        values = dict(self._task.args)
        try:
            values["nccl_conf"] = nccl_conf(NodeProfile.model_validate(values["profile"]))
        except (AgentError, ValueError) as cause:
            return {**result, "failed": True, "msg": f"nccl.conf cannot be made of the profile: {cause}"}
        return {
            **result,
            **self._execute_module("nodegate_topology", module_args=values, task_vars=task_vars),
        }
