"""The systemd hosts that other tests stand on: real, apart, rebootable, and gone afterwards."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from nspawn_rig import systemd_hosts

# The first user of the shared root makes it.
pytestmark = [pytest.mark.root, pytest.mark.timeout(1200)]


def _processes() -> set[str]:
    return {entry.name for entry in Path("/proc").iterdir() if entry.name.isdigit()}


def _ours(pids: set[str]) -> list[str]:
    """Command lines of those that have to do with the hosts; other tests may run beside."""
    lines = []
    for pid in pids:
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if "nspawn" in line or "infinity" in line:
            lines.append(line)
    return lines


def test_two_hosts_from_boot_to_end() -> None:
    before, mounts = _processes(), Path("/proc/self/mounts").read_text()
    own_network = Path("/proc/net/dev").read_text().count("\n")
    with systemd_hosts("one", "two") as hosts:
        one, two = hosts["one"], hosts["two"]
        assert one.run(["systemctl", "is-system-running"]).stdout.strip() == "running"
        assert one.must(["nodegate", "--version"]).startswith("nodegate ")
        for link, address in two.addresses.items():
            one.must(["ping", "-c1", "-W5", address])
            two.cut(link)
            assert one.run(["ping", "-c1", "-W1", address]).returncode != 0
            two.heal(link)
            one.must(["ping", "-c3", "-W5", address])

        one.write("/etc/kept", "kept", 0o600)
        one.must(["sysctl", "-qw", "net.core.somaxconn=8191"])
        boot_id = one.read("/proc/sys/kernel/random/boot_id")
        print(f"rebooted in {one.reboot():.1f} s")
        assert one.read("/etc/kept") == "kept"
        assert one.must(["stat", "-c", "%a", "/etc/kept"]).strip() == "600"
        assert one.read("/proc/sys/kernel/random/boot_id") != boot_id
        assert one.read("/proc/sys/net/core/somaxconn").strip() != "8191"
        assert two.run(["test", "-e", "/etc/kept"]).returncode == 1
        folder = one.console.parent
    assert not folder.exists()
    assert not list(Path("/sys/fs/cgroup").glob(f"*/nodegate-test-{os.getpid()}-*"))
    assert _ours(_processes() - before) == []
    assert Path("/proc/self/mounts").read_text() == mounts
    assert Path("/proc/net/dev").read_text().count("\n") == own_network
