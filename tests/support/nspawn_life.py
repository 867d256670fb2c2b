"""The life of one systemd host, run by nspawn_rig.py in a mount namespace of its own: boots until it is off.

Everything that it mounts is in that namespace, so it is gone with the last process of the host. The network
namespace is made anew for each boot: one that outlived it would keep its sysctls, unlike a machine.

    python nspawn_life.py JSON    name, group, root, folder, seeds, removed, binds, network_pid, links, more
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

#: What `systemd-nspawn --keep-unit` exits with when the system inside asks for a reboot.
REBOOT = 133
ANCHOR_WITHIN_S = 60
GROUP_WITHIN_S = 60


def command(*words: str) -> None:
    """Run it, or end with its error."""
    subprocess.run(words, check=True, timeout=60, stdin=subprocess.DEVNULL)


def mount_root(life: dict[str, Any]) -> Path:
    """The shared root below, a tmpfs above; the machine's own overlays are left alone."""
    folder = Path(life["folder"])
    command("mount", "-t", "tmpfs", "-o", "mode=0755", "nodegate-test", str(folder))
    upper, work, merged = (folder / name for name in ("upper", "work", "merged"))
    for each in (upper, work, merged):
        each.mkdir()
    options = f"lowerdir={life['root']},upperdir={upper},workdir={work}"
    command("mount", "-t", "overlay", "-o", options, "overlay", str(merged))
    # Where /run lies on a disk, nspawn refuses to clear this folder at its second start.
    Path("/run/systemd/nspawn").mkdir(parents=True, exist_ok=True)
    command("mount", "-t", "tmpfs", "tmpfs", "/run/systemd/nspawn")
    # With an identity of its own a host does not take every boot for its first.
    identity = hashlib.sha256(life["name"].encode()).hexdigest()[:32]
    (merged / "etc/machine-id").write_text(identity + "\n")
    (merged / "etc/hostname").write_text(life["name"] + "\n")
    for path in life["removed"]:
        shutil.rmtree(merged / path)
    for seed in life["seeds"]:
        command("cp", "-a", f"{seed}/.", str(merged))
    return merged


def make_network(life: dict[str, Any]) -> subprocess.Popen[bytes]:
    """A network namespace with the links of the host; it lives as long as the process that is returned."""
    own = Path("/proc/self/ns/net").readlink()
    anchor = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "sleep", "infinity"])
    until_s = time.monotonic() + ANCHOR_WITHIN_S
    while Path(f"/proc/{anchor.pid}/ns/net").readlink() == own:
        if time.monotonic() > until_s:
            raise SystemExit("no network namespace in time")
        time.sleep(0.005)
    inside = ["nsenter", "-t", str(anchor.pid), "-n", "ip"]
    outside = ["nsenter", "-t", str(life["network_pid"]), "-n", "ip"]
    command(*inside, "link", "set", "lo", "up")
    for link in life["links"]:
        port, name = link["port"], link["name"]
        # The kernel takes a namespace down when it finds time: until then the port of the last boot is there.
        subprocess.run([*outside, "link", "del", port], check=False, stderr=subprocess.DEVNULL)
        add = [*outside, "link", "add", port, "type", "veth", "peer", "name", name, "netns", str(anchor.pid)]
        while subprocess.run(add, check=False).returncode and time.monotonic() < until_s:
            time.sleep(0.02)
        command(*outside, "link", "set", port, "master", link["bridge"], "up")
        command(*inside, "addr", "add", link["address"], "dev", name)
        command(*inside, "link", "set", name, "up")
    return anchor


class ControlGroups:
    """Control groups of the host's own: with --keep-unit alone, hosts share one tree and end each other."""

    def __init__(self, name: str) -> None:
        """Make one in every hierarchy that systemd uses, and go there."""
        bases = [Path("/sys/fs/cgroup") / part for part in ("systemd", "unified", "")]
        self._bases = [base for base in bases if (base / "cgroup.procs").exists()]
        self._name = f"nodegate-test-{name}"
        for base in self._bases:
            (base / self._name).mkdir()
            (base / self._name / "cgroup.procs").write_text(str(os.getpid()))

    def clear(self) -> None:
        """Remove what a system that is off has left of its groups."""
        for base in self._bases:
            for folder, _, _ in os.walk(base / self._name, topdown=False):
                if Path(folder) != base / self._name:
                    _remove_group(Path(folder))

    def close(self) -> None:
        """Leave, and remove them."""
        self.clear()
        for base in self._bases:
            (base / "cgroup.procs").write_text(str(os.getpid()))
            _remove_group(base / self._name)


def _remove_group(folder: Path) -> None:
    """Remove one; a process in it that has just been killed holds it for a moment."""
    until_s = time.monotonic() + GROUP_WITHIN_S
    while True:
        try:
            return folder.rmdir()
        except OSError:
            if time.monotonic() > until_s:
                raise
            time.sleep(0.01)


def boot(life: dict[str, Any], merged: Path, network: int) -> subprocess.Popen[bytes]:
    """Start the system."""
    words = [
        "setpriv", "--pdeathsig", "TERM",
        "systemd-nspawn", "--quiet", "--boot", "--directory", str(merged), f"--machine={life['name']}",
        f"--network-namespace-path=/proc/{network}/ns/net", "--keep-unit", "--register=no",
        "--link-journal=no", "--resolv-conf=off", "--timezone=off", "--console=pipe",
        *(f"--bind-ro={bind}" for bind in life["binds"]), *life["more"],
    ]  # fmt: skip
    environment = {**os.environ, "SYSTEMD_NSPAWN_API_VFS_WRITABLE": "network"}
    return subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL)


def main() -> int:
    """Boot again for as long as the host asks for it."""
    life = json.loads(sys.argv[1])
    merged = mount_root(life)
    stopped: list[int] = []
    running: list[subprocess.Popen[bytes]] = []
    anchor: subprocess.Popen[bytes] | None = None

    def stop(number: int, frame: object) -> None:
        stopped.append(number)
        for process in running:
            process.send_signal(signal.SIGTERM)

    signal.signal(signal.SIGTERM, stop)
    groups = ControlGroups(life["group"])
    try:
        while True:
            anchor = make_network(life)
            running[:] = [boot(life, merged, anchor.pid)]
            status = running[0].wait()
            running.clear()
            anchor.kill()
            anchor.wait()
            if status != REBOOT or stopped:
                return status
            groups.clear()
    finally:
        if anchor is not None and anchor.poll() is None:
            anchor.kill()
            anchor.wait()
        groups.close()


if __name__ == "__main__":
    sys.exit(main())
