"""The systemd hosts that other tests stand on: real, apart, rebootable, and gone afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import uuid
from pathlib import Path

import pytest
from nspawn_rig import systemd_hosts, wait_for

# The first user of the shared root makes it.
pytestmark = [pytest.mark.root, pytest.mark.timeout(1200)]


MARK = "NODEGATE_TEST_RIG"


def _alive(mark: str) -> list[str]:
    """Command lines of the processes that this test, and no other that runs beside it, has started."""
    lines = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and f"{MARK}={mark}".encode() in (entry / "environ").read_bytes():
                lines.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue  # it has ended
    return lines


def _mounts() -> set[str]:
    """What this machine mounts, less namespaces and mounts of the tests beside this one."""
    lines = Path("/proc/self/mounts").read_text().splitlines()
    return {line for line in lines if "/run/netns" not in line and "/pytest-of-" not in line}


def _links() -> set[str]:
    return {entry.name for entry in Path("/sys/class/net").iterdir()}


def test_two_hosts_from_boot_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    mark, mounts, links = str(uuid.uuid4()), _mounts(), _links()
    monkeypatch.setenv(MARK, mark)
    with systemd_hosts("one", "two") as hosts:
        assert len([line for line in _alive(mark) if "nspawn" in line]) >= 2
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
        under_way = subprocess.Popen(one.words(["sleep", "600"]))
        try:  # a command that is under way must not hold the reboot
            wait_for("a command to run", lambda: one.run(["pgrep", "-fx", "sleep 600"]).returncode == 0)
            print(f"rebooted in {one.reboot():.1f} s")
            assert under_way.wait(10) == -signal.SIGTERM
        finally:
            under_way.kill()
            under_way.wait()
        assert one.read("/etc/kept") == "kept"
        assert one.must(["stat", "-c", "%a", "/etc/kept"]).strip() == "600"
        assert one.read("/proc/sys/kernel/random/boot_id") != boot_id
        assert one.read("/proc/sys/net/core/somaxconn").strip() != "8191"
        assert two.run(["test", "-e", "/etc/kept"]).returncode == 1
        folder = one.console.parent
    assert not folder.exists()
    assert not list(Path("/sys/fs/cgroup").glob(f"*/nodegate-test-{os.getpid()}-[ot]*-*"))
    assert _alive(mark) == []
    assert _mounts() - mounts == set()
    assert _links() - links == set()
