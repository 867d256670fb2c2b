"""Walking a Redfish service: links by @odata.id, member lists with their pages, readings and states.

Schemas: DMTF DSP8010. A BMC's documents are not trusted: links may lead in circles, lists may have no end,
numbers may be texts, and a link may lead nowhere.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent.bmc_profile import RedfishEndpoint
from agent.errors import DeviceAbsent, ParseError, SourceError, SourceUnavailable
from agent.sources.bmc_reading import Bmc

Document = Mapping[str, Any]
ROOT = "/redfish/v1"
#: Documents that one run of a check may read of one service: no walk is endless.
MAX_DOCUMENTS = 400
MAX_MEMBERS = 20_000
#: Members of one list that may be unreadable before the list as a whole is.
MAX_BROKEN = 5
_LONGEST_NAME = 48
#: States (Resource.State) of what is not there or not meant to work.
NOT_IN_USE = frozenset({"Absent", "Disabled", "UnavailableOffline", "StandbySpare"})


class Service:
    """One Redfish service as a check walks it in one run; every document is read at most once."""

    def __init__(self, bmc: Bmc, name: str, endpoint: RedfishEndpoint, subject: str) -> None:
        """Nothing is read yet; `subject` is that of the findings about this service."""
        self.endpoint = endpoint
        self.subject = subject
        self._bmc = bmc
        self._name = name
        self._known: dict[str, Document] = {}
        self._expands: bool | None = None

    def document(self, path: str) -> Document:
        """The document at a path. Raises SourceError."""
        if path not in self._known:
            if len(self._known) >= MAX_DOCUMENTS:
                raise SourceUnavailable(f"more than {MAX_DOCUMENTS} documents to read")
            document = self._bmc.get(self._name, self.endpoint, path)
            if not isinstance(document, Mapping):
                raise ParseError(f"{path} is no object")
            self._known[path] = document
        return self._known[path]

    def follow(self, document: Document, *keys: str) -> Document | None:
        """The document that a link leads to; None if there is no such link. Raises SourceError."""
        path = link(document, *keys)
        return None if path is None else self.document(path)

    def offered(self, document: Document, *keys: str) -> Document | None:
        """As follow(), but a link that leads nowhere offers nothing: BMCs list what they do not have."""
        try:
            return self.follow(document, *keys)
        except DeviceAbsent:
            return None

    def collection(self, path: str, *, expand: bool = False) -> Members:
        """The members of a list at a path; without members if there is no such list."""
        try:
            return self._members(path, expand=expand)
        except DeviceAbsent:
            return Members((), ())

    def members(
        self, document: Document, *keys: str, expand: bool = False, leave_out: re.Pattern[str] | None = None
    ) -> Members:
        """The members of a linked list; without members if there is no such link. Raises SourceError.

        Members whose id (the end of their link) matches `leave_out` are not read.
        """
        path = link(document, *keys)
        return Members((), ()) if path is None else self._members(path, expand=expand, leave_out=leave_out)

    def member_links(self, path: str) -> list[str]:
        """Only the links of a list, over all its pages. Raises SourceError."""
        found = [link(member) for member in self._pages(path)]
        return [each for each in found if each is not None]

    def _members(self, path: str, *, expand: bool, leave_out: re.Pattern[str] | None = None) -> Members:
        documents: list[Document] = []
        broken: list[SourceError] = []
        for member in self._expanded(path) if expand else self._pages(path):
            if leave_out is not None and leave_out.search(_id_of(member)):
                continue
            if len(member) > 1:  # the list has its members in full
                documents.append(member)
                continue
            try:
                target = link(member)
                if target is None:
                    raise ParseError(f"{path} has a member without a link")
                documents.append(self.document(target))
            except SourceError as cause:
                broken.append(cause)
                if len(broken) > MAX_BROKEN:
                    raise SourceUnavailable(f"many members of {path} are unreadable: {cause}") from cause
        return Members(tuple(documents), tuple(broken))

    def _expanded(self, path: str) -> list[Document]:
        """The members in one answer where the service can do that; else as they are listed."""
        if self._can_expand():
            try:
                return self._pages(f"{path}?$expand=.($levels=1)")
            except SourceError:
                self._expands = False  # it says that it can, and cannot: the plain list will tell
        return self._pages(path)

    def _can_expand(self) -> bool:
        if self._expands is None:
            try:
                features = part(self.document(f"{ROOT}/"), "ProtocolFeaturesSupported", "ExpandQuery")
                self._expands = features.get("NoLinks") is True
            except SourceError:
                self._expands = False  # asking one by one needs no leave
        return self._expands

    def _pages(self, path: str) -> list[Document]:
        found: list[Document] = []
        seen: set[str] = set()
        page: str | None = path
        while page is not None:
            if page in seen:
                raise ParseError(f"the pages of {path} lead in a circle")
            seen.add(page)
            document = self.document(page)
            if "Members" not in document:
                raise ParseError(f"{path} is no list")
            found += objects(document, "Members")
            if len(found) > MAX_MEMBERS:
                raise ParseError(f"{path} has more than {MAX_MEMBERS} members")
            page = document.get("Members@odata.nextLink")
            if page is not None and not isinstance(page, str):
                raise ParseError(f"{path} has a next page that is no link")
        return found


@dataclass(frozen=True, slots=True)
class Members:
    """What a list has: the documents, and why others could not be read."""

    documents: tuple[Document, ...]
    broken: tuple[SourceError, ...]

    def __iter__(self) -> Any:
        """Over the documents."""
        return iter(self.documents)


def part(document: Document, *keys: str) -> Document:
    """A map inside a document; an empty one if it is not there. Raises ParseError if it is no map."""
    for key in keys:
        inner = document.get(key)
        if inner is None:
            return {}
        if not isinstance(inner, Mapping):
            raise ParseError(f"{key} is no object")
        document = inner
    return document


def objects(document: Document, key: str) -> list[Document]:
    """A list of maps in a document; none if it is not there. Raises ParseError."""
    found = document.get(key)
    if found is None:
        return []
    if not isinstance(found, Sequence) or isinstance(found, str | bytes):
        raise ParseError(f"{key} is no list")
    for each in found:
        if not isinstance(each, Mapping):
            raise ParseError(f"{key} has a member that is no object")
    return list(found)


def link(document: Document, *keys: str) -> str | None:
    """The path that a link leads to (of the document itself without keys); None if there is none."""
    target = part(document, *keys).get("@odata.id")
    if target is None:
        return None
    if not isinstance(target, str):
        raise ParseError("a link is no text")
    return target.partition("#")[0]


def _id_of(member: Document) -> str:
    target = member.get("@odata.id")
    return target.rstrip("/").rpartition("/")[2] if isinstance(target, str) else ""


def number(document: Document, *keys: str) -> float | None:
    """A number, plain or as a sensor's excerpt ({"Reading": 21.5}); None if it is not there."""
    *parents, last = keys
    value = part(document, *parents).get(last)
    if isinstance(value, Mapping):
        value = value.get("Reading")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ParseError(f"{last} reads {str(value)[:40]!r}, not a number")
    try:
        real = float(value)
    except OverflowError:
        real = math.inf
    if not math.isfinite(real):
        raise ParseError(f"{last} reads no finite number")
    return real


def text(document: Document, *keys: str) -> str | None:
    """A text; None if it is not there. Raises ParseError for anything else."""
    *parents, last = keys
    value = part(document, *parents).get(last)
    if value is not None and not isinstance(value, str):
        raise ParseError(f"{last} is no text")
    return value


def in_use(document: Document) -> bool:
    """Whether a part is there and meant to work (Status.State)."""
    return text(document, "Status", "State") not in NOT_IN_USE


def health(document: Document) -> str | None:
    """OK, Warning or Critical, of a part with all below it; None if it says nothing."""
    return text(document, "Status", "HealthRollup") or text(document, "Status", "Health")


def name_of(document: Document) -> str:
    """What to call a part in a summary: its id, else its name."""
    for key in ("Id", "MemberId", "Name"):
        value = document.get(key)
        if isinstance(value, str) and value.strip():
            return said(value)
    return "one without a name"


def said(words: str, longest: int = _LONGEST_NAME) -> str:
    """Words of a BMC as they may stand in a summary: printable, one line, short."""
    clean = " ".join("".join(each if each.isprintable() else " " for each in words).split())
    return clean if len(clean) <= longest else f"{clean[: longest - 3]}..."
