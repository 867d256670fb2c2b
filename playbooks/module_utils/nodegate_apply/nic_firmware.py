"""Firmware of the RDMA NICs: what is burned, what runs, and burning what the profile asks for.

Tools: flint and mlxfwreset of MFT, or mstflint and mstfwreset of the distribution; their words are the same.
`flint -d BDF q` gives PSID and FW Version (burned), and FW Version(Running) only where that differs.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Sequence
from typing import Any

from .host import Host, HostError
from .setting import Setting

FIELD = "fabric.nic.images"
_LINE = re.compile(r"^(FW Version|FW Version\(Running\)|PSID|Base MAC|Base GUID):[ \t]+(\S+)", re.MULTILINE)
_BDF = re.compile(r"[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]")
_VERSION = re.compile(r"\d{1,9}(?:\.\d{1,9})+")
_TOOLS = (("flint", "mlxfwreset"), ("mstflint", "mstfwreset"))


@dataclasses.dataclass(frozen=True)
class Query:
    """What flint tells of a card or an image."""

    psid: str
    version: str
    running: str | None = None
    identity: str | None = None


@dataclasses.dataclass(frozen=True)
class Image:
    """One image of the profile; `path` is where it lies on this node, unset until it has been copied."""

    board_id: str
    version: str
    match: str
    sha256: str
    path: str | None = None

    def takes(self, version: str) -> bool:
        """Whether a card with that version is as the profile wants it."""
        have, want = numbers(version), numbers(self.version)
        return have >= want if self.match == "least" else have == want


@dataclasses.dataclass
class Card:
    """One card with all its functions; `seen` is what flint said last."""

    bdf: str
    devices: list[str]
    seen: Query
    problem: str = ""


@dataclasses.dataclass
class Tools:
    """The vendor's programs, each with the time that it may take."""

    host: Host
    query_s: float = 60.0
    verify_s: float = 180.0
    burn_s: float = 900.0
    reset_s: float = 300.0
    flint: str = ""
    reset_tool: str = ""

    def __post_init__(self) -> None:
        """Take MFT's programs, else those of the distribution."""
        for flint, reset in _TOOLS:
            if not self.flint and self.host.has(flint):
                self.flint, self.reset_tool = flint, reset
        if not self.flint:
            raise HostError("flint: is not installed on this node; install mft or mstflint and run again")

    def query(self, bdf: str) -> Query:
        """What a card has burned and runs. Raises HostError."""
        argv = [self.flint, "-d", bdf, "q"]
        return parse_query(self.host.must(argv, self.query_s), " ".join(argv))

    def query_image(self, path: str) -> Query:
        """What an image is for. Raises HostError."""
        argv = [self.flint, "-i", path, "q"]
        return parse_query(self.host.must(argv, self.query_s), " ".join(argv))

    def verify_image(self, path: str) -> None:
        """Let the tool verify an image. Raises HostError."""
        argv = [self.flint, "-i", path, "v"]
        said = self.host.must(argv, self.verify_s)
        if "verification succeeded" not in said:
            raise HostError(f"{' '.join(argv)}: does not say that the image is bootable; fetch it again")

    def burn(self, bdf: str, path: str) -> None:
        """Burn an image. Raises HostError."""
        argv = [self.flint, "-d", bdf, "-i", path, "--yes", "burn"]
        done = self.host.run(argv, self.burn_s)
        if done.status != 0 or "-E-" in done.out + done.err:
            raise HostError(f"{' '.join(argv)}: {_error_of(done.out + done.err) or done.said}")

    def reset(self, bdf: str) -> None:
        """Load the burned firmware without a reboot. Raises HostError."""
        self.host.must([self.reset_tool, "-d", bdf, "--yes", "reset"], self.reset_s)


def parse_query(text: str, command: str) -> Query:
    """Output of `flint q` of a card or image. Raises HostError with the command when it is something else."""
    found = dict(reversed(_LINE.findall(text)))
    psid, version = found.get("PSID"), found.get("FW Version")
    if psid is None or version is None:
        lacks = "no PSID" if psid is None else "no FW Version"
        raise HostError(f"{command}: gives {lacks}; {_error_of(text) or 'run it by hand'}")
    for each in (version, found.get("FW Version(Running)")):
        if each is not None and _VERSION.fullmatch(each) is None:
            raise HostError(f"{command}: gives the version {each[:40]!r}, which is none")
    identity = next(
        (found[key] for key in ("Base GUID", "Base MAC") if found.get(key) not in (None, "N/A")), None
    )
    return Query(psid, version, found.get("FW Version(Running)"), identity)


def _error_of(text: str) -> str:
    """The tool's own error line, which it marks -E-."""
    lines = [" ".join(line.split()) for line in text.splitlines() if line.lstrip().startswith("-E-")]
    return lines[0][:200] if lines else ""


def numbers(version: str) -> tuple[int, ...]:
    """A version as numbers that compare; no numbers for what is none."""
    match = _VERSION.match(version)
    return tuple(int(part) for part in match.group().split(".")) if match else ()


def find_cards(host: Host, tools: Tools, ports: Sequence[dict[str, Any]]) -> list[Card]:
    """The cards of the data ports, each once however many functions and ports it has. Raises HostError."""
    by_slot: dict[str, tuple[str, list[str]]] = {}
    for port in ports:
        bdf = bdf_of(host, port)
        first, devices = by_slot.setdefault(bdf.rpartition(".")[0], (bdf, []))
        if port["device"] not in devices:
            devices.append(port["device"])
        by_slot[bdf.rpartition(".")[0]] = (min(first, bdf), devices)
    cards: dict[str, Card] = {}
    for bdf, devices in by_slot.values():
        seen = tools.query(bdf)
        known = cards.get(seen.identity or bdf)
        if known is not None:  # one card on two PCIe slots (socket direct)
            known.devices += devices
        else:
            cards[seen.identity or bdf] = Card(bdf, devices, seen)
    return list(cards.values())


def bdf_of(host: Host, port: dict[str, Any]) -> str:
    """The PCI address of a data port's function: the kernel's word, else the profile's. Raises HostError."""
    device = port["device"]
    base = f"/sys/class/infiniband/{device}/device"
    told = re.search(r"^PCI_SLOT_NAME=(\S+)$", host.read(f"{base}/uevent") or "", re.MULTILINE)
    for name in (told.group(1) if told else "", host.path(base).resolve().name, port.get("pci_bus_id") or ""):
        if _BDF.fullmatch(name):
            return name.lower()
    raise HostError(
        f"{device}: is not under /sys/class/infiniband and the profile gives no pci_bus_id for it;"
        " look whether the card is there and its driver is loaded"
    )


def running_of(host: Host, card: Card) -> str:
    """What a card runs: flint tells it only where it differs from what is burned, the driver knows it too."""
    if card.seen.running is not None:
        return card.seen.running
    for device in card.devices:
        told = (host.read(f"/sys/class/infiniband/{device}/fw_ver") or "").strip()
        if _VERSION.fullmatch(told):
            return told
    return card.seen.version


def firmware_settings(
    host: Host, tools: Tools, cards: Sequence[Card], images: Sequence[Image], *, allow_downgrade: bool = False
) -> list[Setting]:
    """One setting for each card that the profile has an image for: staged is what is burned."""
    by_board = {image.board_id: image for image in images}
    found = []
    for card in cards:
        image = by_board.get(card.seen.psid)
        if image is not None:
            found.append(_setting(host, tools, card, image, allow_downgrade))
    return found


def _setting(host: Host, tools: Tools, card: Card, image: Image, allow_downgrade: bool) -> Setting:
    newer = numbers(card.seen.version) > numbers(image.version)
    advice = "power-cycle the node: its firmware did not change with the reboot"
    if newer and not allow_downgrade:
        advice = (
            f"{card.seen.version} is burned, which is newer; nothing is downgraded unless"
            " `firmware_allow_downgrade=true` is given: correct the profile, or ask for it"
        )

    def write() -> None:
        if image.path is None:
            raise HostError(f"the image for {image.board_id} has not been copied to this node")
        tools.burn(card.bdf, image.path)
        card.seen = tools.query(card.bdf)

    return Setting(
        f"{card.bdf} firmware",
        f"{FIELD}.{image.board_id}",
        image.version,
        lambda: running_of(host, card),
        None if newer and not allow_downgrade else write,
        staged=lambda: card.seen.version,
        advice=advice,
        same=lambda seen, _want: image.takes(seen),
    )


def image_problem(tools: Tools, image: Image) -> str | None:
    """Why an image that lies on this node must not be burned; None when hash, PSID and version are right."""
    path = image.path
    if path is None:
        return f"{FIELD}.{image.board_id}: the image has not been copied to this node"
    try:
        found = _sha256(path)
        if found != image.sha256:
            want = f"{FIELD}.{image.board_id} asks for {image.sha256}"
            return f"{path}: SHA-256 is {found}, {want}; fetch it again"
        query = tools.query_image(path)
        if query.psid != image.board_id:
            return f"{path}: is for PSID {query.psid}, not {image.board_id}; name the right image in {FIELD}"
        if numbers(query.version) != numbers(image.version):
            return f"{path}: is version {query.version}, {FIELD}.{image.board_id} says {image.version}"
        tools.verify_image(path)
    except HostError as cause:
        return str(cause)
    return None


def _sha256(path: str) -> str:
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            for block in iter(lambda: file.read(1 << 20), b""):
                digest.update(block)
    except OSError as cause:
        raise HostError(f"{path}: cannot be read: {cause.strerror}") from cause
    return digest.hexdigest()
