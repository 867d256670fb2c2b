"""ansible-lint's production profile is clean over playbooks and inventories, without the network."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from repo_files import ROOT, tracked

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]


def lint(folder: Path, home: Path) -> subprocess.CompletedProcess[str]:
    """Run it over a copy: it writes beside what it reads."""
    scripts = Path(sys.executable).parent
    env = {
        **os.environ,
        "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(home),
        "NO_COLOR": "1",
    }
    words = [str(scripts / "ansible-lint"), "--offline", "-q", "playbooks", "inventories"]
    return subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, timeout=280)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The tracked files that it looks at."""
    folder = tmp_path / "tree"
    wanted = ("playbooks", "inventories", "ansible.cfg", ".ansible-lint", "agent")
    for path in tracked():
        short = path.relative_to(ROOT)
        if short.parts[0] in wanted:
            (folder / short).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, folder / short)
    return folder


def test_the_production_profile_is_clean(copy: Path, tmp_path: Path) -> None:
    done = lint(copy, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_it_would_tell(copy: Path, tmp_path: Path) -> None:
    """One bad role beside the others' names is enough for it to refuse."""
    shutil.rmtree(copy / "playbooks")
    (copy / "playbooks").mkdir()
    (copy / "playbooks" / "bad.yml").write_text("---\n- hosts: all\n  tasks:\n    - shell: reboot\n")
    assert lint(copy, tmp_path).returncode != 0
