"""Where a secret of the profile lies: a path, or `credential:NAME`, which systemd hands to the agent's unit.

Files in /etc/nodegate/credentials (for the agent) and in /etc/nodegate/engine-credentials (for agent and
engines) belong to root; units load a whole folder (LoadCredential=), so that their user reads what is not its
own. A credential may also come from a drop-in of the unit.
https://systemd.io/CREDENTIALS/
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Mapping
from pathlib import Path

PREFIX = "credential:"
#: Units load the folders under these names; systemd puts them before the name of each file.
FOLDER_IDS = ("nodegate", "engine")
_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,127}$")


def secret_path(text: str, environment: Mapping[str, str] = os.environ) -> Path:
    """The file to open. Raises OSError, whose strerror says what to do, if a credential is not there."""
    if not text.startswith(PREFIX):
        return Path(text)
    name = text.removeprefix(PREFIX)
    if not _NAME.match(name):
        raise OSError(errno.EINVAL, f"{name!r} is no name of a credential: letters, digits and . _ @ - only")
    folder = environment.get("CREDENTIALS_DIRECTORY", "")
    if not folder:
        raise FileNotFoundError(
            errno.ENOENT, "credentials are there only under systemd: run nodegate.service, or write a path"
        )
    for candidate in (Path(folder, name), *(Path(folder, f"{each}_{name}") for each in FOLDER_IDS)):
        if candidate.is_file():
            return candidate
    raise FileNotFoundError(
        errno.ENOENT,
        f"no such credential; put the file {name} into /etc/nodegate/credentials (an engine's env_file into "
        "engine-credentials) and restart the agent",
    )


def open_to_others(path: Path, mode: int, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether others than the owner can use a file of this mode.

    In the folder of credentials, group bits are the mask of the ACL by which systemd lets the service in.
    """
    folder = environment.get("CREDENTIALS_DIRECTORY", "")
    ours = bool(folder) and path.parent == Path(folder)
    return bool(mode & (0o037 if ours else 0o077))
