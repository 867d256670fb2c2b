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
  - Of several inventories, the one that lists a host first has its profile.
options: {}
"""


class VarsModule(BaseVarsPlugin):
    """Gives `nodegate` to hosts; groups get nothing."""

    # Which host is asked for decides; Ansible must ask anew for each, and only when it needs one.
    is_stateless = False

    def get_vars(self, loader: Any, path: Any, entities: Any, *_: Any, **__: Any) -> dict[str, Any]:
        """The variables of the hosts among `entities` that `path` has profiles for."""
        super().get_vars(loader, path, entities)
        site = Path(path if isinstance(path, str) else path.decode()).resolve()
        found: dict[str, Any] = {}
        for entity in entities if isinstance(entities, list) else [entities]:
            if isinstance(entity, Host) and _lists(site, entity):
                found = {"nodegate": _profile(site / "profiles", entity)}
        return found


def _lists(site: Path, host: Host) -> bool:
    """Whether this folder is the one whose inventory lists the host, and has profiles.

    Asked before any file is looked at: with several inventories, each has a layer `all`.
    """
    listed_in = host.vars.get("inventory_dir")
    if listed_in is not None and Path(str(listed_in)).resolve() != site:
        return False
    return (site / "profiles").is_dir()


def _profile(folder: Path, host: Host) -> dict[str, Any]:
    """The variable itself; a profile that is bad stops this host alone, by the first task of its play."""
    if MISSING is not None:
        raise AnsibleError(MISSING)
    groups = [group.name for group in sort_groups(host.get_groups()) if group.name != "all"]
    try:
        return dict(profile_vars(folder, host.name, groups))
    except AgentError as fault:
        return {"fault": str(fault), "site": str(folder.parent)}
