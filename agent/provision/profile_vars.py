"""What a play knows of a host's profile: merged and validated from the layers of its site, once per change.

The layers of a site lie in `inventories/SITE/profiles`: all.yaml, GROUP.yaml, HOST.pins.yaml, HOST.yaml.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agent.errors import ConfigError
from agent.profile_loader import load_profile
from agent.profile_render import render
from agent.profile_yaml import shown_path
from agent.provision.layers import layer_files, pins_file

#: By host and the state of its layers: Ansible asks anew for every task.
_known: dict[tuple[object, ...], dict[str, Any] | ConfigError] = {}


def profile_vars(folder: Path, host: str, groups: Sequence[str]) -> Mapping[str, Any]:
    """The variable `nodegate` of a host; `groups` lowest first. Raises ConfigError.

    profile: plain data, defaults included; hash; rendered: the text for the node; layers: files lowest
    first; pins_file: where its pins belong; site: the inventory's folder.
    """
    files = layer_files(folder, host, groups)
    key = (host, *((str(file), status.st_mtime_ns, status.st_size) for file, status in files))
    if key not in _known:
        try:
            _known[key] = _load(folder, host, [file for file, _status in files])
        except ConfigError as fault:
            _known[key] = fault
    found = _known[key]
    if isinstance(found, ConfigError):
        raise found
    return found


def _load(folder: Path, host: str, files: Sequence[Path]) -> dict[str, Any]:
    loaded = load_profile(files[-1], overlays=files[:-1])
    return {
        "profile": loaded.profile.model_dump(mode="json"),
        "hash": loaded.hash,
        # The same text from wherever the site is checked out: a node's profile is not new because of that.
        "rendered": render(loaded, loaded.tree).replace(f"{shown_path(folder)}/", ""),
        "layers": [str(file) for file in files],
        "pins_file": str(pins_file(folder, host)),
        "site": str(folder.parent),
    }
