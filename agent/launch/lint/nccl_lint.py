"""Rules for NCCL's settings on a node: names, devices, traffic class, interfaces, transport.

https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

from agent.errors import DeviceAbsent
from agent.fabric_profile import Fabric, FabricKind
from agent.launch.lint.nccl_settings import NcclSettings
from agent.launch.nccl_env import MAX_HCAS, traffic_class
from agent.sources import Tree
from agent.sources.launch_reading import Problem, Severity

_RDMA = "sys/class/infiniband"
_NET = "sys/class/net"
#: Documented for looking for faults only.
_DEBUGGING = ("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_NET_GDR_DISABLE", "NCCL_CHECKS_DISABLE")


@dataclass(frozen=True, slots=True)
class Around:
    """What the settings are compared with: the machine, the profile's fabric, whether ranks use RDMA."""

    tree: Tree
    fabric: Fabric
    rdma: bool

    @property
    def bad(self) -> Severity:
        """A mistake in the network does not hurt an engine that stays inside its node."""
        return Severity.ERROR if self.rdma else Severity.WARNING

    def names(self, folder: str) -> list[str]:
        """What sysfs lists; nothing where there is none."""
        try:
            return self.tree.names(folder)
        except DeviceAbsent:
            return []


def nccl_problems(settings: NcclSettings, around: Around) -> list[Problem]:
    """All that is wrong. Raises SourceError when sysfs cannot be read."""
    rules = (_unknown, _devices, _gid, _traffic, _interfaces, _transport, _files)
    return [*settings.problems, *(problem for rule in rules for problem in rule(settings, around))]


@cache
def known_variables() -> frozenset[str]:
    """Every variable that NCCL reads."""
    text = resources.files("agent.launch.lint").joinpath("nccl_variables.txt").read_text(encoding="utf-8")
    return frozenset(line for line in text.splitlines() if line and not line.startswith("#"))


def _unknown(settings: NcclSettings, _around: Around) -> Iterator[Problem]:
    known = known_variables()
    for name in sorted(settings.values):
        if name in known or name != name.strip():
            continue
        near = difflib.get_close_matches(name, known, 1, 0.8)
        remedy = f"did you mean {near[0]}?" if near else "remove it"
        yield Problem(Severity.WARNING, settings.where(name), "NCCL reads no such variable", remedy)


def _matched(given: str) -> tuple[list[str], bool, bool]:
    """The items of a list, whether they are exact names, whether they are left out."""
    excludes = given.startswith("^")
    rest = given.removeprefix("^")
    items = [item.strip() for item in rest.removeprefix("=").split(",") if item.strip()]
    return items, rest.startswith("="), excludes


def _devices(settings: NcclSettings, around: Around) -> Iterator[Problem]:
    given, where = settings.value("NCCL_IB_HCA"), settings.where("NCCL_IB_HCA")
    items, exact, excludes = _matched(given)
    if not items:
        return
    if len(items) > MAX_HCAS:
        text = f"names {len(items)} devices and NCCL uses {MAX_HCAS} at most"
        yield Problem(Severity.ERROR, where, text, "name fewer")
    present = around.names(_RDMA)
    missing: list[str] = []
    for item in items:
        device, port = [*item.split(":"), ""][:2]  # a rail and a plane may follow
        taken = [name for name in present if name == device or (not exact and name.startswith(device))]
        if not taken and not excludes:
            missing.append(device)
        elif port.isdecimal() and not excludes:
            yield from _port(around, where, taken, port)
        more = [name for name in taken if name != device]
        if more and device in taken:
            text = f"{device} is taken for the beginning of a name, so {', '.join(more)[:60]} are meant too"
            yield Problem(around.bad, where, text, f"write ={given.lstrip('^')}")
    if missing:
        text = f"there is no RDMA device {', '.join(missing)[:80]}"
        yield Problem(
            around.bad, where, text, f"name those that there are: {', '.join(present)[:80] or 'none'}"
        )
    if not exact and given.lstrip("^"):
        text = "without `=` each name is a prefix: mlx5_1 is mlx5_10 to mlx5_19 too"
        yield Problem(
            Severity.WARNING, where, text, f"write {'^' if excludes else ''}={','.join(items)[:80]}"
        )


def _port(around: Around, where: str, devices: list[str], port: str) -> Iterator[Problem]:
    for device in devices:
        ports = around.names(f"{_RDMA}/{device}/ports")
        if port not in ports:
            text = f"{device} has no port {port}"
            yield Problem(around.bad, where, text, f"its ports are {', '.join(ports) or 'none'}")


def _gid(settings: NcclSettings, around: Around) -> Iterator[Problem]:
    given = settings.value("NCCL_IB_GID_INDEX")
    if given in ("", "-1") or given == str(around.fabric.roce.gid_index):
        return
    text = (
        f"is fixed at {given[:10]}, and indexes can shift at a reboot; NCCL finds the RoCE v2 GID by itself"
    )
    remedy = "remove it, or set fabric.roce.gid_index, which nic.gid then watches"
    yield Problem(Severity.WARNING, settings.where("NCCL_IB_GID_INDEX"), text, remedy)


def _traffic(settings: NcclSettings, around: Around) -> Iterator[Problem]:
    if around.fabric.kind is not FabricKind.ROCE:
        return
    roce, want = around.fabric.roce, traffic_class(around.fabric.roce)
    for name in ("NCCL_IB_TC", "NCCL_IB_FIFO_TC"):
        given, where = settings.value(name), settings.where(name)
        if not given and (name != "NCCL_IB_TC" or not around.rdma):
            continue  # the FIFO's follows the other one
        text = given or "0"
        if not text.isdecimal() or int(text) > 255:
            yield Problem(around.bad, where, f"{text[:20]!r} is not 0 to 255", f"write {want}")
        elif roce.trust == "dscp" and int(text) >> 2 != roce.dscp:
            words = f"{text} is DSCP {int(text) >> 2}, and fabric.roce.dscp is {roce.dscp}"
            yield Problem(around.bad, where, words, f"write {want}, or leave it to nodegate")
        elif roce.ecn and int(text) & 3 == 0:
            words = f"{text} says that packets are not ECN-capable: switches drop what they should mark"
            yield Problem(Severity.WARNING, where, words, f"write {want}")


def _interfaces(settings: NcclSettings, around: Around) -> Iterator[Problem]:
    name = "NCCL_SOCKET_IFNAME"
    given, where = settings.value(name), settings.where(name)
    items, exact, excludes = _matched(given)
    if not items:
        return
    present = around.names(_NET)
    for item in items:
        taken = [each for each in present if each == item or (not exact and each.startswith(item))]
        if not taken and not excludes:
            text = f"no interface {'is named' if exact else 'begins with'} {item}"
            yield Problem(Severity.ERROR, where, text, f"this node has {', '.join(present)[:80] or 'none'}")
    if not exact and not excludes:
        text = "without `=` each name is a prefix: eth1 is eth10 to eth19 too"
        yield Problem(Severity.WARNING, where, text, f"write ={','.join(items)[:80]}")


def rendezvous_problems(env: Mapping[str, str], nodes: int) -> list[Problem]:
    """What joins the ranks of several nodes must use the same network as NCCL: Gloo, vLLM's own sockets."""
    if nodes < 2 or "NCCL_SOCKET_IFNAME" not in env:
        return []
    missing = [name for name in ("GLOO_SOCKET_IFNAME", "VLLM_HOST_IP") if name not in env]
    text = "is not set while NCCL_SOCKET_IFNAME is: ranks may look for each other in another network"
    return [Problem(Severity.WARNING, name, text, "set it too") for name in missing]


def _transport(settings: NcclSettings, around: Around) -> Iterator[Problem]:
    if not around.rdma:
        return
    net = settings.value("NCCL_NET")
    if net == "Socket":
        text = "is Socket, and launch.rdma says that ranks use RDMA"
        yield Problem(Severity.ERROR, settings.where("NCCL_NET"), text, "write IB or remove it")
    elif not net:
        text = "is not set: where RDMA fails NCCL falls back to TCP without a word"
        yield Problem(Severity.WARNING, "NCCL_NET", text, "set it to IB in launch.env")
    if settings.value("NCCL_IB_DISABLE") not in ("", "0"):
        text = "turns RDMA off, and launch.rdma says that ranks use it"
        yield Problem(Severity.ERROR, settings.where("NCCL_IB_DISABLE"), text, "remove it")


_WRITE_TOPOLOGY = "write it with `nodegate topo write FILE`"


def _files(settings: NcclSettings, around: Around) -> Iterator[Problem]:
    path = settings.value("NCCL_TOPO_FILE")
    if path.startswith("/") and not around.tree.exists(path.lstrip("/")):
        where = settings.where("NCCL_TOPO_FILE")
        yield Problem(Severity.ERROR, where, f"there is no file {path}", _WRITE_TOPOLOGY)
    for name in _DEBUGGING:
        if settings.value(name) not in ("", "0"):
            text = "is for looking for faults: it makes every collective slower"
            yield Problem(Severity.WARNING, settings.where(name), text, "remove it")
