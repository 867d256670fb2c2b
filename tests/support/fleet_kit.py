"""`nodegate fleet bringup` as a user starts it, on a site of site_kit; and what must be seen nowhere."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import signal
import subprocess
import threading
from pathlib import Path

from nspawn_rig import Host
from provision_rig import REPOSITORY
from site_kit import BATCHES, Site

ENGINE_FILE, GROUP_FILE, BMC_FILE = "/etc/nodegate/main.env", "/etc/nodegate/group-key", "/etc/nodegate/bmc"
#: Everything that Ansible can be made to say.
LOUD = {"ANSIBLE_VERBOSITY": "3", "ANSIBLE_DIFF_ALWAYS": "1"}
#: Looks through the host's files for the lines of its first argument; that file itself is left out, and the
#: folders of read-only mounts and of the kernel.
SEARCH = """
import os, pathlib, sys
needles = [line.encode() for line in open(sys.argv[1]).read().split()]
for top, folders, files in os.walk("/"):
    if top == "/":
        folders[:] = [name for name in folders if name not in ("proc", "sys", "usr")]
    for name in files:
        path = pathlib.Path(top, name)
        if str(path) == sys.argv[1] or path.is_symlink() or not path.is_file():
            continue
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            continue
        for number, needle in enumerate(needles):
            if needle in data:
                print(number, oct(path.stat().st_mode & 0o7777), path.owner(), path)
"""


class Hidden:
    """What must be seen nowhere but in the files that are for it."""

    def __init__(self, site: Site) -> None:
        """New ones, in the site's vault from now on."""
        self.group, self.engine = f"Gk-{secrets.token_hex(16)}", f"Ek-{secrets.token_hex(16)}"
        self.all = {
            "BMC password": site.password,
            "vault key": site.vault_key,
            "group key": self.group,
            "engine secret": self.engine,
        }
        keys, environment = {"main": self.group}, {"main": f"HF_TOKEN={self.engine}\n"}
        site.vault({"nodegate_group_keys": keys, "nodegate_engine_env": environment})

    def in_text(self, text: str) -> list[str]:
        """Names of those that the text holds."""
        return [name for name, value in self.all.items() if value in text]

    def in_files(self, folders: list[Path], meant: set[Path]) -> list[tuple[str, list[str]]]:
        """Files that hold one, and which."""
        files = [file for root in folders for file in root.rglob("*") if file.is_file() and file not in meant]
        held = [(str(file), self.in_text(file.read_bytes().decode("latin-1"))) for file in files]
        return [one for one in held if one[1]]

    def on_host(self, host: Host) -> set[tuple[str, str, str, str]]:
        """(mode, owner, file, name) of what a host holds."""
        host.write("/etc/needles", "\n".join(self.all.values()), 0o600)
        found = host.must(["/usr/bin/python3", "-c", SEARCH, "/etc/needles"], timeout=120).splitlines()
        host.must(["rm", "/etc/needles"])
        rows = [line.split(maxsplit=3) for line in found]
        return {(mode, owner, path, list(self.all)[int(number)]) for number, mode, owner, path in rows}


class Fleet:
    """Runs of the command; `said` keeps what each has said."""

    def __init__(self, site: Site) -> None:
        """Temporary files go to a folder of its own."""
        self.site, self.said = site, []  # type: Site, list[str]
        self.temporary, self.artifacts = site.rig.folder / "tmp", site.rig.folder / "artifacts"
        self.temporary.mkdir()

    def begin(self, *more: str, **extra: str) -> subprocess.Popen[str]:
        """Start it with pipes, in a session of its own as a terminal's job is."""
        key, kept = str(self.site.folder / "vault-key"), str(self.artifacts)
        words = ["nodegate", "fleet", "bringup", "-i", str(self.site.inventory / "hosts.yml")]
        words += ["--vault-password-file", key, "--artifacts", kept, "-e", BATCHES, *more]
        environment = {**self.site.rig.environment(), "TMPDIR": str(self.temporary), **extra}
        del environment["ANSIBLE_CONFIG"]  # the command brings its own
        return subprocess.Popen(
            self.site.rig.network.words(words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=REPOSITORY,
            env=environment,
            start_new_session=True,
        )

    def finish(self, process: subprocess.Popen[str], before: str = "", within_s: float = 300.0) -> str:
        """All that it says, to its end; it is killed when that takes too long, and so are its Ansibles."""

        def end() -> None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

        too_late = threading.Timer(within_s, end)
        too_late.start()
        try:
            with process:  # not communicate(): what read_until() has left in the buffer would be lost
                assert process.stdout is not None
                self.said.append(before + process.stdout.read())
        finally:
            too_late.cancel()
        return self.said[-1]


def read_until(process: subprocess.Popen[str], pattern: str) -> str:
    """What it has said up to a line that matches; the test's time limit ends a wait in vain."""
    said = ""
    assert process.stdout is not None
    for line in process.stdout:
        said += line
        if re.search(pattern, line):
            return said
    raise AssertionError(f"ended without {pattern}:\n{said}")
