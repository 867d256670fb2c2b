"""The node profile of each host as the variable `nodegate`, by the agent's own merge and validation.

Layers, lowest first, of what is there in the folder `profiles` beside the inventory: all.yaml, GROUP.yaml of
each group of the host (in Ansible's order: depth, priority, name), HOST.pins.yaml, HOST.yaml.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.errors import AnsibleError
from ansible.inventory.helpers import sort_groups
from ansible.inventory.host import Host
from ansible.plugins.vars import BaseVarsPlugin

try:
    from agent.errors import AgentError
    from agent.provision.profile_vars import profile_vars
except ImportError as cause:  # Ansible of another environment
    MISSING: str | None = f"{cause}: run the Ansible of the environment that nodegate is installed in"
else:
    MISSING = None

DOCUMENTATION = """
name: nodegate_profile
version_added: "1.0"
short_description: node profile of each host
description:
  - Gives every host the variable C(nodegate), see agent/provision/profile_vars.py.
options: {}
"""


class VarsModule(BaseVarsPlugin):
    """Gives `nodegate` to hosts; groups get nothing."""

    is_stateless = False

    def get_vars(self, loader: Any, path: Any, entities: Any, cache: bool = True) -> dict[str, Any]:
        """The variables of the hosts among `entities` that `path` has profiles for."""
        super().get_vars(loader, path, entities)
        folder = Path(path if isinstance(path, str) else path.decode()) / "profiles"
        found: dict[str, Any] = {}
        for entity in entities if isinstance(entities, list) else [entities]:
            if not isinstance(entity, Host) or not folder.is_dir():
                continue
            if MISSING is not None:
                raise AnsibleError(MISSING)
            groups = [group.name for group in sort_groups(entity.get_groups()) if group.name != "all"]
            try:
                found = {"nodegate": profile_vars(folder, entity.name, groups)}
            except AgentError as fault:
                found = {"nodegate": {"fault": str(fault), "site": str(folder.parent)}}
        return found
