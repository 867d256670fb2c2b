"""The playbook for machines beside the nodes has those for its hosts; every other one has the nodes."""

from __future__ import annotations

from pathlib import Path

import pytest
from repo_files import ROOT

from agent.errors import ConfigError
from agent.fleet.shipped import is_beside, playbook
from agent.fleet.targets import target_hosts

CONFIG = ROOT / "ansible.cfg"
HOSTS = """
all:
  hosts: {n1: {}}
  children: {loadbalancers: {hosts: {lb: {}}}, monitoring: {hosts: {mon: {}}}}
"""


def test_frontend_is_for_load_balancers_and_prometheus_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANSIBLE_CONFIG", str(CONFIG))
    (tmp_path / "hosts.yml").write_text(HOSTS)
    assert [name for name in ("site", "verify", "frontend", "maintenance") if is_beside(playbook(name))] == [
        "frontend"
    ]
    assert target_hosts([tmp_path], None, CONFIG, beside=True) == ("loadbalancers:monitoring", ["lb", "mon"])
    assert target_hosts([tmp_path], "mon", CONFIG, beside=True)[1] == ["mon"]
    assert target_hosts([tmp_path], None, CONFIG)[1] == ["n1"]
    (tmp_path / "hosts.yml").write_text("all: {hosts: {n1: {}}}\n")
    with pytest.raises(ConfigError, match="none of the groups loadbalancers, monitoring"):
        target_hosts([tmp_path], None, CONFIG, beside=True)
