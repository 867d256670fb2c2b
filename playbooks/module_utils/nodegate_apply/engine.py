"""The engines of a node: their Python environments or images, and the folders of their models.

An environment is made in a folder of its own and then takes the place of the old one in one step, by a link
from the profile's path. A running engine keeps the one that it was started from.
"""

from __future__ import annotations

import contextlib
import grp
import hashlib
import json
import os
import pathlib
import pwd
import re
import shutil
import sys
from typing import Any

from .agent import USER, of_release, service_folders, service_user
from .files import file_setting
from .host import Host, HostError
from .install import in_use
from .setting import Setting

_PIP_S = 3600.0
_PULL_S = 3600.0
_ANSWER_S = 10.0
_FOLDER = re.compile(r"^(?P<name>.+)-(?P<version>[^-]+)\.dist-info$")
GROUP = "units"


def wanted_engines(
    host: Host, profile: dict[str, Any], sources: dict[str, dict[str, Any]], link: str = "/opt/nodegate"
) -> list[Setting]:
    """Settings of every engine; `sources`: where each comes from, by the engine's name."""
    found = []
    if any(engine["launch"]["runtime"] == "podman" for engine in profile["engines"].values()):
        found += [service_user(host, link), service_folders(host, link), _ranges(host)]
    for name, engine in profile["engines"].items():
        launch, source = engine["launch"], sources.get(name, {})
        if launch["runtime"] == "podman":
            found.append(_image(host, name, launch["container"]["image"], source.get("archive")))
            found.append(_drop_in(host, name, link))
        elif launch["environment"]:
            found.append(Environment(host, name, launch["environment"], source).setting())
        else:
            found.append(_program(host, name, launch["command"][0]))
        path = launch["checkpoint"]["path"] or (launch["model"] if str(launch["model"])[:1] == "/" else None)
        if path:
            found.append(_model(host, name, path))
    return found


class Environment:
    """One engine's Python environment."""

    def __init__(self, host: Host, engine: str, wanted: dict[str, Any], source: dict[str, Any]) -> None:
        """`source`: requirements and wheelhouse, on the node by now."""
        self._host, self._engine, self._source = host, engine, source
        self._path = pathlib.Path(wanted["path"])
        self._packages: dict[str, str] = wanted["packages"]

    def setting(self) -> Setting:
        """The pinned packages in their versions."""
        want = ", ".join(f"{name} {version}" for name, version in self._packages.items())
        field = f"engines.{self._engine}.launch.environment"
        return Setting(str(self._path), field, want, self.read, self.write)

    def read(self) -> str | None:
        """Versions of the pinned packages as they are installed; None without an environment."""
        if not self._path.is_dir():
            return None
        found = installed(self._path)
        return ", ".join(f"{name} {found.get(name, 'not installed')}" for name in self._packages)

    def write(self) -> None:
        """Make it beside the old one and put it in its place."""
        if self._path.exists() and not self._path.is_symlink():
            raise HostError(f"{self._path}: is a folder that was not made here; move it away and run again")
        lines = "\n".join(f"{name}=={version}" for name, version in self._packages.items())
        requirements = self._source.get("requirements")
        mark = hashlib.sha256((lines + (_text(requirements) if requirements else "")).encode()).hexdigest()[
            :12
        ]
        home = (
            self._path.with_name(f"{self._path.name}.d")
            / f"{mark}-py{sys.version_info[0]}{sys.version_info[1]}"
        )
        try:
            if home.exists():
                shutil.rmtree(home)
            self._host.must([sys.executable, "-m", "venv", str(home)], 120.0)
            self._install(home, requirements)
            if (seen := {name: installed(home).get(name) for name in self._packages}) != self._packages:
                raise HostError(f"{home}: got {seen}, not what is pinned; correct the requirements")
        except (HostError, OSError) as cause:
            with contextlib.suppress(OSError):
                shutil.rmtree(home)
            raise HostError(f"{cause}; {self._path} is as it was") from cause
        _turn(self._path, home)

    def _install(self, home: pathlib.Path, requirements: str | None) -> None:
        pip = [str(home / "bin/python"), "-m", "pip", "install", "--no-input", "--quiet"]
        pip.append("--disable-pip-version-check")
        if wheelhouse := self._source.get("wheelhouse"):
            pip += ["--no-index", "--find-links", wheelhouse]
        if requirements:
            self._host.must([*pip, "--require-hashes", "-r", requirements], _PIP_S)
        else:
            pinned = [f"{name}=={version}" for name, version in self._packages.items()]
            self._host.must([*pip, *pinned], _PIP_S)


def installed(path: pathlib.Path) -> dict[str, str]:
    """Versions of the packages of an environment, by their normal names."""
    found = {}
    for entry in path.glob("lib/python3*/site-packages/*.dist-info"):
        if match := _FOLDER.fullmatch(entry.name):
            found[re.sub(r"[-_.]+", "-", match["name"]).lower()] = match["version"]
    return found


def _turn(path: pathlib.Path, home: pathlib.Path) -> None:
    """Turn the link; environments that nothing runs from go, but for the one before."""
    before = path.resolve() if path.is_symlink() else None
    fresh = path.with_name(f".{path.name}.new")
    try:
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(home)
        fresh.replace(path)
        old = [each for each in home.parent.iterdir() if each.is_dir() and each not in (home, before)]
    except OSError as cause:
        raise HostError(f"{path}: cannot be turned to {home}: {cause.strerror}") from cause
    busy = in_use([str(each) for each in old])
    for each in old:
        if str(each) not in busy:
            shutil.rmtree(each, ignore_errors=True)


def _text(path: str) -> str:
    try:
        return pathlib.Path(path).read_text(encoding="utf-8")
    except OSError as cause:
        raise HostError(f"{path}: cannot be read: {cause.strerror}") from cause


def _program(host: Host, engine: str, program: str) -> Setting:
    """A program that nobody here installs; it only has to be there."""

    def read() -> str | None:
        return "there" if os.access(program, os.X_OK) or host.has(program) else None

    return Setting(
        program,
        f"engines.{engine}.launch.command",
        "there",
        read,
        advice="install it, or describe its environment in launch.environment",
    )


def _model(host: Host, engine: str, path: str) -> Setting:
    """The folder with the weights: there, not empty, and open to the engine's user."""

    def read() -> str | None:
        folder = pathlib.Path(path)
        # A mount whose server is gone keeps whoever asks it: a process that can be given up asks first.
        host.run(["stat", "--terse", "--", path], _ANSWER_S)
        try:
            status = folder.stat()
            if not folder.is_dir() or next(folder.iterdir(), None) is None:
                return "empty or no folder"
        except FileNotFoundError:
            return None
        except OSError as cause:
            raise HostError(f"{path}: cannot be read: {cause.strerror}; is its mount well?") from cause
        return "readable" if status.st_mode & 0o005 == 0o005 or _owned(status) else "closed to the engine"

    field = f"engines.{engine}.launch.checkpoint.path"
    advice = "mount or copy the checkpoint there, readable for the user nodegate"
    return Setting(path, field, "readable", read, advice=advice)


def _owned(status: os.stat_result) -> bool:
    """Whether the engine's user gets in as owner or by its group."""
    try:
        user, group = pwd.getpwnam(USER), grp.getgrnam(USER)
    except KeyError:
        return False
    owner = status.st_uid == user.pw_uid and status.st_mode & 0o500 == 0o500
    return owner or (status.st_gid == group.gr_gid and status.st_mode & 0o050 == 0o050)


def _image(host: Host, engine: str, image: str, archive: str | None) -> Setting:
    """An image by digest, in the storage of the engine's user; engines never pull one themselves."""
    podman = ["runuser", "-u", USER, "--", "podman"]
    digest = image.rpartition("@")[2]

    def read() -> str | None:
        if not _user_is_there():
            return None
        done = host.run([*podman, "image", "inspect", "--format", "json", image], 60.0)
        if done.status != 0:
            return None
        try:
            found = json.loads(done.out)[0]
            names = {found.get("Digest", ""), *(each.rpartition("@")[2] for each in found["RepoDigests"])}
        except (ValueError, KeyError, IndexError, TypeError) as cause:
            raise HostError(f"podman image inspect {image}: cannot be understood: {cause}") from cause
        return digest if digest in names else "another digest"

    def write() -> None:
        host.must(
            [*podman, "load", "--quiet", "--input", archive]
            if archive
            else [*podman, "pull", "--quiet", image],
            _PULL_S,
        )

    return Setting(image, f"engines.{engine}.launch.container.image", digest, read, write)


def _drop_in(host: Host, engine: str, link: str) -> Setting:
    """What the engine's unit must not forbid podman."""
    packages = sorted(pathlib.Path(link).glob("lib/python3*/site-packages/agent/units/podman.conf"))
    path = f"/etc/systemd/system/nodegate-engine@{engine}.service.d/podman.conf"
    field = f"engines.{engine}.launch.runtime"
    if not packages:
        return of_release(path, field)
    return file_setting(host, path, _text(str(packages[0])), field, after=GROUP)


def _ranges(host: Host) -> Setting:
    """Podman without root needs user ids of its own."""

    def read() -> str | None:
        texts = (host.read("/etc/subuid") or "", host.read("/etc/subgid") or "")
        return "there" if all(f"\n{USER}:" in f"\n{text}" for text in texts) else None

    return Setting(
        "user ids of containers",
        "launch.runtime",
        "there",
        read,
        lambda: _add_ranges(host),
    )


def _add_ranges(host: Host) -> None:
    """Above all ranges that there are."""
    highest = 524288
    for path in ("/etc/subuid", "/etc/subgid"):
        for line in (host.read(path) or "").splitlines():
            parts = line.split(":")
            if len(parts) == 3 and parts[1].isdigit() and parts[2].isdigit():
                highest = max(highest, int(parts[1]) + int(parts[2]))
    span = f"{highest}-{highest + 65535}"
    host.must(["usermod", "--add-subuids", span, "--add-subgids", span, USER])


def reload_units(host: Host) -> None:
    """Units have changed."""
    host.must(["systemctl", "daemon-reload"], 60.0)


def _user_is_there() -> bool:
    try:
        pwd.getpwnam(USER)
    except KeyError:
        return False
    return True
