"""Roles of the machines beside the nodes, for the example site, by real Ansible into a folder here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from repo_files import ROOT

SITE = ROOT / "inventories" / "example"


def play(
    folder: Path, group: str, variables: dict[str, Any], *words: str
) -> subprocess.CompletedProcess[str]:
    """Run frontend.yml for one group, whose host is this machine; files go below `folder`."""
    local = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "nodegate_become": False,
        "ansible_become": False,
        **variables,
    }
    file = folder / "variables.json"
    file.write_text(json.dumps(local))
    env = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "HOME": str(folder)}
    return subprocess.run(
        [
            str(Path(sys.executable).with_name("ansible-playbook")),
            *("-i", str(SITE / "hosts.yml"), "--tags", group, "--diff", "-e", f"@{file}"),
            *words,
            str(ROOT / "playbooks" / "frontend.yml"),
        ],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=180,
    )
