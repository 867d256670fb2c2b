"""NodeFolder: a captured node as a folder of files, read whole and validated before anything is replayed.

node.yaml, nvml.json; where captured net.json, host.json, bmc.json, kmsg.txt, tree.json and root/, links.json;
measured.json (what measured tests found there); profile.yaml, scenarios/. tree.json holds the same files as
root/, in one document.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from agent.errors import ConfigError, ParseError
from agent.sources import KmsgRecord
from agent.sources.documents import one_problem, read_bounded, read_json, read_yaml
from agent.sources.fs import is_plain_path
from agent.sources.kmsg_records import parse_line
from agent.sources.node_live import check_live
from agent.sources.node_model import NET, NETDEV_PARTS, Live, NodeMeta, NvmlDocument, is_refused
from agent.sources.node_model_host import BMC, HOST, TREE

_FILE_LIMIT_B = 1 << 20
_FILES_LIMIT = 50_000
_TOTAL_LIMIT_B = 64 << 20
_DEPTH_LIMIT = 64
#: What must be in the folder itself: a capture from elsewhere must make nobody read his own files.
_OWN_PARTS = (
    "node.yaml", "nvml.json", "net.json", "host.json", "bmc.json", "kmsg.txt", "tree.json", "links.json",
    "measured.json", "root",
)  # fmt: skip
_LINKS: TypeAdapter[dict[str, str]] = TypeAdapter(dict[str, str])
#: Test -> figure by name, with its unit in it.
_Figure = Annotated[float, Field(strict=True, ge=0, lt=1e9, allow_inf_nan=False)]
_MEASURED: TypeAdapter[dict[str, dict[str, float]]] = TypeAdapter(dict[str, dict[str, _Figure]])


@dataclass(frozen=True, slots=True)
class NodeFolder:
    """A validated node folder; documents are plain JSON data. `None` means that the part was not captured."""

    path: Path
    meta: NodeMeta
    nvml: Mapping[str, Any]
    net: Mapping[str, Any] | None
    #: Text by path; {"hex": ...} for what is no text, {"error": NAME} for what could not be read.
    files: Mapping[str, Any] | None
    links: Mapping[str, str]
    kmsg: tuple[KmsgRecord, ...] | None
    host: Mapping[str, Any] | None
    bmc: Mapping[str, Any] | None
    #: Figures of measured tests by their names.
    measured: Mapping[str, Mapping[str, float]] | None
    profile: Path | None
    scenarios: Mapping[str, Path]
    #: What is read from this machine instead.
    live: Live


def read_again(folder: NodeFolder) -> NodeFolder:
    """The folder with its live documents as they are now. Raises ConfigError naming file and key."""
    changes: dict[str, Any] = {}
    if "nvml" in folder.live.documents:
        changes["nvml"] = _read_nvml(folder.path / "nvml.json")
    if "net" in folder.live.documents:
        changes["net"] = _read_net(folder.path / "net.json")
    return replace(folder, **changes)


def load_node_folder(path: Path) -> NodeFolder:
    """Read and validate a node folder. Raises ConfigError naming file and key."""
    _refuse_strange_folder(path)
    profile = path / "profile.yaml"
    files = _read_files(path)
    meta = _read_meta(path / "node.yaml")
    return NodeFolder(
        path=path,
        meta=meta,
        live=meta.live or Live(),
        nvml=_read_nvml(path / "nvml.json"),
        net=_read_net(path / "net.json") if (path / "net.json").exists() else None,
        files=files,
        links=_read_links(path / "links.json", files or {}) if (path / "links.json").exists() else {},
        kmsg=_read_kmsg(path / "kmsg.txt") if (path / "kmsg.txt").exists() else None,
        host=_read_part(path / "host.json", HOST),
        bmc=_read_part(path / "bmc.json", BMC),
        measured=_read_part(path / "measured.json", _MEASURED),
        profile=profile if profile.exists() else None,
        scenarios={file.stem: file for file in sorted((path / "scenarios").glob("*.yaml"))},
    )


def _refuse_strange_folder(path: Path) -> None:
    """Refuse what is no folder, cannot be entered, or has parts that lie elsewhere."""
    try:
        is_folder = path.is_dir()
        linked = [name for name in _OWN_PARTS if is_folder and (path / name).is_symlink()]
    except (OSError, ValueError) as cause:
        reason = getattr(cause, "strerror", None) or cause
        raise ConfigError(f"cannot read it: {reason}", where=str(path)) from cause
    if not is_folder:
        raise ConfigError(
            "is not a folder", where=str(path), remedy="give the folder that `nodegate capture` wrote"
        )
    if linked:
        raise ConfigError(
            "is a symbolic link; a capture must hold its own files", where=str(path / linked[0])
        )


def _read_meta(path: Path) -> NodeMeta:
    data = read_yaml(path)
    try:
        meta = NodeMeta.model_validate(data)
    except ValidationError as error:
        raise one_problem(error, data, str(path)) from error
    if meta.live is not None:
        check_live(meta.live, path)
    return meta


def _read_nvml(path: Path) -> dict[str, Any]:
    data: Any = read_json(path)
    try:
        NvmlDocument.model_validate(data)
    except ValidationError as error:
        raise one_problem(error, data, str(path)) from error
    seen: dict[str, int] = {}
    for i, gpu in enumerate(data["gpus"]):
        uuid = gpu["identity"]["uuid"]
        if uuid is None:
            continue
        if uuid in seen:
            raise ConfigError(f"gpus.{i}.identity.uuid: is also that of gpus.{seen[uuid]}", where=str(path))
        seen[uuid] = i
    valid: dict[str, Any] = data
    return valid


def _read_part(path: Path, adapter: TypeAdapter[Any]) -> dict[str, Any] | None:
    """A document as it is written; None when it was not captured."""
    if not path.exists():
        return None
    data = read_json(path)
    try:
        adapter.validate_python(data)
    except ValidationError as error:
        raise one_problem(error, data, str(path)) from error
    valid: dict[str, Any] = data
    return valid


def _read_net(path: Path) -> dict[str, Any]:
    data: Any = read_json(path)
    try:
        NET.validate_python(data)
    except ValidationError as error:
        raise one_problem(error, data, str(path)) from error
    missing = {"error": "MISSING"}
    return {
        name: netdev if is_refused(netdev) else {part: netdev.get(part, missing) for part in NETDEV_PARTS}
        for name, netdev in data.items()
    }


def _read_files(path: Path) -> dict[str, Any] | None:
    """The files of tree.json and of root/; None when neither was captured."""
    tree, root = path / "tree.json", path / "root"
    known = _read_part(tree, TREE)
    if known is None:
        return _read_root(root) if root.is_dir() else None
    found: dict[str, Any] = {}
    for name, value in known.items():
        if not is_plain_path(name):
            raise ConfigError(f"{name[:80]!r} is not a path under the root", where=str(tree))
        found[name] = value.strip() if isinstance(value, str) else value
    if len(found) > _FILES_LIMIT:
        raise ConfigError(f"holds more than {_FILES_LIMIT} files", where=str(tree))
    for name, text in (_read_root(root) if root.is_dir() else {}).items():
        if name in found:
            raise ConfigError(f"{name}: is also a file under root/", where=str(tree))
        found[name] = text
    for name in found:
        _refuse_file_as_folder(name, found, tree)
    return found


def _refuse_file_as_folder(name: str, files: Mapping[str, Any], tree: Path) -> None:
    """A path cannot lie below a file."""
    parent = name.rpartition("/")[0]
    while parent:
        if parent in files:
            raise ConfigError(f"{name}: lies below the file {parent}", where=str(tree))
        parent = parent.rpartition("/")[0]


def _read_root(root: Path) -> dict[str, str]:
    """Every file under root/ by its path there."""
    files: dict[str, str] = {}
    total = 0
    for folder, folders, names in os.walk(root, onerror=_walk_error):
        if len(Path(folder).relative_to(root).parts) > _DEPTH_LIMIT:
            raise ConfigError(f"holds folders more than {_DEPTH_LIMIT} deep", where=str(root))
        for name in [*folders, *names]:
            path = Path(folder, name)
            if path.is_symlink():
                raise ConfigError(
                    "symbolic links are not allowed here", where=str(path), remedy="write them to links.json"
                )
        for name in sorted(names):
            if len(files) >= _FILES_LIMIT:
                raise ConfigError(f"holds more than {_FILES_LIMIT} files", where=str(root))
            path = Path(folder, name)
            text = read_bounded(path, _FILE_LIMIT_B).strip()
            files[path.relative_to(root).as_posix()] = text
            total += len(text)
            if total > _TOTAL_LIMIT_B:
                raise ConfigError(f"holds more than {_TOTAL_LIMIT_B} bytes", where=str(root))
    return files


def _walk_error(cause: OSError) -> None:
    raise ConfigError(f"cannot read it: {cause.strerror}", where=str(cause.filename)) from cause


def _read_links(path: Path, files: Mapping[str, str]) -> dict[str, str]:
    data = read_json(path)
    try:
        links = _LINKS.validate_python(data, strict=True)
    except ValidationError as error:
        raise one_problem(error, data, str(path)) from error
    for link, target in links.items():
        if not is_plain_path(link):
            raise ConfigError(f"{link!r} is not a path under the root", where=str(path))
        if not target or "\0" in target or len(target) > 4096:
            raise ConfigError(f"{link}: {target[:40]!r} cannot be what a link points to", where=str(path))
        if link in files:
            raise ConfigError(f"{link}: is also a file under root/", where=str(path))
    return links


def _read_kmsg(path: Path) -> tuple[KmsgRecord, ...]:
    records: list[KmsgRecord] = []
    for number, line in enumerate(read_bounded(path).split("\n"), start=1):
        if not line or line.startswith(" "):  # dictionary lines of the record before
            continue
        try:
            records.append(parse_line(line))
        except ParseError as cause:
            raise ConfigError(str(cause), where=f"{path}:{number}") from cause
    return tuple(sorted(records, key=lambda record: record.seq))
