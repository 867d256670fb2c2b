"""Write a filled-in node as the documents of a node folder."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

UPTIME_S = 93784.25
CAPTURED_S = 1795967760.0


@dataclass
class Node:
    """Everything that a node folder holds, as data."""

    name: str
    platform: str
    description: str
    driver: str
    boot_id: str
    filled_in: list[str]
    profile: str
    gpus: list[dict[str, Any]]
    nvml_version: str
    cuda_version: int = 13000
    net: dict[str, Any] = field(default_factory=dict)
    files: dict[str, Any] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    host: dict[str, Any] = field(default_factory=dict)
    bmc: dict[str, Any] | None = None
    kmsg: list[tuple[int, float, str]] = field(default_factory=list)


def write(node: Node, folder: Path) -> None:
    """Write the node's documents; what is made by hand (README.md, scenarios) is not touched."""
    folder.mkdir(parents=True, exist_ok=True)
    meta = {
        "schema": 1,
        "name": node.name,
        "platform": node.platform,
        "description": node.description,
        "simulated": True,
        "captured_s": CAPTURED_S,
        "captured_mono_s": UPTIME_S,
        "boot_id": node.boot_id,
        "driver": node.driver,
        "redacted": True,
        "filled_in": node.filled_in,
    }
    (folder / "node.yaml").write_text(yaml.safe_dump(meta, sort_keys=False))
    system = {
        "driver_version": node.driver,
        "nvml_version": node.nvml_version,
        "cuda_version": node.cuda_version,
        "device_count": len(node.gpus),
    }
    write_json(folder / "nvml.json", {"system": system, "gpus": node.gpus}, depth=3)
    write_json(folder / "net.json", node.net, depth=2)
    write_json(folder / "tree.json", dict(sorted(node.files.items())), depth=1)
    write_json(folder / "links.json", dict(sorted(node.links.items())), depth=1)
    write_json(folder / "host.json", node.host, depth=2)
    if node.bmc is not None:
        write_json(folder / "bmc.json", node.bmc, depth=2)
    (folder / "kmsg.txt").write_text("".join(f"{line}\n" for line in kernel_lines(node.kmsg)))
    (folder / "profile.yaml").write_text(node.profile)


def kernel_lines(lines: list[tuple[int, float, str]]) -> list[str]:
    """(level, seconds, text) as /dev/kmsg shows them."""
    lines = sorted(lines, key=lambda line: line[1])
    return [f"{level},{900 + i},{round(at_s * 1e6)},-;{text}" for i, (level, at_s, text) in enumerate(lines)]


def write_json(path: Path, document: Any, depth: int) -> None:
    """JSON with a line for each value down to a depth, so that a change is a readable difference."""
    path.write_text(_dump(document, depth, "") + "\n")


def _dump(value: Any, depth: int, indent: str) -> str:
    if depth == 0 or not isinstance(value, dict | list) or not value:
        return json.dumps(value)
    inner = indent + " "
    if isinstance(value, dict):
        items = [f"{inner}{json.dumps(key)}: {_dump(item, depth - 1, inner)}" for key, item in value.items()]
        return "{\n" + ",\n".join(items) + f"\n{indent}}}"
    items = [f"{inner}{_dump(item, depth - 1, inner)}" for item in value]
    return "[\n" + ",\n".join(items) + f"\n{indent}]"
