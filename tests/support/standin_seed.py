"""The stand-in node as folders that are laid over a test host's root: its files, tools and units.

One common folder for all hosts, and a small one for each with its own UUIDs, serial numbers and addresses.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import shutil
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
STANDIN = REPOSITORY / "tests/standin"
DEMO = REPOSITORY / "agent/demo_nodes/h200-roce"
HOME = "var/lib/standin"
LIBRARY = "usr/local/lib/standin"
#: Burned and running on a fresh host, older than what the demo node's profile asks for.
FIRST_FIRMWARE = "28.39.3004"
PSID = "MT_0000000838"
PART = "MCX75310AAS-NEA_Ax"
#: Files that the captured node lacks and drivers have.
MORE_FILES = {
    "class/infiniband/{device}/tc/1/traffic_class": "",
    "kernel/config/rdma_cm/{device}/ports/1/default_roce_tos": "0\n",
}
#: What all UUIDs of the demo node share.
_MARK = "0d15ea5e"
LIVE = {
    # Not the clock: it is this machine's, and no role can set it here.
    "host": ["units", "disks", "mounts"],
    "documents": ["nvml", "net"],
    "bmc": True,
    "tree": {
        "sys": f"/{HOME}/sys",
        "proc/sys": "/proc/sys",
        # Not through /proc/sys: a unit with a sandbox gets a fresh /proc, where the copies are not.
        **{f"proc/sys/{name}": f"/run/standin/{name}" for name in ("vm", "kernel", "fs")},
        "proc/cmdline": f"/{HOME}/proc/cmdline",
        "proc/swaps": f"/{HOME}/proc/swaps",
        "proc/self/mounts": "/proc/self/mounts",
        "etc": "/etc",
        "var/lib/dpkg": "/var/lib/dpkg",
        # Environments of engines.
        "opt": "/opt",
        # Records of what only root can read.
        "run": "/run",
    },
}


def make_common(folder: Path) -> None:
    """What all hosts share: sysfs, tools, units."""
    expand(folder / HOME)
    library = folder / LIBRARY
    library.mkdir(parents=True)
    programs = folder / "usr/local/sbin"
    programs.mkdir(parents=True)
    for file in (STANDIN / "machine").glob("*.py"):
        shutil.copy(file, library)
    for file in (STANDIN / "tools").glob("*.py"):
        shutil.copy(file, library)
        (library / file.name).chmod(0o755)
        (programs / file.stem).symlink_to(f"../lib/standin/{file.name}")
    units = folder / "etc/systemd/system"
    wants = units / "sysinit.target.wants"
    wants.mkdir(parents=True)
    for file in (STANDIN / "units").glob("*.service"):
        shutil.copy(file, units)
        if file.name.startswith("standin-"):
            (wants / file.name).symlink_to(f"../{file.name}")
    (folder / "etc/fstab").write_text("/swap.img none swap sw 0 0\n")
    (folder / "etc/default/grub.d").mkdir(parents=True)
    (folder / "etc/default/grub").write_text(
        'GRUB_DEFAULT=0\nGRUB_TIMEOUT=0\nGRUB_CMDLINE_LINUX_DEFAULT="quiet splash"\nGRUB_CMDLINE_LINUX=""\n'
    )


def expand(home: Path) -> None:
    """tree.json and links.json as real files and links below sys/; the rest as a smaller tree.json."""
    files: dict[str, Any] = json.loads((DEMO / "tree.json").read_text())
    links: dict[str, str] = json.loads((DEMO / "links.json").read_text())
    real = {link: _real_target(link, target) for link, target in links.items() if link.startswith("sys/")}
    for path, value in files.items():
        if path.startswith("sys/"):
            _put(home / _resolved(path, real), value)
    for link, target in real.items():
        at = home / link
        at.parent.mkdir(parents=True, exist_ok=True)
        (home / target).mkdir(parents=True, exist_ok=True)
        at.symlink_to(posixpath.relpath(target, posixpath.dirname(link)))
    for device in sorted(path.name for path in (home / "sys/class/infiniband").iterdir()):
        for path, text in MORE_FILES.items():
            _put(home / "sys" / path.format(device=device), text)
    for path, value in files.items():
        if path.startswith("lib/modules/"):
            _put(home.parents[2] / "usr" / path, value)  # /lib is a link
    (home / "proc").mkdir()
    node = home / "node"
    node.mkdir()
    rest = {path: value for path, value in files.items() if not _is_live(path)}
    (node / "tree.json").write_text(json.dumps(rest, indent=1) + "\n")
    for name in ("host.json", "kmsg.txt"):
        shutil.copy(DEMO / name, node)


def _is_live(path: str) -> bool:
    return any(path == prefix or path.startswith(f"{prefix}/") for prefix in LIVE["tree"])


def _real_target(link: str, target: str) -> str:
    """Where a link leads; class devices of the capture name only the PCI device."""
    joined = posixpath.normpath(posixpath.join(posixpath.dirname(link), target))
    if joined.startswith(("sys/devices/", "sys/kernel/")):
        return joined
    return f"sys/bus/pci/devices/{posixpath.basename(target)}"


def _resolved(path: str, real: dict[str, str]) -> str:
    """The path with the links in it followed."""
    for _hop in range(8):
        parts = path.split("/")
        for i in range(1, len(parts) + 1):
            link = "/".join(parts[:i])
            if link in real:
                path = "/".join([real[link], *parts[i:]])
                break
        else:
            return path
    raise ValueError(f"{path}: too many links")


def _put(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(value, dict):
        path.write_bytes(bytes.fromhex(value["hex"]))
    else:
        path.write_text(value if not value or value.endswith("\n") else f"{value}\n")


def make_own(folder: Path, name: str, number: int) -> None:
    """What only this host has: who its parts are, and the state of their firmware."""
    home = folder / HOME
    node = home / "node"
    node.mkdir(parents=True)
    own_mark = f"0d15e{number:03x}"
    nvml = json.loads((DEMO / "nvml.json").read_text())
    for gpu in nvml["gpus"]:
        identity = gpu["identity"]
        identity["uuid"] = identity["uuid"].replace(_MARK, own_mark)
        identity["serial"] = f"{int(identity['serial']) + 100 * number}"
    net = json.loads((DEMO / "net.json").read_text())
    for port in net.values():
        port["module"]["serial"] += f"-{number}"
    (node / "nvml.json").write_text(json.dumps(nvml, indent=1) + "\n")
    (node / "net.json").write_text(json.dumps(net, indent=1) + "\n")
    (node / "node.yaml").write_text(node_yaml(name))
    profile = (DEMO / "profile.yaml").read_text().replace(_MARK, own_mark)
    (node / "profile.yaml").write_text(profile.replace("node: h200-roce", f"node: {name}"))
    (home / "machine.json").write_text(json.dumps(machine(nvml, net), indent=1) + "\n")


def node_yaml(name: str) -> str:
    """node.yaml; JSON is YAML."""
    return (
        f"schema: 1\nname: {name}\nplatform: h200\nsimulated: true\n"
        "description: stand-in node of a test host, changed by stand-in tools\n"
        "captured_s: 1795967760.0\ncaptured_mono_s: 93784.25\nboot_id: unset\ndriver: 580.159.04\n"
        f"filled_in: [all]\nlive: {json.dumps(LIVE)}\n"
    )


def machine(nvml: dict[str, Any], net: dict[str, Any]) -> dict[str, Any]:
    """machine.json of a fresh host."""
    import standin_nv

    nics = {
        f"mlx5_{i}": {
            "bdf": port["driver"]["bus_info"],
            "netdev": netdev,
            "psid": PSID,
            "part": PART,
            "burned": FIRST_FIRMWARE,
            "running": FIRST_FIRMWARE,
            "nv": standin_nv.fresh(),
        }
        for i, (netdev, port) in enumerate(net.items())
    }
    gpus = {gpu["identity"]["uuid"]: {"mig_pending": True, "ecc_pending": True} for gpu in nvml["gpus"]}
    return {"driver_version": nvml["system"]["driver_version"], "nics": nics, "gpus": gpus}


def nic_image(psid: str, version: str) -> str:
    """A firmware image as the stand-in for flint takes it."""
    total = hashlib.sha256(f"{psid} {version}".encode()).hexdigest()
    return f"STANDIN-IMAGE psid={psid} version={version} sum={total}\n"
