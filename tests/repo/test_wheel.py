"""The wheel holds the whole package: code, profiles, the status page and the demo's node."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from repo_files import ROOT, tracked


def test_every_file_of_the_package_is_in_the_wheel(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    package = [path for path in tracked() if path.is_relative_to(ROOT / "agent")]
    for path in [*package, ROOT / "pyproject.toml", ROOT / "README.md", ROOT / "LICENSE"]:
        target = tree / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index"]
    built = subprocess.run(
        [*command, "-w", str(tmp_path), str(tree)], capture_output=True, text=True, timeout=110
    )
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("nodegate-*.whl")
    held = set(zipfile.ZipFile(wheel).namelist())
    assert {str(path.relative_to(ROOT)) for path in package} - held == set()
    assert [name for name in held if not name.startswith(("agent/", "nodegate-"))] == []
