"""Small wheels made in a test: a stand-in for nodegate's own, and packages for it."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Mapping
from pathlib import Path

#: What an installation asks of nodegate: its version, and the files of its service.
NODEGATE = """\
import pathlib
import sys


def main():
    if sys.argv[1:] == ["--version"]:
        print("nodegate VERSION")
        return 0
    root = pathlib.Path(sys.argv[sys.argv.index("--root") + 1])
    unit = root / "etc/systemd/system/nodegate.service"
    unit.parent.mkdir(parents=True)
    unit.write_text("[Service]\\nExecStart=" + sys.argv[sys.argv.index("--prefix") + 1] + "\\n")
    return 0
"""


def make_wheel(
    folder: Path, project: str, version: str, files: Mapping[str, str], tag: str = "py3-none-any"
) -> Path:
    """A wheel with these files, and a RECORD that is right."""
    name = project.replace("-", "_")
    info = f"{name}-{version}.dist-info"
    whole = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {project}\nVersion: {version}\n",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    whole = {key.replace("INFO", info): text for key, text in whole.items()}
    rows = [f"{key},sha256={_hash(text)},{len(text)}" for key, text in whole.items()]
    whole[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,"]) + "\n"
    path = folder / f"{name}-{version}-{tag}.whl"
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for key, text in whole.items():
            archive.writestr(zipfile.ZipInfo(key), text)  # the same bytes whenever it is made
    return path


def make_nodegate(folder: Path, version: str = "1.0.0", says: str | None = None) -> Path:
    """A stand-in for nodegate's wheel; `says`: another version than it has."""
    code = NODEGATE.replace("VERSION", says or version)
    files = {
        "agent/__init__.py": "",
        "agent/cli.py": code,
        "INFO/entry_points.txt": "[console_scripts]\nnodegate = agent.cli:main\n",
    }
    return make_wheel(folder, "nodegate", version, files)


def _hash(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
