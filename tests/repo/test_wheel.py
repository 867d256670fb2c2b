"""The wheel holds the whole package: code, profiles, the status page, the demo's node and the playbooks."""

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
    plays = [path for path in tracked() if path.is_relative_to(ROOT / "playbooks")]
    others = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "ansible.cfg")
    for path in [*package, *plays, *(ROOT / name for name in others)]:
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
    shipped = {f"agent/fleet/shipped/{path.relative_to(ROOT)}" for path in plays}
    shipped.add("agent/fleet/shipped/ansible.cfg")
    assert {name for name in held if name.startswith("agent/fleet/shipped/")} == shipped
    assert [name for name in held if "test" in Path(name).name.partition("_")[0] or "/tests/" in name] == []
    assert [name for name in held if not name.startswith(("agent/", "nodegate-"))] == []
    assert _found_in(wheel, tmp_path / "installed") == str(tmp_path / "installed" / "agent/fleet/shipped")


def _found_in(wheel: Path, folder: Path) -> str:
    """Where an installed nodegate, without a checkout, finds the playbooks."""
    zipfile.ZipFile(wheel).extractall(folder)
    words = "from agent.fleet.shipped import ansible_root, playbook; playbook('site'); print(ansible_root())"
    done = subprocess.run(
        [sys.executable, "-c", words],
        cwd=folder,
        env={"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
