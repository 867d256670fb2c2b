"""Fresh hosts that Ansible provisions over ssh, each with a stand-in 8-GPU node. For tests marked `root`.

    with provision_hosts("n1", "n2") as rig:
        recap = rig.ansible(rig.folder / "play.yml")
        assert recap.hosts["n1"].failed == 0
        rig["n1"].run(["nvidia-smi", "-L"])

Ansible runs in the controller's network namespace with this repository's ansible.cfg and nothing of the
developer's environment; host keys are checked. Hosts have no /opt/nodegate: the agent role installs it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from nspawn_rig import NETWORKS, Host, Making, systemd_hosts
from standin_seed import HOME, REPOSITORY, make_common, make_own
from wheelhouse import REQUIREMENTS, project_wheel, wheelhouse

ANSIBLE_WITHIN_S = 300.0
SSHD = "HostKey /etc/ssh/ssh_host_ed25519_key\nPermitRootLogin prohibit-password\nUseDNS no\n"
#: nspawn forbids them; the stand-in's sysfs needs them.
MORE_CALLS = ("--system-call-filter=fanotify_init fanotify_mark",)
_RECAP = re.compile(
    r"^(?P<host>\S+)\s+: ok=(?P<ok>\d+)\s+changed=(?P<changed>\d+)\s+unreachable=(?P<unreachable>\d+)"
    r"\s+failed=(?P<failed>\d+)\s+skipped=(?P<skipped>\d+)\s+rescued=(?P<rescued>\d+)\s+ignored=(?P<ignored>\d+)",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Tally:
    """One host's line of PLAY RECAP."""

    ok: int
    changed: int
    unreachable: int
    failed: int
    skipped: int
    rescued: int
    ignored: int


@dataclass(frozen=True)
class Run:
    """What a run of ansible-playbook gave."""

    status: int
    output: str
    hosts: Mapping[str, Tally]
    took_s: float

    def must(self) -> Run:
        """This run, if nothing failed; the test ends with its output if something did."""
        bad = [name for name, tally in self.hosts.items() if tally.failed or tally.unreachable]
        assert self.status == 0 and self.hosts and not bad, f"status {self.status}:\n{self.output[-8000:]}"
        return self

    @property
    def changed(self) -> dict[str, int]:
        """How many tasks changed something, by host."""
        return {name: tally.changed for name, tally in self.hosts.items()}


def parse_recap(output: str) -> dict[str, Tally]:
    """PLAY RECAP by host."""
    found = {}
    for match in _RECAP.finditer(output):
        numbers = {key: int(value) for key, value in match.groupdict().items() if key != "host"}
        found[match["host"]] = Tally(**numbers)
    return found


class ProvisionRig:
    """The hosts and the controller beside them."""

    def __init__(self, hosts: Mapping[str, Host], folder: Path) -> None:
        """`folder` is the controller's own: keys, inventory, home."""
        self.hosts = hosts
        self.folder = folder
        self.network = next(iter(hosts.values())).network
        self.inventory = folder / "inventory"
        self.write_inventory()

    def __getitem__(self, name: str) -> Host:
        return self.hosts[name]

    def address(self, name: str) -> str:
        """Where Ansible reaches a host."""
        return self.hosts[name].addresses["mgmt"]

    @property
    def controller_address(self) -> str:
        """This side's address in the hosts' management network: where a BMC emulator can listen."""
        return f"{NETWORKS['mgmt']}.1"

    def connection(self, name: str) -> dict[str, Any]:
        """Inventory variables by which Ansible reaches a host; the stand-in's sysfs with them."""
        return {
            "ansible_host": self.address(name),
            "ansible_user": "root",
            "ansible_python_interpreter": "/usr/bin/python3",
            "ansible_ssh_private_key_file": str(self.folder / "key"),
            "ansible_ssh_common_args": f"-o UserKnownHostsFile={self.folder / 'known_hosts'}"
            " -o StrictHostKeyChecking=yes -o IdentitiesOnly=yes -F none",
            "nodegate_sys_root": f"/{HOME}/sys",
        }

    def write_inventory(
        self,
        *,
        variables: Mapping[str, Mapping[str, Any]] | None = None,
        everywhere: Mapping[str, Any] | None = None,
        groups: Mapping[str, list[str]] | None = None,
    ) -> Path:
        """Write inventory/hosts.yml: all hosts, with variables of each, of all, and groups of hosts."""
        own = variables or {}
        hosts = {name: {**self.connection(name), **own.get(name, {})} for name in self.hosts}
        children = {group: {"hosts": dict.fromkeys(names)} for group, names in (groups or {}).items()}
        whole: dict[str, Any] = {"hosts": hosts, "vars": dict(everywhere or {})}
        if children:
            whole["children"] = children
        self.inventory.mkdir(exist_ok=True)
        path = self.inventory / "hosts.yml"
        path.write_text(yaml.safe_dump({"all": whole}, sort_keys=False))
        return path

    def environment(self) -> dict[str, str]:
        """What commands of the controller see: the environment that the tests run in, nobody's settings."""
        scripts = Path(sys.executable).parent
        return {
            "PATH": f"{scripts}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": str(self.folder / "home"),
            "LANG": "C.UTF-8",
            "ANSIBLE_CONFIG": str(REPOSITORY / "ansible.cfg"),
            "ANSIBLE_NOCOLOR": "1",
            "PYTHONDONTWRITEBYTECODE": "",
        }

    def run(
        self, *argv: str, timeout: float = ANSIBLE_WITHIN_S, extra: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command of the controller beside the hosts, in the repository; errors are in the output."""
        return subprocess.run(
            self.network.words(list(argv)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=timeout,
            check=False,
            cwd=REPOSITORY,
            env={**self.environment(), **(extra or {})},
        )

    def ansible(
        self,
        playbook: Path | str,
        *words: str,
        timeout: float = ANSIBLE_WITHIN_S,
        inventory: Path | None = None,
        extra: Mapping[str, str] | None = None,
    ) -> Run:
        """Run a playbook; a name without a folder is one of the repository's playbooks."""
        path = Path(playbook)
        if len(path.parts) == 1:
            path = REPOSITORY / "playbooks" / path
        began_s = time.monotonic()
        argv = ["ansible-playbook", "-i", str(inventory or self.inventory), str(path), *words]
        done = self.run(*argv, timeout=timeout, extra=extra)
        return Run(done.returncode, done.stdout, parse_recap(done.stdout), time.monotonic() - began_s)

    def install_variables(self) -> dict[str, Any]:
        """Inventory variables by which the agent role installs this working tree without the network."""
        return {
            "nodegate_wheel": str(project_wheel()),
            "nodegate_wheelhouse": str(wheelhouse()),
            "nodegate_requirements": str(REQUIREMENTS),
            "nodegate_install_cache": str(self.folder / "install"),
        }

    def order_faults(self, name: str, *faults: Mapping[str, Any]) -> None:
        """Tell a host's stand-in tools to fail, hang or lie: {tool, match, do, message, status, times}."""
        self.hosts[name].write(f"/{HOME}/faults.json", json.dumps(list(faults)))

    def drop_connections(self) -> None:
        """End ssh's kept connections: one of a host that is off would be waited for."""
        for socket in (self.folder / "home/.ansible/cp").glob("*"):
            self.run("ssh", "-F", "none", "-o", f"ControlPath={socket}", "-O", "exit", "host", timeout=20)


@contextlib.contextmanager
def provision_hosts(*names: str, premade: bool = False) -> Iterator[ProvisionRig]:
    """Boot fresh hosts with sshd and a stand-in node each, and switch them off at the end.

    `premade`: the project is already there, as on other test hosts (/opt/nodegate, /opt/repo).
    """
    with tempfile.TemporaryDirectory(prefix="nodegate-rig-") as temporary, contextlib.ExitStack() as ends:
        folder = Path(temporary)
        (folder / "home").mkdir(mode=0o700)
        _key(folder / "key")
        with _machine_modules():
            make_common(folder / "common")
            known = [_host_seed(folder, name, i) for i, name in enumerate(names)]
        (folder / "known_hosts").write_text("".join(known))
        makings = {name: Making((folder / "common", folder / "seeds" / name), premade) for name in names}
        hosts = ends.enter_context(systemd_hosts(*names, more=MORE_CALLS, makings=makings))
        rig = ProvisionRig(hosts, folder)
        ends.callback(rig.drop_connections)
        for name in names:
            _wait_for_ssh(hosts[name])
        yield rig
        ends.close()


@contextlib.contextmanager
def _machine_modules() -> Iterator[None]:
    """The stand-in's own modules can be imported."""
    path = str(REPOSITORY / "tests/standin/machine")
    sys.path.insert(0, path)
    try:
        yield
    finally:
        sys.path.remove(path)


def _host_seed(folder: Path, name: str, number: int) -> str:
    """What only this host has; its line of known_hosts."""
    seed = folder / "seeds" / name
    make_own(seed, name, number)
    ssh = seed / "etc/ssh"
    (ssh / "sshd_config.d").mkdir(parents=True)
    (ssh / "sshd_config.d/standin.conf").write_text(SSHD)
    _key(ssh / "ssh_host_ed25519_key")
    home = seed / "root/.ssh"
    home.mkdir(parents=True, mode=0o700)
    shutil.copy(folder / "key.pub", home / "authorized_keys")
    (seed / "root").chmod(0o700)
    seed.chmod(0o755)
    kind, key = (ssh / "ssh_host_ed25519_key.pub").read_text().split()[:2]
    return f"{NETWORKS['mgmt']}.{10 + number} {kind} {key}\n"


def _key(path: Path) -> None:
    words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "nodegate-test", "-f", str(path)]
    subprocess.run(words, check=True, timeout=30, stdin=subprocess.DEVNULL)


def _wait_for_ssh(host: Host, patience_s: float = 30.0) -> None:
    """Until sshd says who it is."""
    end_s = time.monotonic() + patience_s
    while time.monotonic() < end_s:
        with contextlib.suppress(OSError), host.connect(22) as connection:
            if connection.recv(4) == b"SSH-":
                return _refuse_broken(host)
        time.sleep(0.05)
    raise AssertionError(f"{host.name}: no sshd within {patience_s:g} s\n{os.linesep}")


def _refuse_broken(host: Host) -> None:
    """A stand-in that did not boot must not look like a node that is badly provisioned."""
    for unit in ("standin-boot.service", "standin-sysfs.service"):
        done = host.run(["systemctl", "is-active", unit])
        assert done.returncode == 0, f"{host.name}: {unit} is {done.stdout.strip()}:\n{host.journal(unit)}"
