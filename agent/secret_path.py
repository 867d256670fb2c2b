"""Where a secret of the profile lies: a path, or `credential:NAME`, which systemd hands to the agent's unit.

Files in /etc/nodegate/credentials belong to root; the unit loads the whole folder (LoadCredential=), so the
agent's user reads them without their being its own. A credential may also come from a drop-in of the unit.
https://systemd.io/CREDENTIALS/
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Mapping
from pathlib import Path

PREFIX = "credential:"
#: The unit loads the folder under this name; systemd puts it before the name of each file.
FOLDER_ID = "nodegate"
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
    for candidate in (Path(folder, name), Path(folder, f"{FOLDER_ID}_{name}")):
        if candidate.is_file():
            return candidate
    raise FileNotFoundError(
        errno.ENOENT,
        f"no such credential; put the file into /etc/nodegate/credentials/{name} and restart the agent",
    )


def open_to_others(path: Path, mode: int, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether others than the owner can use a file of this mode.

    In the folder of credentials, group bits are the mask of the ACL by which systemd lets the service in.
    """
    folder = environment.get("CREDENTIALS_DIRECTORY", "")
    ours = bool(folder) and path.parent == Path(folder)
    return bool(mode & (0o037 if ours else 0o077))
