"""Roles agent, pins and nccl_topology on a host with systemd; upgrade_agent.yml under a running engine.

The engine is the embedded one and GPUs come from a node folder (both SIMULATED); installation, units, users,
files and the service are real. The wheelhouse is fetched by pip as it is configured here.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from agent_host import EMBEDDED, AgentHost, node_profile
from nspawn_root import CACHE, REPOSITORY
from provision_rig import ProvisionRig, provision_hosts

pytestmark = [pytest.mark.root, pytest.mark.timeout(600)]
SECRET = "pw-that-nobody-must-see"
PLAY = """
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.import_role: {name: agent, tasks_from: install}
    - ansible.builtin.import_role: {name: agent}
"""
PINS = """
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.import_role: {name: pins}
    - ansible.builtin.import_role: {name: nccl_topology}
"""
SICK = """
def register(app):
    @app.command("run")
    def run():
        print("this release is broken", flush=True)
        raise SystemExit(3)
"""
BMC = {"redfish": {"url": "https://192.0.2.9", "credentials_file": "credential:bmc"}}
TOPOLOGY = "/etc/nodegate/topology.xml"


def _wheelhouse() -> Path:
    """The pinned wheels, fetched once and kept beside the hosts' file system."""
    folder, pins = CACHE / "wheelhouse", REPOSITORY / "requirements/base.txt"
    mark = folder / "requirements.txt"
    if not mark.is_file() or mark.read_bytes() != pins.read_bytes():
        shutil.rmtree(folder, ignore_errors=True)
        words = ["download", "--quiet", "--require-hashes", "--only-binary=:all:", "-r", str(pins)]
        subprocess.run([sys.executable, "-m", "pip", *words, "-d", str(folder)], check=True, timeout=300)
        shutil.copy(pins, mark)
    return folder


def _wheel(folder: Path, version: str | None = None, *, sick: bool = False) -> Path:
    """nodegate's own wheel, from a copy of the sources; with `version`, of another release.

    A sick one does everything but run the agent.
    """
    tree = folder / f"tree-{version}"
    tree.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, tree)
    shutil.copytree(REPOSITORY / "agent", tree / "agent", ignore=shutil.ignore_patterns("__pycache__"))
    if version is not None:
        init = tree / "agent/__init__.py"
        init.write_text(init.read_text().replace('__version__ = "', f'__version__ = "{version}" or "'))
    if sick:
        (tree / "agent/commands/run.py").write_text(SICK)
    words = ["wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", str(folder / f"wheel-{version}")]
    subprocess.run([sys.executable, "-m", "pip", *words, str(tree)], check=True, timeout=300)
    return next((folder / f"wheel-{version}").glob("*.whl"))


class Site:
    """One host and its inventory."""

    def __init__(self, rig: ProvisionRig) -> None:
        """With wheel and wheelhouse; no profile yet."""
        self.rig = rig
        self.agent = AgentHost(rig["n1"])
        self.play = rig.folder / "play.yml"
        self.play.write_text(PLAY)
        self.variables = {
            "nodegate_wheel": str(_wheel(rig.folder)),
            "nodegate_wheelhouse": str(_wheelhouse()),
            "nodegate_requirements": str(REPOSITORY / "requirements/base.txt"),
            "nodegate_install_cache": str(rig.folder / "cache"),
            "nodegate_bmc_username": "ops",
            "nodegate_bmc_password": SECRET,
        }

    def write(self, profile: dict[str, object], **variables: str) -> None:
        """The host's profile and variables."""
        folder = self.rig.inventory / "profiles"
        folder.mkdir(exist_ok=True)
        (folder / "n1.yaml").write_text(yaml.safe_dump(profile, sort_keys=False))
        self.rig.write_inventory(everywhere={**self.variables, **variables})

    def run(self, play: Path | str, *words: str, fails: bool = False):
        """A run that tells everything, and no secret."""
        done = self.rig.ansible(play, "--diff", "-v", *words)
        assert SECRET not in done.output
        assert (done.status != 0) == fails, done.output[-6000:]
        return done

    def engine(self) -> int:
        """Main process of the engine's unit."""
        return int(self.agent.show("MainPID", "nodegate-engine@main.service"))


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with provision_hosts("n1") as rig:
        yield Site(rig)


def test_install_serve_and_upgrade_under_a_running_engine(site: Site) -> None:
    agent, host = site.agent, site.rig["n1"]
    site.write(node_profile(supervision="systemd", bmc=BMC), nodegate_agent_args="")
    told = site.run(site.play, "--check")
    assert told.changed == {"n1": 2} and host.run(["test", "-e", "/opt/nodegate"]).returncode != 0
    assert site.run(site.play).changed == {"n1": 2}
    agent.wait_ready()
    again = site.run(site.play)
    assert again.changed == {"n1": 0}
    assert host.must(["stat", "-c", "%a %U", "/etc/nodegate/credentials/bmc"]).split() == ["600", "root"]
    assert SECRET in host.read("/etc/nodegate/credentials/bmc")

    engine, before = site.engine(), agent.main_pid()
    api = {"host": "127.0.0.1", "port": 9470, "max_age_s": 4.0}
    site.write(node_profile(supervision="systemd", bmc=BMC, api=api), nodegate_agent_args="")
    assert site.run(site.play).changed == {"n1": 1}, "a change that the agent takes at its start alone"
    assert agent.main_pid() != before and site.engine() == engine != 0

    site.variables["nodegate_wheel"] = str(_wheel(site.rig.folder, "9.1.0"))
    site.write(node_profile(supervision="systemd", bmc=BMC, api=api), nodegate_agent_args="")
    site.run("upgrade_agent.yml")
    assert "9.1.0" in host.must(["nodegate", "--version"]) and site.engine() == engine
    assert site.run("upgrade_agent.yml").changed == {"n1": 0}
    agent.wait_ready()


def test_a_sick_release_goes_back(site: Site) -> None:
    agent, host = site.agent, site.rig["n1"]
    engine, good = site.engine(), host.must(["readlink", "/opt/nodegate"])
    wheel = _wheel(site.rig.folder, "9.2.0", sick=True)
    variables = {**site.variables, "nodegate_wheel": str(wheel)}
    words = [word for name, value in variables.items() for word in ("-e", f"{name}={value}")]
    done = site.run("upgrade_agent.yml", *words, "-e", "nodegate_agent_health_s=12", fails=True)
    said = " ".join(done.output.split())  # Ansible breaks long lines
    assert "its last line: this release is broken" in said and "runs again)" in said
    assert host.must(["readlink", "/opt/nodegate"]) == good and site.engine() == engine
    agent.wait_ready()


def test_pins_and_topology(site: Site) -> None:
    host = site.rig["n1"]
    data = yaml.safe_load((REPOSITORY / "agent/demo_nodes/h200-roce/profile.yaml").read_text())
    del data["gpus"]
    data |= {"node": "n1", "topology": {"nccl_file": TOPOLOGY}}
    data["engines"]["main"]["launch"]["command"] = EMBEDDED
    site.write(data, nodegate_agent_args="--node /var/lib/standin/node --profile /etc/nodegate/profile.yaml")
    play = site.rig.folder / "pins.yml"
    play.write_text(PINS)
    refused = site.run(play, fails=True)
    assert "pins and topology: not recorded yet" in " ".join(refused.output.split())
    file = site.rig.inventory / "profiles/n1.pins.yaml"
    site.run(play, "--check", "-e", "accept_pins=true")
    assert not file.exists()
    assert site.run(play, "-e", "accept_pins=true").changed == {"n1": 2}
    assert "system version" in host.read(TOPOLOGY) and "NCCL_TOPO_FILE" in host.read("/etc/nccl.conf")
    assert site.run(play).changed == {"n1": 0}
    text = file.read_text()
    uuid = yaml.safe_load(text)["gpus"]["pins"][3]["uuid"]
    file.write_text(text.replace(uuid, uuid[:-4] + "ffff"))
    other = site.run(play, "-e", "accept_pins=true", fails=True)
    said = " ".join(other.output.split())
    assert "slot 3: pinned" in said and "replace_pins=3" in said
    assert site.run(play, "-e", "accept_pins=true", "-e", "replace_pins=3").changed["n1"] == 1
    assert file.read_text() == text
