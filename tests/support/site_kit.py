"""A whole site for tests: fresh hosts, a BMC for each, an inventory with profiles as layers and a vault.

    with site_of("n1", "n2") as site:
        site.play("site.yml").must()

Hosts and BMCs are SIMULATED as tests/README.md says; Ansible, ssh, systemd, TLS and vault are real. A reset
by a BMC reboots its host.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import secrets
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from bmc_image import make_image
from nspawn_rig import wait_for
from provision_rig import ProvisionRig, Run, provision_hosts
from redfish_server import make_certificates, signed

REPOSITORY = Path(__file__).resolve().parents[2]
BMC_PROGRAM = REPOSITORY / "tests/bmc/serve.py"
BMC_USER = "provisioner"
FIRST_PORT = 8440
PROFILE = Path(__file__).with_name("site_profile.yaml")
ON_RESET = """#!/bin/sh
d=$(dirname "$0")/resets
echo "$1" > "$d/{name}.$$" && mv "$d/{name}.$$" "$d/{name}"
"""
PSID, NIC_VERSION = "MT_0000000838", "28.43.2566"
BMC_IMAGES: tuple[tuple[str, str, dict[str, str], str], ...] = (
    (
        "hgx",
        "hgx",
        {"HGX_FW_GPU_SXM_*": "97.10.1A.00.01", "HGX_FW_NVSwitch_*": "97.10.6D.00.01"},
        "ac_power_cycle",
    ),
    ("disks", "ssd", {"SSD_*": "1.3.0"}, "reset"),
)
#: The canary, then all others at once.
BATCHES = "nodegate_serial=1,100%"
#: Asked of a BMC's side door, in the controller's network.
ASK = (
    "import json, sys, urllib.request as u\n"
    "method, url, body = sys.argv[1:]\n"
    "print(u.urlopen(u.Request(url, body.encode() or None, method=method), timeout=10).read().decode())\n"
)


class Site:
    """The hosts, their BMCs and the folder of the inventory."""

    def __init__(self, rig: ProvisionRig, folder: Path) -> None:
        """Nothing runs yet."""
        self.rig, self.folder = rig, folder
        self.password = f"Pw-{secrets.token_hex(12)}"
        self.vault_key = f"Vk-{secrets.token_hex(12)}"
        self.inventory = rig.inventory
        self.doors: dict[str, str] = {}
        self._bmcs: list[subprocess.Popen[str]] = []
        self._done = threading.Event()
        self._resets = threading.Thread(target=self._follow_resets, daemon=True)
        (folder / "resets").mkdir()
        self.ca = make_certificates(folder).ca
        self.certificate = signed(folder, self.ca, "bmc", f"IP:{rig.controller_address}")

    def start(self) -> None:
        """Start the BMCs, write the inventory."""
        ports = {}
        for number, name in enumerate(self.rig.hosts):
            ports[name] = FIRST_PORT + number
            self._start_bmc(name, ports[name])
        self._resets.start()
        self._write(ports)

    def _start_bmc(self, name: str, port: int) -> None:
        script, password = self.folder / f"on-reset-{name}", self.folder / "bmc-password"
        script.write_text(ON_RESET.format(name=name))
        script.chmod(0o755)
        password.write_text(self.password)
        argv = [
            sys.executable, str(BMC_PROGRAM), "--listen", f"{self.rig.controller_address}:{port}",
            "--cert", str(self.certificate), "--vendor", "dell", "--cpu", "amd", "--name", name,
            "--username", BMC_USER, "--password-file", str(password), "--on-reset", str(script),
        ]  # fmt: skip
        process = subprocess.Popen(self.rig.network.words(argv), stdout=subprocess.PIPE, text=True)
        self._bmcs.append(process)
        assert process.stdout is not None
        self.doors[name] = json.loads(process.stdout.readline())["control"]

    def _follow_resets(self) -> None:
        """A host whose BMC resets it reboots, whatever others do: Ansible must not find it before that."""
        threads = []
        while not self._done.wait(0.05):
            for mark in (self.folder / "resets").iterdir():
                if "." not in mark.name:
                    mark.unlink()
                    # Whoever ordered it waits until the host is back.
                    threads.append(threading.Thread(target=self.rig[mark.name].reset))
                    threads[-1].start()
        for thread in threads:
            thread.join(60)

    def _write(self, ports: Mapping[str, int]) -> None:
        everywhere = {
            **self.rig.install_variables(),
            "nodegate_bmc_username": BMC_USER,
            "nodegate_bmc_ca_file": str(self.ca),
            "nodegate_agent_args": "--node /var/lib/standin/node --profile /etc/nodegate/profile.yaml",
            "nodegate_boot_time_command": "stat -c %Y /proc/1",
            "nodegate_bmc_patience_s": 20,
            "accept_pins": True,
            "verify_wait_s": 90,
            "reboot_timeout_s": 600,
        }
        self.rig.write_inventory(everywhere=everywhere)
        tree = yaml.safe_load(PROFILE.read_text())
        tree["bmc"]["images"] = self._bmc_images()
        tree["fabric"]["nic"]["images"] = [self._nic_image()]
        self.layer("all", tree)
        for name, port in ports.items():
            url = f"https://{self.rig.controller_address}:{port}"
            self.layer(name, {"node": name, "bmc": {"redfish": {"url": url}}})
        (self.folder / "vault-key").write_text(self.vault_key)
        (self.folder / "vault-key").chmod(0o600)
        self.vault({})

    def _image(self, name: str, data: bytes) -> dict[str, str]:
        path = self.inventory / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return {"image": f"images/{name}", "sha256": hashlib.sha256(data).hexdigest()}

    def _bmc_images(self) -> dict[str, Any]:
        """Firmware of the baseboard and of the disks, each newer than what the BMCs begin with."""
        found = {}
        for name, kind, versions, activation in BMC_IMAGES:
            file = self._image(f"{name}.bin", make_image(versions))
            found[name] = {
                "kind": kind,
                "versions": versions,
                "activation": activation,
                **file,
                "back_within_s": 300.0,
            }
        return found

    def _nic_image(self) -> dict[str, str]:
        file = self._image("nic.bin", nic_image(PSID, NIC_VERSION).encode())
        return {"board_id": PSID, "version": NIC_VERSION, **file}

    def vault(self, secrets_of_more: Mapping[str, Any]) -> None:
        """Write the site's vault: the BMCs' password, and more."""
        variables = {"nodegate_bmc_password": self.password, **secrets_of_more}
        path = self.inventory / "group_vars/all/vault.yml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(variables))
        words = [
            "ansible-vault",
            "encrypt",
            "--vault-password-file",
            str(self.folder / "vault-key"),
            str(path),
        ]
        done = self.rig.run(*words)
        assert done.returncode == 0, done.stdout

    def layer(self, name: str, tree: Mapping[str, Any]) -> Path:
        """Write a layer of the site's profiles."""
        path = self.inventory / "profiles" / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(dict(tree), sort_keys=False))
        return path

    def play(self, playbook: str, *words: str, timeout: float = 900.0) -> Run:
        """Run one of the project's playbooks over the site."""
        key = ("--vault-password-file", str(self.folder / "vault-key"), "-e", BATCHES)
        return self.rig.ansible(
            playbook, *key, *words, timeout=timeout, inventory=self.inventory / "hosts.yml"
        )

    def bmc(self, name: str, method: str, path: str, **body: Any) -> Any:
        """Ask the side door of a host's BMC."""
        sent = json.dumps(body) if method == "POST" else ""
        done = self.rig.run(sys.executable, "-c", ASK, method, f"{self.doors[name]}{path}", sent)
        assert done.returncode == 0, done.stdout
        return json.loads(done.stdout or "null")

    def close(self) -> None:
        """End the BMCs."""
        self._done.set()
        for process in self._bmcs:
            process.terminate()
        for process in self._bmcs:
            process.wait(60)
            assert process.stdout is not None
            process.stdout.close()
        if self._resets.ident is not None:
            self._resets.join(60)


def nic_image(psid: str, version: str) -> str:
    """An image that the stand-in's flint takes."""
    total = hashlib.sha256(f"{psid} {version}".encode()).hexdigest()
    return f"STANDIN-IMAGE psid={psid} version={version} sum={total}\n"


@contextlib.contextmanager
def site_of(*names: str) -> Iterator[Site]:
    """Fresh hosts, BMCs and inventory; all of it is gone at the end."""
    with provision_hosts(*names) as rig:
        folder = rig.folder / "site"
        folder.mkdir()
        site = Site(rig, folder)
        try:
            site.start()
            wait_for("BMCs", lambda: len(site.doors) == len(names), 20)
            yield site
        finally:
            site.close()
