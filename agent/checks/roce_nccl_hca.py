"""NCCL_IB_HCA against the data ports of the profile: which ports it names, and which it leaves out. Pure.

`^` excludes, `=` means exact names, else each item is a prefix; an item may name a port: `mlx5_0:1`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent.node_profile import NicPort


@dataclass(frozen=True, slots=True)
class _Choice:
    """The items of the variable and how NCCL matches them."""

    items: tuple[tuple[str, str], ...]
    exact: bool
    excludes: bool

    def names(self, item: tuple[str, str], port: NicPort) -> bool:
        device, number = item
        same = port.device == device if self.exact else port.device.startswith(device)
        return same and number in ("", str(port.port))

    def takes(self, port: NicPort) -> bool:
        return any(self.names(item, port) for item in self.items) is not self.excludes


def hca_problem(given: str, ports: Sequence[NicPort], slots: Sequence[int]) -> tuple[str, bool] | None:
    """What is wrong with the variable, and whether that hurts; None when it takes what the engine needs.

    Unset, NCCL takes every device that is up, also those that are not data ports.
    """
    if not given:
        return "NCCL_IB_HCA is not set: NCCL takes every RDMA device, also those of management", False
    choice = _parsed(given)
    strangers = [
        device for device, number in choice.items
        if not choice.excludes and not any(choice.names((device, number), port) for port in ports)
    ]  # fmt: skip
    if strangers:
        return f"NCCL_IB_HCA names {', '.join(strangers)[:60]}, which is no data port of the profile", True
    needed = [port for port in ports if port.gpu is None or port.gpu in slots]
    left_out = [f"{port.device}:{port.port}" for port in needed if not choice.takes(port)]
    if left_out and len(left_out) == len(needed):
        return "NCCL_IB_HCA takes none of the data ports of this engine's GPUs", True
    if left_out:
        return f"NCCL_IB_HCA leaves out {', '.join(left_out)[:80]}", False
    return None


def _parsed(given: str) -> _Choice:
    excludes = given.startswith("^")
    rest = given.removeprefix("^")
    exact = rest.startswith("=")
    pairs = (item.strip().partition(":") for item in rest.removeprefix("=").split(",") if item.strip())
    return _Choice(tuple((device, number) for device, _, number in pairs), exact, excludes)
