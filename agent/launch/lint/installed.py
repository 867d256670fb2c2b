"""Which engine a launch would run, and what its source says: without importing or starting anything of it.

The program's first line names its interpreter, the interpreter's folders have the engine's package. What was
read is kept until a file of it changes.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from agent.errors import SourceUnavailable
from agent.launch.lint.scan import SGLANG_SERVE, VLLM_ENGINE, VLLM_SERVE, scan
from agent.launch.lint.scan_types import ScanError

#: `python -m MODULE` of each engine; its package is the first part.
_MODULES = {"vllm": "vllm.", "sglang": "sglang."}
#: What is looked at for changes.
_WATCHED = (VLLM_ENGINE, *VLLM_SERVE, "envs.py", SGLANG_SERVE, "srt/environ.py", "_version.py", "config.py")
_WATCHED_FOLDERS = ("config", "srt/arg_groups/fields")


class NotLintable(Exception):
    """The program is no engine whose flags are known; the text says what it is."""


class NoProgram(Exception):
    """There is no such program: the launch would fail at once."""


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag: `name` is its first long name, `also` its others; see scan.py for kinds and numbers."""

    name: str
    kind: str
    also: tuple[str, ...] = ()
    choices: tuple[str, ...] | None = None
    deprecated: str = ""
    number: str = ""


@dataclass(frozen=True, slots=True)
class EngineSource:
    """What an installed engine takes. `env` is empty where its list of variables was not found."""

    engine: str
    version: str
    root: str
    flags: Mapping[str, Flag]
    env: frozenset[str]

    @property
    def title(self) -> str:
        """Name and version."""
        return f"{self.engine} {self.version or '(unknown version)'}"

    @property
    def release(self) -> tuple[int, ...]:
        """The version's leading numbers; empty where it is not known."""
        numbers: list[int] = []
        for part in self.version.split("+")[0].split("."):
            if not part.isdecimal():
                break
            numbers.append(int(part))
        return tuple(numbers)


@dataclass(frozen=True, slots=True)
class Program:
    """What a command runs: the engine and the Python that runs it."""

    engine: str
    python: Path


def engine_at(command: Sequence[str]) -> int:
    """Where the engine's own program stands in a command: behind `nice -n 5`, `env A=b`, `numactl ...`."""
    for at, word in enumerate(command):
        name = Path(word).name
        if name in _MODULES and list(command[at + 1 : at + 2]) == ["serve"]:
            return at
        if name.startswith("python") and "-m" in command[at + 1 :]:
            return at
    return 0


def program_of(command: Sequence[str], env: Mapping[str, str], working_dir: str | None) -> Program:
    """The engine of a command. Raises NotLintable, NoProgram, SourceUnavailable."""
    at = engine_at(command)
    if at:
        _find(command[0], env, working_dir)  # the program around it must be there too
    command = command[at:]
    path = _find(command[0], env, working_dir)
    name = Path(command[0]).name
    if name.startswith("python"):
        return Program(_module(command), path)
    if name not in ("vllm", "sglang"):
        raise NotLintable(f"{name} is neither vllm nor sglang")
    if len(command) < 2 or command[1] != "serve":
        raise NotLintable(f"{name} is not told to serve")
    return Program(name, _interpreter(path, env))


def _find(program: str, env: Mapping[str, str], working_dir: str | None) -> Path:
    """The file of a program, as execvpe would find it."""
    if "/" in program:
        path = Path(working_dir or "/") / program
        if not path.is_file():
            raise NoProgram(f"there is no file {path}")
        if not os.access(path, os.X_OK):
            raise NoProgram(f"{path} is not executable")
        return path
    looked = env.get("PATH", os.defpath)
    found = shutil.which(program, path=looked)
    if found is None:
        raise NoProgram(f"no program {program} in the PATH that the engine gets ({looked[:80]})")
    return Path(found)


def _module(command: Sequence[str]) -> str:
    """The engine of `python ... -m vllm.entrypoints.openai.api_server`."""
    module = next((b for a, b in itertools.pairwise(command) if a == "-m"), "")
    for engine, prefix in _MODULES.items():
        if f"{module}.".startswith(prefix):
            return engine
    raise NotLintable(f"{Path(command[0]).name} runs {module or 'a program'} that is neither vllm nor sglang")


def _interpreter(script: Path, env: Mapping[str, str]) -> Path:
    """The Python that a script's first line names; pip writes a shell line where the path is long."""
    try:
        with script.open("rb") as file:
            head = file.read(2048)
    except OSError as cause:
        raise SourceUnavailable(f"{script} cannot be read: {cause.strerror}") from cause
    lines = head.decode("utf-8", errors="replace").splitlines()
    first = lines[0] if lines else ""
    words = first.removeprefix("#!").split()
    if words and Path(words[0]).name == "sh" and len(lines) > 1 and "'''exec'" in lines[1]:
        words = [lines[1].split("'''exec'")[1].split('"$0"')[0].strip().strip('"')]
    if words and Path(words[0]).name == "env":
        words = words[2:] if words[1:2] == ["-S"] else words[1:]
    if not first.startswith("#!") or not words or not Path(words[0]).name.startswith("python"):
        raise NotLintable(f"{script} is no Python script")
    return Path(words[0]) if words[0].startswith("/") else _find(words[0], env, None)


def package_of(program: Program, env: Mapping[str, str]) -> Path:
    """The folder of the engine's package. Raises SourceUnavailable."""
    tried = list(_folders(program.python, env))
    for folder in tried:
        if (folder / program.engine / "__init__.py").is_file():
            return folder / program.engine
    looked = ", ".join(str(folder) for folder in tried[:3]) or "no folder at all"
    raise SourceUnavailable(f"{program.python} has no package {program.engine}; looked in {looked}")


def _folders(python: Path, env: Mapping[str, str]) -> Iterator[Path]:
    """Where a Python looks for packages: PYTHONPATH, its environment, the system's, folders of .pth files."""
    yield from (Path(part) for part in env.get("PYTHONPATH", "").split(":") if part.startswith("/"))
    prefix = python.parent.parent
    prefixes = [prefix]
    if not (prefix / "pyvenv.cfg").is_file() or _sees_system(prefix / "pyvenv.cfg"):
        prefixes += [python.resolve().parent.parent, Path("/usr/local"), Path("/usr")]
        prefixes += [Path(env["HOME"]) / ".local"] if "HOME" in env else []
    for folder in dict.fromkeys(prefixes):
        for part in ("site-packages", "dist-packages"):
            for lib in ("lib", "lib64"):
                for found in sorted((folder / lib).glob(f"python3*/{part}")):
                    yield found
                    yield from _linked(found)


def _sees_system(config: Path) -> bool:
    """Whether a virtual environment sees the packages of the Python that it was made with."""
    try:
        text = config.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return True
    return "include-system-site-packages = true" in text


def _linked(folder: Path) -> Iterator[Path]:
    """The folders that .pth files add: where an editable installation is."""
    for path in sorted(folder.glob("*.pth")):
        try:
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue  # the package may still be elsewhere; if not, the search says where it looked
        yield from (Path(line.strip()) for line in lines if line.startswith("/"))


def read_package(engine: str, root: Path) -> EngineSource:
    """The flags of a package; read anew when one of its files has changed. Raises SourceUnavailable."""
    stamps = []
    inside = (path for part in _WATCHED_FOLDERS for path in sorted((root / part).glob("*.py")))
    for path in (*(root / part for part in _WATCHED), *inside):
        try:
            stat = path.stat()
        except OSError:
            continue  # not every version has every file; the scan says what it misses
        stamps.append((str(path), stat.st_mtime_ns, stat.st_size))
    try:
        return _read(engine, root, tuple(stamps))
    except RecursionError as cause:
        raise SourceUnavailable(f"the flags of {engine} cannot be read: {root} is nested too deep") from cause
    except ScanError as cause:
        raise SourceUnavailable(f"the flags of {engine} cannot be read: {cause}") from cause


@lru_cache(maxsize=8)
def _read(engine: str, root: Path, stamps: tuple[tuple[str, int, int], ...]) -> EngineSource:
    del stamps  # part of the key: another version of the files is another answer
    return source_from(scan(engine, root))


def source_from(found: Mapping[str, Any]) -> EngineSource:
    """What a scan found, also one that came as JSON. SourceUnavailable if it is none."""
    try:
        flags = {
            str(name): Flag(
                str(name),
                str(said["kind"]),
                tuple(map(str, said["also"])),
                None if said["choices"] is None else tuple(map(str, said["choices"])),
                str(said["deprecated"]),
                str(said["number"]),
            )
            for name, said in found["flags"].items()
        }
        env = frozenset(map(str, found["env"]))
        source = EngineSource(str(found["engine"]), str(found["version"]), str(found["root"]), flags, env)
    except (KeyError, TypeError, AttributeError) as cause:
        raise SourceUnavailable(f"a scan of the engine's source has an unknown form: {cause!r}") from cause
    if not flags:
        raise SourceUnavailable(f"no flag was found in {source.root}")
    return source
