"""The archive that brings nodegate to nodes: made once on the controller for all that have the same Python.

Offline it holds the environment's packages, unpacked, each file checked against its wheel's own record, and
compiled where the controller's Python writes what the node's reads. Then a node only unpacks it: eight nodes
that each ran pip on the same wheels would take the time of eight. With pip on the node it holds the wheel
and the pins. https://packaging.python.org/en/latest/specifications/binary-distribution-format/
"""

from __future__ import annotations

import base64
import compileall
import configparser
import csv
import fcntl
import hashlib
import importlib.util
import io
import os
import py_compile
import tarfile
import tempfile
import zipfile
from pathlib import Path, PurePosixPath

from agent.errors import ConfigError
from agent.provision.install_release import Release, Target, choose

#: Raise it when what is in an archive changes.
EDITION = 1
#: Every file has this time: byte code is valid for a source of the same time.
_TIME_S = 1577836800
_KEPT = 6
_FORBIDDEN = ("headers", "data")


def parcel(what: Release, target: Target, home: str, cache: Path) -> Path:
    """The archive for nodes with this Python, from `cache` if it has been made before. Raises ConfigError.

    `home`: folder of the environment on the node, which scripts and byte code name.
    """
    words = (str(EDITION), what.digest, target.python, target.machine, target.glibc or "", target.magic, home)
    name = hashlib.sha256("\n".join(words).encode()).hexdigest()[:16]
    path = cache / f"{what.version}-{name}.tar.gz"
    try:
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (cache / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.is_file():
                _make(what, target, home, path)
                _tidy(cache, path)
    except OSError as cause:
        raise ConfigError(
            f"the archive for the nodes cannot be made: {cause.strerror}",
            where=str(cause.filename or cache),
            remedy="see to its permissions and free space",
        ) from cause
    return path


def _make(what: Release, target: Target, home: str, path: Path) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent, prefix="making-") as folder:
        tree = Path(folder, "tree")
        if what.offline:
            for wheel in [what.wheel, *choose(what, target)]:
                unpack(wheel, tree, home)
            _compile(tree / "lib", target, home)
        else:
            assert what.requirements is not None
            tree.mkdir()
            (tree / what.wheel.name).write_bytes(what.wheel.read_bytes())
            (tree / "requirements.txt").write_bytes(what.requirements.read_bytes())
        fresh = Path(folder, "archive")
        with tarfile.open(fresh, "w:gz", compresslevel=4) as archive:
            archive.add(tree, arcname="", filter=_plain)
        fresh.replace(path)


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Nothing of the controller's users and times."""
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
    return member


def unpack(wheel: Path, tree: Path, home: str) -> None:
    """One wheel into `tree`: packages into lib, commands into bin. Raises ConfigError for a damaged one."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            for name, data in _recorded(archive, wheel):
                _place(name, data, tree, home, wheel)
    except (zipfile.BadZipFile, KeyError, UnicodeDecodeError, configparser.Error) as cause:
        raise _damaged(wheel, str(cause).strip("'\"")) from cause


def _recorded(archive: zipfile.ZipFile, wheel: Path) -> list[tuple[str, bytes]]:
    """Every file of a wheel; each must have the hash that its RECORD gives."""
    names = archive.namelist()
    record = next(
        (name for name in names if name.endswith(".dist-info/RECORD") and name.count("/") == 1), None
    )
    if record is None:
        raise _damaged(wheel, "has not one RECORD")
    rows = csv.reader(io.StringIO(archive.read(record).decode()))
    hashes = {row[0]: row[1] for row in rows if len(row) >= 2}
    found = []
    for name in names:
        parts = PurePosixPath(name)
        if name.endswith("/"):
            continue
        if parts.is_absolute() or ".." in parts.parts or "\\" in name:
            raise _damaged(wheel, f"holds a file outside of it: {name}")
        data = archive.read(name)
        if name != record and not parts.name.startswith("RECORD."):
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            if hashes.get(name) != f"sha256={digest}":
                raise _damaged(wheel, f"{name} is not what its RECORD says")
        found.append((name, data))
    return found


def _place(name: str, data: bytes, tree: Path, home: str, wheel: Path) -> None:
    parts = PurePosixPath(name).parts
    if parts[0].endswith(".data"):
        kind, rest = parts[1], parts[2:]
        if kind == "scripts":
            _write(tree / "bin" / rest[-1], _with_python(data, home), 0o755)
        elif kind in ("purelib", "platlib"):
            _write(tree.joinpath("lib", *rest), data)
        elif kind in _FORBIDDEN:
            _write(tree.joinpath("share-data", *rest), data)
        else:
            raise _damaged(wheel, f"has files of an unknown kind: {name}")
        return
    _write(tree.joinpath("lib", *parts), data)
    if len(parts) == 2 and parts[0].endswith(".dist-info") and parts[1] == "entry_points.txt":
        for command, text in _commands(data.decode(), home).items():
            _write(tree / "bin" / command, text.encode(), 0o755)


def _commands(entry_points: str, home: str) -> dict[str, str]:
    """The scripts that a wheel asks for."""
    parser = configparser.ConfigParser(delimiters=("=",), interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(entry_points)
    section = parser["console_scripts"] if parser.has_section("console_scripts") else {}
    scripts = {}
    for command, target in section.items():
        module, _colon, attribute = target.partition("[")[0].strip().partition(":")
        first = attribute.partition(".")[0]
        scripts[PurePosixPath(command).name] = (
            f"#!{home}/bin/python\nimport sys\nfrom {module} import {first}\nsys.exit({attribute}())\n"
        )
    return scripts


def _with_python(data: bytes, home: str) -> bytes:
    """A script whose first line asks for some Python is given the environment's."""
    first, newline, rest = data.partition(b"\n")
    return f"#!{home}/bin/python\n".encode() + rest if newline and first.startswith(b"#!python") else data


def _write(path: Path, data: bytes, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    path.chmod(mode)
    os.utime(path, (_TIME_S, _TIME_S))


def _compile(lib: Path, target: Target, home: str) -> None:
    """Byte code for the node, if the node's Python reads what this one writes; else the node makes it."""
    if importlib.util.MAGIC_NUMBER.hex() != target.magic:
        return
    compileall.compile_dir(
        lib,
        quiet=2,
        stripdir=str(lib),
        prependdir=f"{home}/lib/python{target.python}/site-packages",
        invalidation_mode=py_compile.PycInvalidationMode.TIMESTAMP,
    )


def _tidy(cache: Path, newest: Path) -> None:
    """Keep the last few archives."""
    archives = sorted(cache.glob("*.tar.gz"), key=lambda path: path.stat().st_mtime, reverse=True)
    for old in archives[_KEPT:]:
        if old != newest:
            old.unlink(missing_ok=True)


def _damaged(wheel: Path, problem: str) -> ConfigError:
    return ConfigError(f"is not a whole wheel: {problem}", where=str(wheel), remedy="fetch or make it again")
