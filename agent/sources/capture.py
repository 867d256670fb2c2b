"""Capture: record a live or a replayed node as a node folder, which replays with the same readings."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from agent.checks.engine_packages import package_files
from agent.errors import ConfigError
from agent.node_profile import NodeProfile
from agent.sources import Sources
from agent.sources.capture_files import FileRecording, record_files
from agent.sources.capture_host import record_bmc, record_host, words_that_identify
from agent.sources.capture_parts import record_kmsg, record_netdev, record_nvml
from agent.sources.node_folder import load_node_folder
from agent.sources.redact import Redactor, vpd_serials
from agent.topo.named import named_files, tree_path

#: Parts of a node folder that a new capture replaces ...
_REPLACED = frozenset(
    {
        "node.yaml", "nvml.json", "net.json", "host.json", "bmc.json", "kmsg.txt", "tree.json", "links.json",
        "root",
    }
)  # fmt: skip
#: ... and those that people put there, which it keeps.
_KEPT = ("profile.yaml", "scenarios", "README.md", "raw")


_HOSTNAME = "proc/sys/kernel/hostname"
#: A pin's serial number and the node's name, in a profile that may not even be valid YAML.
_SERIAL = re.compile(r"""\bserial["']?[ \t]*:[ \t]*["']?([\w-]+)""")
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
    host: dict[str, Any] | None = None
    bmc: dict[str, Any] | None = None


def engine_packages(sources: Sources, profile: NodeProfile) -> list[str]:
    """The files that tell the versions of the engines' pinned packages."""
    environments = [engine.launch.environment for engine in profile.engines.values()]
    found = []
    for each in filter(None, environments):
        files = package_files(sources.tree, each.path)
        found += [files[name] for name in each.packages if name in files]
    return found


def record(
    sources: Sources, *, about: dict[str, Any] | None = None, profile: NodeProfile | None = None
) -> Recording:
    """Read everything once. `about` has what node.yaml says of the node (name, platform, ...).

    The profile names mounts, peers, units and Redfish services; without one these are left out.
    """
    not_captured: list[str] = []
    nvml = record_nvml(sources, not_captured)
    named = [named.host for named in named_files(profile) if named.host] if profile else []
    sysctl = profile.host.sysctl if profile else ()
    also = [*map(tree_path, named), *(engine_packages(sources, profile) if profile else ())]
    tree = record_files(sources.tree, sysctl, dict.fromkeys(also))
    captured_mono_s = sources.clock.mono_s()
    kmsg, shift_s = record_kmsg(sources, not_captured)
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
    net = {name: record_netdev(sources.net, name) for name in tree.netdevs}
    if not sources.tree.exists("sys/class/net"):
        not_captured.append("net.json: there is no /sys/class/net")
    known = sources.tree.exists("sys/class/net")
    host = record_host(sources, profile, shift_s)
    bmc = record_bmc(sources, profile, not_captured)
    return Recording(meta, nvml, net if known else None, kmsg, tree, not_captured, host, bmc)


def redact(recording: Recording, profile_text: str | None = None) -> tuple[Recording, str | None]:
    """The recording, and the profile that goes with it, without what identifies the machine."""
    identities = [gpu["identity"] for gpu in recording.nvml["gpus"]]
    # A pinned GPU that NVML does not show now is in the profile alone.
    pinned = _SERIAL.findall(profile_text or "")
    modules = [serial for netdev in (recording.net or {}).values() if (serial := _module_serial(netdev))]
    seen = [identity["serial"] for identity in identities if identity.get("serial")]
    redactor = Redactor(
        host=recording.meta["name"],
        serials=[*seen, *pinned, *modules, *_card_serials(recording.tree.files)],
        names=words_that_identify(recording.host, recording.bmc, recording.tree.files, profile_text or ""),
    )
    tree = FileRecording(
        {path: redactor.file(path, value) for path, value in recording.tree.files.items()},
        {path: redactor.text(text) for path, text in recording.tree.links.items()},
        recording.tree.netdevs,
    )
    if _HOSTNAME in tree.files:
        tree.files[_HOSTNAME] = redactor.host
    redacted = Recording(
        meta=redactor.document({**recording.meta, "redacted": True}) | {"name": redactor.host},
        nvml=redactor.document(recording.nvml),
        net=redactor.document(recording.net),
        kmsg=None if recording.kmsg is None else [redactor.text(line) for line in recording.kmsg],
        tree=tree,
        not_captured=[redactor.text(line) for line in recording.not_captured],
        host=redactor.keys_too(recording.host),
        bmc=redactor.keys_too(recording.bmc),
    )
    if profile_text is None:
        return redacted, None
    return redacted, redactor.text(_NODE_NAME.sub(rf"\g<1>{redactor.host}", profile_text))


def _card_serials(files: dict[str, Any]) -> list[str]:
    cards = [value for path, value in files.items() if path.endswith("/vpd") and "hex" in value]
    return [serial for card in cards for serial in vpd_serials(bytes.fromhex(card["hex"]))]


def _module_serial(netdev: dict[str, Any]) -> str | None:
    serial: str | None = (netdev.get("module") or {}).get("serial")
    return serial


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


def documents(recording: Recording, profile_text: str | None = None) -> dict[str, str]:
    """The files of a node folder by name, without a part that could not be read."""
    meta = {key: value for key, value in recording.meta.items() if value not in (None, [], "")}
    files: dict[str, str | None] = {
        "node.yaml": yaml.safe_dump(meta, sort_keys=False, allow_unicode=True),
        "nvml.json": _json(recording.nvml),
        "net.json": _json(recording.net),
        "kmsg.txt": None if recording.kmsg is None else "".join(f"{line}\n" for line in recording.kmsg),
        "links.json": _json(recording.tree.links or None),
        "tree.json": _json(recording.tree.files, indent=0),
        "host.json": _json(recording.host),
        "bmc.json": _json(recording.bmc),
        "profile.yaml": profile_text,
    }
    return {name: text for name, text in files.items() if text is not None}


def _json(value: Any, indent: int = 1) -> str | None:
    return None if value is None else json.dumps(value, indent=indent) + "\n"


def _write_files(recording: Recording, made: Path, profile_text: str | None) -> None:
    made.mkdir()
    for name, text in documents(recording, profile_text).items():
        (made / name).write_text(text)


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
