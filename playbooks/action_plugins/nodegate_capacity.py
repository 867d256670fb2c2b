"""nodegate_capacity: may this node be taken into maintenance, together with all that the play is for?

Runs on the controller, changes nothing, in check mode too. It reads the inventory anew, asks every agent that
matters, and refuses with the numbers. `order: enter` gives back the gates that are drained first for it,
`order: finish` those that may still be drained for it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

from agent.errors import ConfigError
from agent.fleet.capacity import look
from agent.fleet.plan import heads_of
from agent.fleet.site import read_site


class ActionModule(ActionBase):
    """Look, tell."""

    TRANSFERS_FILES = False

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        """The result: lines for people, heads; failed with one line if it may not be."""
        super().run(tmp, task_vars)
        name = str(task_vars["inventory_hostname"])
        take = [str(host) for host in self._task.args.get("take") or [name]]
        sources = [Path(source) for source in task_vars["ansible_inventory_sources"]]
        try:
            site = read_site(sources, None, Path(os.environ.get("ANSIBLE_CONFIG", "ansible.cfg")))
            if self._task.args.get("order") == "finish":
                heads, lines = heads_of(site, name), ()
            else:
                found = look(site, take)
                heads, lines = found.heads[name], found.lines
        except ConfigError as cause:
            return {"changed": False, "failed": True, "msg": str(cause)}
        return {
            "changed": False,
            "msg": "; ".join(lines),
            "lines": list(lines),
            "heads": [
                {"host": head.host, "engine": head.engine} for head in heads if head.host in site.hosts
            ],
        }
