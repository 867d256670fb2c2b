"""Puts the playbooks into the wheel, beside the code that runs them; everything else is in pyproject.toml."""

from __future__ import annotations

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

SHIPPED = Path("agent/fleet/shipped")
ROOT = Path(__file__).parent


class WithPlaybooks(build_py):
    """Copies playbooks/ and ansible.cfg; an editable installation finds them in the checkout."""

    def run(self) -> None:
        """Build as usual, then copy."""
        super().run()
        if self.editable_mode or not (ROOT / "playbooks").is_dir():
            return
        target = Path(self.build_lib) / SHIPPED
        shutil.rmtree(target, ignore_errors=True)
        ignored = shutil.ignore_patterns("__pycache__", "*.pyc", ".*")
        shutil.copytree(ROOT / "playbooks", target / "playbooks", ignore=ignored)
        shutil.copyfile(ROOT / "ansible.cfg", target / "ansible.cfg")


setup(cmdclass={"build_py": WithPlaybooks})
