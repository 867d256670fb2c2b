"""Where the playbooks are: beside the package in a checkout, inside it in an installed wheel."""

from __future__ import annotations

from pathlib import Path

from agent.errors import ConfigError
from agent.profile_yaml import shown_path

#: In a wheel the folders `playbooks` and the file ansible.cfg lie here, as they lie together in a checkout.
PACKED = Path(__file__).parent / "shipped"
CHECKOUT = Path(__file__).parents[2]
#: The one playbook that is not for nodes.
FRONTEND = "frontend.yml"


def ansible_root() -> Path:
    """The folder that holds ansible.cfg and playbooks/. ConfigError when there is none."""
    for root in (PACKED, CHECKOUT):
        if (root / "playbooks" / "site.yml").is_file() and (root / "ansible.cfg").is_file():
            return root
    raise ConfigError(
        "there are no playbooks in this installation",
        where=str(PACKED),
        remedy="install nodegate from its wheel, or run it from a checkout",
    )


def is_beside(play: Path) -> bool:
    """Whether a playbook is for the machines beside the nodes."""
    return play == ansible_root().resolve() / "playbooks" / FRONTEND


def playbook(name: str) -> Path:
    """A shipped playbook by name (`site`), or one of the user's own by its file. Raises ConfigError."""
    folder = ansible_root() / "playbooks"
    for file in (folder / f"{name}.yml", Path(name)):
        if file.is_file():
            return file.resolve()
    known = ", ".join(file.stem for file in sorted(folder.glob("*.yml")))
    raise ConfigError("there is no such playbook", where=shown_path(Path(name)), remedy=f"shipped: {known}")
