"""NCCL's own dialect of XML, read as strictly as NCCL reads it, or more.

NCCL's reader (NVIDIA/nccl, src/graph/xml.cc) knows neither a prolog nor entities; a TAB anywhere between
elements ends it, a second space burns one of an element's attributes, a line break within a tag fails. What
NCCL would silently drop (unknown elements, a 17th attribute) is an error here too: the file would not mean
what its author meant. Every error names file, line and column.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NoReturn

from agent.errors import ConfigError

#: NCCL's buffer for a name or value has 255 bytes; its own end takes two of them (2.28.9 takes 253, not 254).
LONGEST_TEXT = 253
MOST_ATTRIBUTES = 16
#: What 2.28.9 takes; later versions take 640, and a file must be good for both.
MOST_CHILDREN = 128
#: NCCL's table has 256 places, and its reader wants one free after the last element.
MOST_NODES = 255
#: The deepest path through switches is far from this; Python's own stack ends at about 1000.
DEEPEST = 64
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: Attribute by attribute what NCCL (to 2.32) reads or writes itself.
ATTRIBUTES: dict[str, frozenset[str]] = {
    "system": frozenset({"version", "name"}),
    "cpu": frozenset(
        {"numaid", "affinity", "affinity_offset", "arch", "vendor", "familyid", "modelid", "host_hash"}
    ),
    "pci": frozenset(
        {"busid", "class", "link_speed", "link_width", "vendor", "device", "subsystem_vendor"}
        | {"subsystem_device"}
    ),
    "gpu": frozenset({"dev", "sm", "rank", "gdr", "mlopart"}),
    "nvlink": frozenset({"target", "count", "tclass"}),
    "c2c": frozenset({"bw", "count"}),
    "pcilink": frozenset({"target"}),
    "nic": frozenset(),
    "net": frozenset(
        {"name", "dev", "speed", "port", "latency", "guid", "maxconn", "gdr", "coll", "keep", "rail", "plane"}
    ),
}
CHILDREN: dict[str, frozenset[str]] = {
    "": frozenset({"system"}),
    "system": frozenset({"cpu"}),
    "cpu": frozenset({"pci", "nic"}),
    "pci": frozenset({"pci", "gpu", "nic", "pcilink"}),
    "gpu": frozenset({"nvlink", "c2c"}),
    "nic": frozenset({"net"}),
}


@dataclass(slots=True)
class Element:
    """One element, where it begins, and what is in it."""

    name: str
    line: int
    column: int
    attributes: dict[str, str] = field(default_factory=dict)
    children: list[Element] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Document:
    """The root element and the texts of all comments."""

    root: Element
    comments: tuple[str, ...]


def read_document(text: str, file: str) -> Document:
    """The elements of a file. Raises ConfigError with `file:line:column`."""
    reader = _Reader(text, file)
    root = reader.document()
    _within_limits(root, reader)
    return Document(root, tuple(reader.comments))


class _Reader:
    """Goes through the text once."""

    def __init__(self, text: str, file: str) -> None:
        self.text, self.file, self.at = text, file, 0
        self.comments: list[str] = []
        self.starts = [0, *(match.end() for match in re.finditer("\n", text))]

    def refuse(self, problem: str, remedy: str, at: int | None = None) -> NoReturn:
        """Raise the error for a place in the text."""
        line, column = self.place(self.at if at is None else at)
        raise ConfigError(problem, where=f"{self.file}:{line}:{column}", remedy=remedy)

    def place(self, at: int) -> tuple[int, int]:
        """Line and column, both from 1."""
        line = self.text.count("\n", 0, at) + 1
        return line, at - self.starts[line - 1] + 1

    def document(self) -> Element:
        """The root, with nothing but blanks and comments around it."""
        self._blanks()
        if self.at == len(self.text):
            self.refuse("the file has no element", "write it anew with `nodegate topo write`")
        root = self._element("", 0)
        self._blanks()
        if self.at < len(self.text):
            self.refuse("something follows </system>", "remove it: NCCL reads on to the end of the file")
        return root

    def _blanks(self) -> None:
        """Skip spaces, line breaks and comments between elements."""
        while self.at < len(self.text):
            if self.text[self.at] in " \n\r":
                self.at += 1
            elif self.text.startswith("<!--", self.at):
                self._comment()
            else:
                return

    def _comment(self) -> None:
        end = self.text.find("-->", self.at + 4)
        if end < 0:
            self.refuse("the comment has no end", "close it with -->")
        body = self.text[self.at + 4 : end]
        # NCCL reads the first word as a name, in which it takes `=` for an attribute.
        word = re.split(r"[ \n\r/>]", body, maxsplit=1)[0]
        if "=" in word or len(word) > LONGEST_TEXT - 3:
            self.refuse("NCCL stumbles over the first word of this comment", "put a space after <!--")
        self.comments.append(body.strip())
        self.at = end + 3

    def _element(self, parent: str, depth: int) -> Element:
        """The element that begins here, to its end."""
        self._open(parent)
        begin = self.at
        self.at += 1
        name = self._name("element")
        if name not in CHILDREN.get(parent, frozenset()):
            inside = f"inside <{parent}>" if parent else "as the first element"
            self.refuse(f"NCCL knows no <{name}> {inside}", "remove it or put it where it belongs", begin)
        if depth == DEEPEST:
            self.refuse(f"elements lie more than {DEEPEST} deep", "no machine has so many switches", begin)
        element = Element(name, *self.place(begin))
        if self._attributes(element):
            self._content(element, depth)
        return element

    def _open(self, parent: str) -> None:
        """Refuse all that is not the start of an element."""
        if self.text.startswith("<?", self.at):
            self.refuse("NCCL cannot read a prolog (<?...?>)", "begin the file with <system")
        here = self.text[self.at : self.at + 1]
        if here == "\t":
            self.refuse("a TAB stands here, on which NCCL's reader stops", "indent with spaces")
        if here != "<":
            what = f"{here!r} stands here" if here else f"the file ends inside <{parent}>"
            self.refuse(f"{what}, where NCCL expects '<'", "remove text, close what is open")

    def _content(self, element: Element, depth: int) -> None:
        """Children to the closing tag."""
        while True:
            self._blanks()
            if self.text.startswith("</", self.at):
                begin = self.at
                self.at += 2
                name = self._name("closing tag")
                if name != element.name:
                    opened = f"<{element.name}> of line {element.line}"
                    self.refuse(f"</{name}> closes {opened}", f"write </{element.name}>", begin)
                if self.text[self.at : self.at + 1] != ">":
                    self.refuse("something stands between the name and '>'", f"write </{name}>")
                self.at += 1
                return
            element.children.append(self._element(element.name, depth + 1))

    def _attributes(self, element: Element) -> bool:
        """Attributes and the end of the tag; whether the element has content."""
        while True:
            if self.text.startswith("/>", self.at):
                self.at += 2
                return False
            here = self.text[self.at : self.at + 1]
            if here == ">":
                self.at += 1
                return True
            if here != " ":
                what = f"{here!r} stands here" if here else "the file ends here"
                self.refuse(f"{what}, inside <{element.name}>", "one space, or the end of the tag")
            self.at += 1
            if self.text[self.at : self.at + 1] in (" ", "/", ">"):
                self.refuse("a space too many: it takes the place of an attribute", "use single spaces")
            self._attribute(element)

    def _attribute(self, element: Element) -> None:
        begin = self.at
        key = self._name("attribute")
        if key not in ATTRIBUTES[element.name]:
            self.refuse(f"NCCL reads no attribute {key} of <{element.name}>", "remove it", begin)
        if key in element.attributes:
            self.refuse(f"{key} stands twice in <{element.name}>", "keep one of them", begin)
        if len(element.attributes) == MOST_ATTRIBUTES:
            self.refuse(f"more than {MOST_ATTRIBUTES} attributes: NCCL drops the rest", "remove some", begin)
        if not self.text.startswith('="', self.at):
            self.refuse(f"{key} is not followed by a value", f'write {key}="..." with double quotes')
        self.at += 2
        end = self.text.find('"', self.at)
        value = self.text[self.at : end] if end >= 0 else self.text[self.at :]
        if bad := next((char for char in value if not " " <= char <= "~"), None):
            self.refuse(f"the value of {key} holds {bad!r}", "printable ASCII alone, on one line", begin)
        if end < 0:
            self.refuse(f"the value of {key} has no closing quote", "close it", begin)
        self._short(value, begin)
        element.attributes[key] = value
        self.at = end + 1

    def _name(self, what: str) -> str:
        match = _NAME.match(self.text, self.at)
        if match is None:
            here = self.text[self.at : self.at + 1]
            self.refuse(f"{here!r} stands where the name of the {what} should be", "letters and digits")
        self._short(match.group(), self.at)
        self.at = match.end()
        return match.group()

    def _short(self, text: str, at: int) -> None:
        if len(text) > LONGEST_TEXT:
            problem = f"{len(text)} characters: NCCL's names and values have {LONGEST_TEXT} at most"
            self.refuse(problem, "shorten it", at)


def _within_limits(root: Element, reader: _Reader) -> None:
    """NCCL's tables: children of one element, then elements of a file."""
    found = [root]
    for element in found:
        if len(element.children) > MOST_CHILDREN:
            _too_many(reader, element.children[MOST_CHILDREN], f"<{element.name}> has", MOST_CHILDREN)
        found += element.children
    if len(found) > MOST_NODES:
        last = sorted(found, key=lambda each: (each.line, each.column))[MOST_NODES]
        _too_many(reader, last, "the file has", MOST_NODES)


def _too_many(reader: _Reader, element: Element, what: str, most: int) -> NoReturn:
    where = f"{reader.file}:{element.line}:{element.column}"
    problem = f"{what} more than {most} elements, which NCCL refuses"
    raise ConfigError(
        problem, where=where, remedy="list only GPUs, the NICs that NCCL uses, and what is above"
    )
