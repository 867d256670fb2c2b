"""Capture: record a live or a replayed node as a node folder, which replays with the same readings."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from agent.errors import ConfigError, DeviceAbsent, DeviceLost, NotSupported, SourceError, SourceTimeout
from agent.sources import DcbInfo, KmsgRecord, Net, Nvml, Sources
from agent.sources.capture_files import FileRecording, record_files
from agent.sources.gpu_reading import GpuIdentity, NvmlGroup, NvmlRefusal
from agent.sources.kmsg_records import format_line
from agent.sources.node_folder import load_node_folder
from agent.sources.redact import Redactor

#: Parts of a node folder that a new capture replaces ...
_REPLACED = frozenset({"node.yaml", "nvml.json", "net.json", "kmsg.txt", "links.json", "root"})
#: ... and those that people put there, which it keeps.
_KEPT = ("profile.yaml", "scenarios", "README.md", "raw")


_HOSTNAME = "proc/sys/kernel/hostname"
#: A pin's serial number and the node's name, in a profile that may not even be valid YAML.
_SERIAL = re.compile(r"""\bserial["']?\s*:\s*["']?([\w-]+)""")
_NODE_NAME = re.compile(r"""(?m)^(node:[ \t]+)["']?[\w.-]+["']?""")


@dataclass(slots=True)
class Recording:
    """What was read of a node; `None` is a part that could not be read, `not_captured` says why."""

    meta: dict[str, Any]
    nvml: dict[str, Any]
    net: dict[str, Any] | None
    kmsg: list[str] | None
    tree: FileRecording
    not_captured: list[str]


def record(sources: Sources, *, about: dict[str, Any] | None = None) -> Recording:
    """Read everything once. `about` has what node.yaml says of the node (name, platform, ...)."""
    not_captured: list[str] = []
    nvml = _record_nvml(sources, not_captured)
    tree = record_files(sources.tree)
    captured_mono_s = sources.clock.mono_s()
    kmsg, shift_s = _record_kmsg(sources, not_captured)
    driver = nvml["system"].get("driver_version")
    meta = {
        "schema": 1,
        "name": tree.files.get(_HOSTNAME) or "node",
        "simulated": False,
        **(about or {}),
        "captured_s": round(sources.clock.wall_s(), 3),
        "captured_mono_s": round(captured_mono_s + shift_s, 6),
        "boot_id": sources.clock.boot_id(),
        "driver": driver,
        "not_captured": not_captured,
    }
    net = {name: _record_netdev(sources.net, name) for name in tree.netdevs}
    if not sources.tree.exists("sys/class/net"):
        not_captured.append("net.json: there is no /sys/class/net")
    known = sources.tree.exists("sys/class/net")
    return Recording(meta, nvml, net if known else None, kmsg, tree, not_captured)


def redact(recording: Recording, profile_text: str | None = None) -> tuple[Recording, str | None]:
    """The recording, and the profile that goes with it, without what identifies the machine."""
    identities = [gpu["identity"] for gpu in recording.nvml["gpus"]]
    # A pinned GPU that NVML does not show now is in the profile alone.
    pinned = _SERIAL.findall(profile_text or "")
    redactor = Redactor(
        host=recording.meta["name"],
        serials=[*(identity["serial"] for identity in identities if identity.get("serial")), *pinned],
    )
    tree = FileRecording(
        {path: redactor.text(text) for path, text in recording.tree.files.items()},
        {path: redactor.text(text) for path, text in recording.tree.links.items()},
        recording.tree.netdevs,
    )
    if _HOSTNAME in tree.files:
        tree.files[_HOSTNAME] = redactor.host
    redacted = Recording(
        meta=redactor.document({**recording.meta, "redacted": True}) | {"name": redactor.host},
        nvml=redactor.document(recording.nvml),
        net=recording.net,
        kmsg=None if recording.kmsg is None else [redactor.text(line) for line in recording.kmsg],
        tree=tree,
        not_captured=recording.not_captured,
    )
    if profile_text is None:
        return redacted, None
    return redacted, redactor.text(_NODE_NAME.sub(rf"\g<1>{redactor.host}", profile_text))


def check_target(target: Path) -> None:
    """Refuse a folder that holds anything but an earlier capture. Raises ConfigError."""
    try:
        if not target.exists() and not target.is_symlink():
            return
        names = {child.name for child in target.iterdir()} if target.is_dir() else None
    except (OSError, ValueError) as cause:
        raise ConfigError(f"cannot be used: {cause}", where=str(target)) from cause
    if names is None or target.is_symlink():
        raise ConfigError("is not a folder", where=str(target), remedy="name a new folder")
    strangers = sorted(names - _REPLACED - set(_KEPT))
    if names and ("node.yaml" not in names or strangers):
        what = f"it holds {strangers[0]}" if strangers else "it is no capture"
        raise ConfigError(
            f"is not empty and not an earlier capture ({what})", where=str(target), remedy="name a new folder"
        )


def write(recording: Recording, target: Path, profile_text: str | None = None) -> None:
    """Write a node folder: whole and proven to be readable, or not at all. Raises ConfigError."""
    check_target(target)
    parent = target.absolute().parent
    try:
        parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(
            prefix=f".{target.name}.", dir=parent, ignore_cleanup_errors=True
        ) as name:
            made = Path(name) / "new"
            _write_files(recording, made, profile_text)
            _keep(target, made)
            load_node_folder(made)
            _swap(made, target, Path(name) / "old")
    except (OSError, ValueError) as cause:
        reason = getattr(cause, "strerror", None) or cause
        raise ConfigError(f"cannot write it: {reason}", where=str(target)) from cause


def _write_files(recording: Recording, made: Path, profile_text: str | None) -> None:
    made.mkdir()
    meta = {key: value for key, value in recording.meta.items() if value not in (None, [], "")}
    (made / "node.yaml").write_text(yaml.safe_dump(meta, sort_keys=False, allow_unicode=True))
    (made / "nvml.json").write_text(json.dumps(recording.nvml, indent=1) + "\n")
    if recording.net is not None:
        (made / "net.json").write_text(json.dumps(recording.net, indent=1) + "\n")
    if recording.kmsg is not None:
        (made / "kmsg.txt").write_text("".join(f"{line}\n" for line in recording.kmsg))
    if recording.tree.links:
        (made / "links.json").write_text(json.dumps(recording.tree.links, indent=1) + "\n")
    for path, text in recording.tree.files.items():
        file = made / "root" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n" if text else "")
    if profile_text is not None:
        (made / "profile.yaml").write_text(profile_text)


def _keep(target: Path, made: Path) -> None:
    """Carry what people added to an earlier capture over to the new one."""
    for name in _KEPT:
        old, new = target / name, made / name
        if new.exists() or not old.exists():
            continue
        if old.is_dir():
            shutil.copytree(old, new, symlinks=True)
        else:
            shutil.copy2(old, new)


def _swap(made: Path, target: Path, old: Path) -> None:
    """Put the new folder in the old one's place; on failure the old one is put back."""
    had_old = target.exists()
    if had_old:
        target.rename(old)
    try:
        made.rename(target)
    except OSError:
        if had_old:
            old.rename(target)
        raise


def _record_nvml(sources: Sources, not_captured: list[str]) -> dict[str, Any]:
    try:
        system = dataclasses.asdict(sources.nvml.system())
        identities = sources.nvml.inventory()
    except SourceError as cause:
        not_captured.append(f"nvml.json: {cause}")
        return {"system": _refusal(cause), "gpus": []}
    timed = not sources.simulated
    return {"system": system, "gpus": [_record_gpu(sources.nvml, gpu, timed) for gpu in identities]}


def _record_gpu(nvml: Nvml, identity: GpuIdentity, timed: bool) -> dict[str, Any]:
    """All groups of one GPU; how long they took is worth keeping only on a real one."""
    found: dict[str, Any] = {"identity": dataclasses.asdict(identity)}
    call_us: dict[str, float] = {}
    for group in NvmlGroup if identity.uuid else ():
        begun_s = time.perf_counter()
        try:
            values = nvml.read(str(identity.uuid), group).values
            found[group.value] = {
                name: {"error": value.name} if isinstance(value, NvmlRefusal) else value
                for name, value in values.items()
            }
        except SourceError as cause:
            found[group.value] = _refusal(cause)
        call_us[group.value] = round((time.perf_counter() - begun_s) * 1e6, 1)
    return {**found, "call_us": call_us} if timed else found


def _record_netdev(net: Net, name: str) -> dict[str, Any]:
    return {
        "link": _part(lambda: _link_document(net, name)),
        "ethtool": _part(lambda: dict(net.ethtool_stats(name))),
        "dcb": _part(lambda: _dcb_document(net.dcb(name))),
    }


def _part(read: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return read()
    except SourceError as cause:
        return _refusal(cause)


def _link_document(net: Net, name: str) -> dict[str, Any]:
    info = dataclasses.asdict(net.link(name))
    del info["name"]
    return info


def _dcb_document(info: DcbInfo) -> dict[str, Any]:
    return {
        "pfc_on": list(info.pfc_on),
        "trust": info.trust,
        "dscp_to_priority": {str(dscp): priority for dscp, priority in sorted(info.dscp_to_priority.items())},
        "host_managed": info.host_managed,
    }


def _record_kmsg(sources: Sources, not_captured: list[str]) -> tuple[list[str] | None, float]:
    """Lines of the kernel log, and how many seconds all times are moved so that none is before zero.

    A replayed log can begin before this machine's boot.
    """
    try:
        records = sources.kmsg.records()
    except SourceError as cause:
        not_captured.append(f"kmsg.txt: {cause}")
        return None, 0.0
    shift_s = max(0.0, -min((record.mono_s for record in records), default=0.0))
    moved = [KmsgRecord(r.seq, r.mono_s + shift_s, r.level, r.text) for r in records]
    return [format_line(r) for r in moved], shift_s


def _refusal(cause: SourceError) -> dict[str, Any]:
    """The error in a document that replays as the same kind of SourceError."""
    names: tuple[tuple[type[SourceError], str], ...] = (
        (NotSupported, "NOT_SUPPORTED"),
        (DeviceLost, "GPU_IS_LOST"),
        (DeviceAbsent, "ABSENT"),
        (SourceTimeout, "TIMEOUT"),
    )
    for kind, name in names:
        if isinstance(cause, kind):
            return {"error": name}
    return {"error": "UNAVAILABLE"}


def read_profile_text(path: Path | None) -> str | None:
    """The text of a profile that goes into a capture; None without one. Raises ConfigError."""
    if path is None:
        return None
    with suppress(OSError, ValueError):
        return path.read_text(encoding="utf-8")
    raise ConfigError(
        "cannot read the profile",
        where=str(path),
        remedy="run this as root, or name another with --profile FILE",
    )
