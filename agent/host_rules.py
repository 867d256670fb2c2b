"""What contradicts itself in the parts `host` and `gpus`: kernel arguments, modules, driver packages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from agent.profile_problem import CrossProblem

if TYPE_CHECKING:
    from agent.node_profile import NodeProfile

#: Packages of one driver release: only with the same version do they work together.
_ONE_RELEASE = re.compile(r"(?:lib)?nvidia-|cuda-drivers|xserver-xorg-video-nvidia")
#: `1:580.159.04-0ubuntu1` is of driver 580.159.04; the container toolkit (1.17.8-1) is of none.
_RELEASE = re.compile(r"(?:\d+:)?(\d{3}\.\d{1,3}(?:\.\d{1,3})?)(?:[-+~]|$)")
_IOMMU_KEYS = ("iommu", "intel_iommu", "amd_iommu", "iommu.passthrough")


def host_problems(profile: NodeProfile) -> Iterator[CrossProblem]:
    """All of them."""
    yield from _packages(profile)
    yield from _kernel_args(profile)
    yield from _iommu(profile)
    host = profile.host
    for name in sorted(set(host.modules) & set(host.modules_absent)):
        path = ("host", "modules_absent", str(host.modules_absent.index(name)))
        yield CrossProblem(
            path, f"module {name} is wanted and excluded", ("host", "modules"), "list it in one of them"
        )
    if host.hugepages and "vm.nr_hugepages" in host.sysctl:
        path = ("host", "sysctl", "vm.nr_hugepages")
        text = "the number of huge pages is given twice"
        yield CrossProblem(path, text, ("host", "hugepages"), "keep host.hugepages alone")
    if host.aspm is not None and "pcie_aspm=off" in host.kernel_args:
        text = "a kernel with pcie_aspm=off takes no PCIe power saving policy"
        yield CrossProblem(("host", "aspm"), text, ("host", "kernel_args"), "keep one of them")


def _packages(profile: NodeProfile) -> Iterator[CrossProblem]:
    """Driver, fabric manager and persistence daemon of different releases."""
    releases: dict[str, str] = {}
    for name, version in profile.gpus.packages.items():
        match = _RELEASE.match(version)
        if match and _ONE_RELEASE.match(name):
            releases[name] = match[1]
    first = next(iter(releases), None)
    if first is None:
        return
    for name, release in releases.items():
        path = ("gpus", "packages", name)
        if profile.driver_version is not None and release != profile.driver_version:
            text = f"{name} is of driver {release}, driver_version says {profile.driver_version}"
            yield CrossProblem(path, text, ("driver_version",), "give both the same version")
        elif release != releases[first]:
            text = f"{name} is of driver {release}, {first} of {releases[first]}: they do not work together"
            yield CrossProblem(path, text, ("gpus", "packages", first), "give them the same version")


def _kernel_args(profile: NodeProfile) -> Iterator[CrossProblem]:
    host = profile.host
    for at, word in enumerate(host.kernel_args):
        for absent in host.kernel_args_absent:
            if absent in (word, word.split("=", 1)[0]):
                text = f"{word} is wanted, and excluded by {absent} of host.kernel_args_absent"
                path, other = ("host", "kernel_args", str(at)), ("host", "kernel_args_absent")
                yield CrossProblem(path, text, other, "list it in one of them")


def _iommu(profile: NodeProfile) -> Iterator[CrossProblem]:
    """Words that host.iommu sets by itself."""
    host = profile.host
    if host.iommu is None:
        return
    for at, word in enumerate(host.kernel_args_absent):
        if word.split("=", 1)[0] in _IOMMU_KEYS and "=" not in word:
            text = f"host.iommu: {host.iommu} is set by the kernel argument {word}, which is excluded"
            path = ("host", "kernel_args_absent", str(at))
            yield CrossProblem(path, text, ("host", "iommu"), "take it out of host.kernel_args_absent")
