"""A topology file as a System: elements with their values checked, comments of nodegate's own as stamps."""

from __future__ import annotations

import re

from agent.errors import ConfigError
from agent.topo.dialect import Document, Element, read_document
from agent.topo.model import Cpu, Gpu, Net, Nic, NvLink, Pairs, Pci, Stamp, System

VERSION = "1"
SIMULATED = "SIMULATED: written from a captured node"
#: NCCL compares bus ids as text with the kernel's, which are of this form and in lower case.
BUS_ID = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_STAMP = re.compile(r"(\S+)(?: (GPU-[0-9a-f-]{36}))? at ([0-9a-f:.]{12})")
_MASK = re.compile(r"[0-9a-f]{1,8}(,[0-9a-f]{8})*")
_INTEGER = re.compile(r"-?(0x[0-9a-fA-F]{1,8}|[0-9]{1,9})")
_IDS = ("vendor", "device", "subsystem_vendor", "subsystem_device")
_KIND = ("arch", "vendor", "familyid", "modelid")


def parse(text: str, file: str) -> System:
    """A file's topology. Raises ConfigError with `file:line:column`."""
    document = read_document(text, file)
    return _Builder(file).system(document)


class _Builder:
    def __init__(self, file: str) -> None:
        self._file = file
        self._seen: dict[str, int] = {}

    def system(self, document: Document) -> System:
        root = document.root
        version = self._required(root, "version")
        if version != VERSION:
            self._refuse(root, f"version {version} is none that NCCL reads", f'write version="{VERSION}"')
        matches = [_STAMP.fullmatch(comment) for comment in document.comments]
        return System(
            cpus=tuple(self._cpu(child) for child in root.children),
            stamps=tuple(Stamp(match[1], match[3], match[2]) for match in matches if match),
            name=root.attributes.get("name"),
            simulated=SIMULATED in document.comments,
        )

    def _cpu(self, element: Element) -> Cpu:
        self._required(element, "numaid")
        numaid = self._number(element, "numaid") or 0
        affinity = element.attributes.get("affinity")
        if affinity is not None and not _MASK.fullmatch(affinity):
            self._refuse(element, f"affinity {affinity[:40]!r} is no mask of CPUs", "write ffffffff,ffffffff")
        return Cpu(
            numaid,
            None if affinity is None else int(affinity.replace(",", ""), 16),
            _pairs(element, _KIND),
            tuple(self._pci(child) for child in element.children if child.name == "pci"),
            tuple(self._nic(child) for child in element.children if child.name == "nic"),
            _rest(element, "numaid", "affinity", *_KIND),
        )

    def _pci(self, element: Element) -> Pci:
        busid = self._required(element, "busid")
        if not BUS_ID.fullmatch(busid):
            remedy = "write it as the kernel does, dddd:bb:dd.f in lower case"
            self._refuse(element, f"busid {busid[:40]!r} is found by no device", remedy)
        if busid in self._seen:
            text = f"busid {busid} stands in line {self._seen[busid]} already"
            self._refuse(element, text, "keep one of them")
        self._seen[busid] = element.line
        children = element.children
        return Pci(
            busid,
            element.attributes.get("class"),
            element.attributes.get("link_speed"),
            self._number(element, "link_width"),
            _pairs(element, _IDS),
            tuple(self._pci(child) for child in children if child.name == "pci"),
            tuple(self._gpu(child) for child in children if child.name == "gpu"),
            tuple(self._nic(child) for child in children if child.name == "nic"),
            tuple(self._required(child, "target") for child in children if child.name == "pcilink"),
            _rest(element, "busid", "class", "link_speed", "link_width", *_IDS),
        )

    def _gpu(self, element: Element) -> Gpu:
        links = [child for child in element.children if child.name == "nvlink"]
        return Gpu(tuple(self._nvlink(child) for child in links), _rest(element))

    def _nvlink(self, element: Element) -> NvLink:
        self._required(element, "count")
        count = self._number(element, "count") or 0
        return NvLink(self._required(element, "target"), count, element.attributes.get("tclass"))

    def _nic(self, element: Element) -> Nic:
        return Nic(tuple(Net(self._required(net, "name"), _rest(net, "name")) for net in element.children))

    def _required(self, element: Element, key: str) -> str:
        if key not in element.attributes:
            self._refuse(element, f"<{element.name}> has no {key}", "NCCL needs it")
        return element.attributes[key]

    def _number(self, element: Element, key: str) -> int | None:
        text = element.attributes.get(key)
        if not text:
            return None if text is None else 0
        if not _INTEGER.fullmatch(text):
            self._refuse(element, f"{key} {text[:40]!r} is not a whole number", "NCCL would take what it can")
        return int(text, 0) if "x" in text else int(text)

    def _refuse(self, element: Element, problem: str, remedy: str) -> None:
        raise ConfigError(problem, where=f"{self._file}:{element.line}:{element.column}", remedy=remedy)


def _pairs(element: Element, keys: tuple[str, ...]) -> Pairs:
    return tuple((key, element.attributes[key]) for key in keys if key in element.attributes)


def _rest(element: Element, *known: str) -> Pairs:
    return tuple((key, value) for key, value in element.attributes.items() if key not in known)
