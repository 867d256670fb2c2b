"""Which hosts a run is for, by Ansible's own reading of the inventory."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Sequence
from pathlib import Path

from agent.errors import ConfigError
from agent.fleet.inventory_faults import brief, inventory_fault, refuse_bad_yaml
from agent.profile_yaml import shown_path

INSTALL = "pip install 'nodegate[provision]'"
#: Groups of the machines beside the nodes: they have plays of their own, and no profile.
BESIDE = ("loadbalancers", "monitoring")


def need_ansible() -> None:
    """ConfigError without the provision extra."""
    try:
        import ansible  # noqa: F401
        import ansible_runner  # noqa: F401
    except ImportError as cause:
        raise ConfigError(f"Ansible is not installed here ({cause.name})", remedy=INSTALL) from cause


def need_inventories(sources: Sequence[Path]) -> None:
    """ConfigError for an inventory that is not there."""
    for source in sources:
        if not source.exists():
            raise ConfigError(
                "there is no inventory here",
                where=shown_path(source),
                remedy="name a folder or a file of inventories/ with -i",
            )


def target_hosts(
    sources: Sequence[Path], limit: str | None, config: Path, *, beside: bool = False
) -> tuple[str, list[str]]:
    """The pattern of the nodes, or of the machines beside them, and their names in order.

    ConfigError when there are none.
    """
    # Ansible reads its settings when it is imported, and this process is only about this run.
    os.environ.setdefault("ANSIBLE_CONFIG", str(config))
    from ansible.errors import AnsibleError
    from ansible.inventory.manager import InventoryManager
    from ansible.parsing.dataloader import DataLoader

    refuse_bad_yaml(sources)
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):  # its warnings come again in the run itself
            inventory = InventoryManager(DataLoader(), [str(source) for source in sources])
            if limit:
                inventory.subset(limit)
            there = [group for group in BESIDE if group in inventory.groups]
            pattern = ":".join(there) if beside else "all" + "".join(f":!{group}" for group in there)
            names = [host.name for host in inventory.get_hosts(pattern)]
    except AnsibleError as cause:
        raise inventory_fault(sources, str(cause)) from cause
    if beside and not there:
        raise ConfigError(
            f"it has none of the groups {', '.join(BESIDE)}: there is no machine for this playbook",
            where=", ".join(map(shown_path, sources)),
            remedy="inventories/README.md has them",
        )
    if not names:
        raise no_hosts(sources, limit, said.getvalue())
    return pattern, names


def no_hosts(sources: Sequence[Path], limit: str | None, warnings: str) -> ConfigError:
    """Why there is nobody to work on; `warnings` is what Ansible said."""
    where = ", ".join(shown_path(source) for source in sources)
    told = f" ({brief(warnings)})" if warnings else ""
    what = f"no host of it matches --limit {limit}" if limit else f"it has no hosts{told}"
    return ConfigError(what, where=where, remedy="`ansible-inventory -i INVENTORY --graph` shows its hosts")
