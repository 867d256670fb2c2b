"""Where the packages of a Python environment say their version."""

from __future__ import annotations

import re

from agent.errors import DeviceAbsent
from agent.sources import Tree

_FOLDER = re.compile(r"^(?P<name>.+)-[^-]+\.dist-info$")


def package_files(tree: Tree, path: str) -> dict[str, str]:
    """METADATA of each package of an environment, by the package's normal name; empty without one."""
    root = f"{path.lstrip('/')}/lib"
    found = {}
    try:
        for python in tree.names(root):
            if not python.startswith("python3"):
                continue
            site = f"{root}/{python}/site-packages"
            for entry in tree.names(site):
                if match := _FOLDER.fullmatch(entry):
                    name = re.sub(r"[-_.]+", "-", match["name"]).lower()
                    found[name] = f"{site}/{entry}/METADATA"
    except DeviceAbsent:
        return {}
    return found
