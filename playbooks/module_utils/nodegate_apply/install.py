"""nodegate in an environment of its own: a folder for each release, and one link that says which is used.

/opt/nodegate.d/VERSION-HASH-pyXY is made whole and tried before /opt/nodegate is turned to it, in one step.
Scripts name Python by the folder, so that what runs keeps its own modules while the link is turned.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import pathlib
import platform
import shutil
import sys
import tarfile
from typing import Any

from .host import Host, HostError
from .setting import Setting

MARKER = ".nodegate-release.json"
#: Inside an environment: the files of the service, where they belong on the host.
HOST_FILES = "share/host"
_PIP_S = 1800.0
_TRY_S = 60.0


def facts() -> dict[str, Any]:
    """What the controller must know of this node's Python to choose wheels."""
    name, version = platform.libc_ver()
    return {
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "machine": platform.machine(),
        "glibc": version if name == "glibc" else None,
        "magic": importlib.util.MAGIC_NUMBER.hex(),
    }


class Install:
    """One release on this node."""

    def __init__(
        self, host: Host, release: str, link: str = "/opt/nodegate", folder: str = "/opt/nodegate.d"
    ) -> None:
        """`release`: its version and the beginning of its hash."""
        self._host = host
        self._link = pathlib.Path(link)
        self._folder = pathlib.Path(folder)
        self.name = f"{release}-py{sys.version_info.major}{sys.version_info.minor}"
        self.home = self._folder / self.name

    def setting(self, archive: str = "", sha256: str = "") -> Setting:
        """The release in use; with an archive it can be made so."""

        def write() -> None:
            self.make(archive, sha256)
            self.turn(self.home)
            self.tidy()

        return Setting(
            str(self._link),
            "nodegate_wheel",
            self.name,
            self.used,
            write,
            advice=f"look at {self.home}",
        )

    def used(self) -> str | None:
        """The release that the link leads to; None without a whole one."""
        if not self._link.is_symlink():
            if self._link.exists():
                raise HostError(f"{self._link}: is there and not a link; move it away and run again")
            return None
        home = self._link.resolve()
        if home.parent != self._folder.resolve():
            return str(home)
        return home.name if self._whole(home) else f"{home.name}, not whole"

    def _whole(self, home: pathlib.Path) -> bool:
        parts = (MARKER, "bin/nodegate", "bin/python")
        return all((home / part).is_file() for part in parts)

    def make(self, archive: str, sha256: str) -> None:
        """The folder, whole and tried; an unfinished one of before is made anew. Raises HostError."""
        if self._whole(self.home):
            return
        try:
            if self.home.exists():
                shutil.rmtree(self.home)
            self._folder.mkdir(mode=0o755, parents=True, exist_ok=True)
            self._fill(archive, sha256)
        except (HostError, OSError, tarfile.TarError) as cause:
            with contextlib.suppress(OSError):
                shutil.rmtree(self.home)
            text = cause if isinstance(cause, HostError) else f"{self.home}: cannot be made: {cause}"
            raise HostError(f"{text}; {self._link} is as it was") from cause

    def _fill(self, archive: str, sha256: str) -> None:
        _refuse_other(archive, sha256)
        python, site = str(self.home / "bin/python"), self._site()
        with tarfile.open(archive) as tar:
            members = _harmless(tar)
            online = "requirements.txt" in {member.name for member in members}
            self._host.must(
                [sys.executable, "-m", "venv", *([] if online else ["--without-pip"]), str(self.home)], 120.0
            )
            tar.extractall(self.home / "new", members)  # noqa: S202 - members that _harmless has looked at
        if online:
            self._pip(python)
        else:
            self._merge(site)
            if not any(site.glob("agent/__pycache__/*.pyc")):
                self._host.must([python, "-m", "compileall", "-q", "-j", "0", str(site)], 600.0)
        shutil.rmtree(self.home / "new")
        command = str(self.home / "bin/nodegate")
        version = self._host.must([command, "--version"], _TRY_S).split()[-1]
        if not self.name.startswith(f"{version}-"):
            raise HostError(f"{command}: says that it is {version}, not {self.name}")
        own = ["--prefix", str(self._link), "--root", str(self.home / HOST_FILES)]
        self._host.must([command, "systemd", "install", "--process-supervision", *own], _TRY_S)
        marker = json.dumps({"release": self.name, "archive": sha256})
        self._host.must(["sync", "-f", str(self.home)], 300.0)  # what the marker vouches for is on the disk
        self._host.write(str(self.home / MARKER), marker + "\n")

    def _site(self) -> pathlib.Path:
        return self.home / f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"

    def _merge(self, site: pathlib.Path) -> None:
        """From the unpacked archive to where an environment has its packages and commands."""
        new = self.home / "new"
        for source, target in ((new / "lib", site), (new / "bin", self.home / "bin")):
            for entry in source.iterdir():
                entry.rename(target / entry.name)

    def _pip(self, python: str) -> None:
        """With the node's own configuration of pip, and nothing that is not pinned by hash."""
        new = self.home / "new"
        pip = [python, "-m", "pip", "install", "--no-input", "--disable-pip-version-check", "--quiet"]
        self._host.must([*pip, "--require-hashes", "-r", str(new / "requirements.txt")], _PIP_S)
        (wheel,) = new.glob("*.whl")
        self._host.must([*pip, "--no-deps", "--no-index", str(wheel)], _PIP_S)

    def turn(self, home: pathlib.Path) -> None:
        """Turn the link to a folder, in one step: there is no moment without nodegate."""
        before = self._link.resolve().name if self._link.is_symlink() else ""
        fresh = self._link.with_name(f".{self._link.name}.new")
        try:
            fresh.unlink(missing_ok=True)
            fresh.symlink_to(home)
            fresh.replace(self._link)
        except OSError as cause:
            raise HostError(f"{self._link}: cannot be turned to {home}: {cause.strerror}") from cause
        if before and before != home.name:
            self._host.write(str(self._folder / ".previous"), before + "\n")

    def back(self, check: bool) -> str:
        """Use the release of before again; its name. Raises HostError."""
        before = self.previous()
        if before is None:
            raise HostError(f"{self._folder}: holds no whole release from before; install another one")
        if not check:
            self.turn(self._folder / before)
        return before

    def previous(self) -> str | None:
        """The release used before this one, if it is still whole."""
        text = (self._host.read(str(self._folder / ".previous")) or "").strip()
        return text if text and "/" not in text and self._whole(self._folder / text) else None

    def tidy(self) -> None:
        """Remove what is neither used, nor the one before, nor what a process runs from."""
        keep = {self.name, self.previous()}
        mine = [path for path in self._folder.iterdir() if path.is_dir() and path.name not in keep]
        busy = in_use([str(path) for path in mine])
        for path in mine:
            if str(path) not in busy:
                shutil.rmtree(path, ignore_errors=True)


def _refuse_other(archive: str, sha256: str) -> None:
    """The archive must have come whole."""
    with pathlib.Path(archive).open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != sha256:
            raise HostError(f"{archive}: is not what was sent (SHA-256 differs); run again")


def _harmless(tar: tarfile.TarFile) -> list[tarfile.TarInfo]:
    """Members that are plain files and folders below the archive's own."""
    members = tar.getmembers()
    for member in members:
        parts = pathlib.PurePosixPath(member.name)
        if not (member.isfile() or member.isdir()) or parts.is_absolute() or ".." in parts.parts:
            raise HostError(f"the archive holds what it must not: {member.name}")
    return members


def in_use(folders: list[str]) -> set[str]:
    """Folders that a running process was started from or has mapped."""
    found: set[str] = set()
    if not folders:
        return found
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        text = ""
        for name in ("cmdline", "maps"):
            with contextlib.suppress(OSError):
                text += (process / name).read_bytes().decode("utf-8", "replace").replace("\0", "\n") + "\n"
        found |= {folder for folder in folders if f"{folder}/" in text}
    return found
