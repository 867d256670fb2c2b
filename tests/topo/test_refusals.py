"""Fail closed: each value that the checks read is refused or garbled; what rests on it must not pass."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from check_cases import run_check
from fake_sources import FakeNode
from topo_nodes import PCI, machine, recorded, topo_node, topo_profile

from agent.checks.registry import load_all
from agent.model import Verdict
from agent.node_profile import NodeProfile
from agent.topo.write_file import render

FILE = "etc/nodegate/nccl-topo.xml"
GPU, NIC = "0000:61:00.0", "0000:5e:00.0"
BAD_NVML: list[Any] = [
    {"error": "NOT_SUPPORTED"},
    {"error": "TIMEOUT"},
    "garbage",
    None,
    [],
    [None] * 18,
    ["x"] * 18,
]
BAD_FILE: list[Any] = [None, "", "garbage", "-1", "4", {"error": "NO_PERMISSION"}]
BAD_LINK: list[Any] = [None, "", "garbage", "../../../0000:zz:00.0", {"error": "NO_PERMISSION"}]
CHECKS = load_all()


def _is_sound(check: str, path: str, value: Any) -> bool:
    """A link's other end may tell alone, and NCCL takes the NUMA node of the topmost function."""
    if check != "topology.file":
        return False
    return (value is None and "max_link" in path) or (value in ("-1", "4") and path.endswith("/numa_node"))


def _node() -> tuple[FakeNode, NodeProfile]:
    node, profile = topo_node("h200-roce"), topo_profile("h200-roce")
    profile = recorded(node, profile, nccl_file=f"/{FILE}")
    node.set(f"files:{FILE}", render(machine(node, profile)))
    node.reads.clear()
    return node, profile


def _reads(check: str) -> list[str]:
    node, profile = _node()
    run_check(CHECKS[check], node, profile)
    return sorted(
        path for path in node.reads if path.startswith("nvml.gpus.3.") or GPU in path or NIC in path
    )


def _bad(path: str) -> list[Any]:
    return BAD_NVML if path.startswith("nvml") else BAD_LINK if path.startswith("links") else BAD_FILE


def _cases() -> Iterator[tuple[str, str]]:
    for check in ("topology.file", "topology.expected"):
        yield from ((check, path) for path in _reads(check))


@pytest.mark.parametrize(("check", "path"), list(_cases()))
def test_nothing_passes_on_a_bad_value(check: str, path: str) -> None:
    node, profile = _node()
    where, _, name = path.partition(":")
    kept = node.data[where].get(name) if where in ("files", "links") else None
    for value in (value for value in _bad(path) if not _is_sound(check, path, value)):
        node.set(path, value)
        found = run_check(CHECKS[check], node, profile)
        subject = "node" if check == "topology.file" else "mlx5_3/1" if NIC in path else "gpu3"
        assert found[subject].verdict in (Verdict.FAIL, Verdict.UNKNOWN), (value, found[subject])
        if kept is not None:
            node.set(path, kept)


def test_the_reads_are_what_the_checks_are_about() -> None:
    assert {path.rsplit("/", 1)[-1] for path in _reads("topology.file")} >= {
        "class",
        "vendor",
        "max_link_speed",
    }
    assert f"files:{PCI}/{GPU}/numa_node" in _reads("topology.expected")
    assert "nvml.gpus.3.peers.p2p_nvlink" in _reads("topology.expected")
