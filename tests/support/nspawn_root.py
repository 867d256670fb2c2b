"""The Debian file system that the systemd hosts of the tests share: made once by mmdebstrap, then kept.

It lies outside the repository, under a name that changes with what is in it. Hosts never write into it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

SUITE = "bookworm"
#: Raise it when `_finish` changes.
EDITION = 2
PACKAGES = (
    "ca-certificates", "dbus", "ethtool", "iproute2", "iputils-ping", "kmod", "nftables", "openssh-server",
    "openssl", "pciutils", "polkitd", "procps", "python3", "python3-apt", "python3-venv", "sudo", "systemd",
    "systemd-sysv", "udev",
)  # fmt: skip
CACHE = Path(os.environ.get("NODEGATE_TEST_CACHE", "/var/cache/nodegate-test"))
BUILD_DEADLINE_S = 900
NOISE = ("apt-daily.timer", "apt-daily-upgrade.timer", "console-getty.service", "dpkg-db-backup.timer")
REPOSITORY = Path(__file__).resolve().parents[2]
#: Inside a host: the repository and the packages of the environment that the tests run in, both read-only.
REPO_INSIDE = "/opt/repo"
PACKAGES_INSIDE = "/opt/site-packages"
VENV_INSIDE = "/opt/nodegate"
#: What a host that is to be provisioned must not have: the environment, and the folders for the binds.
PREMADE = (VENV_INSIDE, REPO_INSIDE, PACKAGES_INSIDE)
_ENTRY = f"#!{VENV_INSIDE}/bin/python\nimport sys\nfrom agent.cli import main\nsys.exit(main())\n"


def nspawn_root() -> Path:
    """The folder of the root, made if it is not there; one test run makes it, others wait for that."""
    _refuse_other_python()
    text = "\n".join((SUITE, str(EDITION), *PACKAGES))
    root = CACHE / f"{SUITE}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not root.is_dir():
            _build(root)
    return root


def binds() -> list[str]:
    """What every host sees of this machine, as `SOURCE:TARGET`."""
    return [f"{REPOSITORY}:{REPO_INSIDE}", f"{sysconfig.get_path('purelib')}:{PACKAGES_INSIDE}"]


def _refuse_other_python() -> None:
    """The packages of this environment are used by the Python of the root: both must be 3.11."""
    if sys.version_info[:2] != (3, 11):
        raise RuntimeError(
            f"the test hosts run Debian {SUITE}'s Python 3.11, this environment another "
            f"({sys.version.split()[0]}): remove .venv and run make PYTHON=python3.11 test-root"
        )


def _build(root: Path) -> None:
    """mmdebstrap into a folder beside, renamed when it is whole."""
    began_s = time.monotonic()
    part = root.with_suffix(".part")
    if part.exists():
        shutil.rmtree(part)
    print(f"making {root} with mmdebstrap, once", file=sys.stderr)
    subprocess.run(
        ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(PACKAGES)}", SUITE, str(part)],
        check=True,
        timeout=BUILD_DEADLINE_S,
        stdin=subprocess.DEVNULL,
    )
    _finish(part)
    part.rename(root)
    print(f"made in {time.monotonic() - began_s:.0f} s", file=sys.stderr)


def _finish(part: Path) -> None:
    """What Debian does not bring: an environment as on a real node; its packages are bound."""
    inside = ["chroot", str(part), "/usr/bin/python3", "-m", "venv", "--without-pip", VENV_INSIDE]
    subprocess.run(inside, check=True, timeout=60)
    venv = part / VENV_INSIDE.lstrip("/")
    path_file = venv / "lib/python3.11/site-packages/nodegate.pth"
    path_file.write_text(f"{REPO_INSIDE}\n{PACKAGES_INSIDE}\n")
    entry = venv / "bin/nodegate"
    entry.write_text(_ENTRY)
    entry.chmod(0o755)
    for folder in (REPO_INSIDE, PACKAGES_INSIDE):
        (part / folder.lstrip("/")).mkdir(parents=True)
    # Timers that fetch packages, and getty on a console that is no terminal: noise in a test.
    for unit in NOISE:
        mask = part / "etc/systemd/system" / unit
        mask.symlink_to("/dev/null")
    # The kernel's limit on journals is the tmpfs that a host lives on.
    journal = part / "etc/systemd/journald.conf.d/test.conf"
    journal.parent.mkdir(parents=True, exist_ok=True)
    journal.write_text("[Journal]\nStorage=persistent\nRateLimitBurst=0\nSystemMaxUse=64M\n")
