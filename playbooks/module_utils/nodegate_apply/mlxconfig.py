"""NV configuration of a card: default, current and next boot, as mlxconfig (or mstconfig) prints them.

`mlxconfig -d ADDRESS -e query` lists every parameter that this card has with this firmware; a value is like
`ETH(2)`, `True(1)`, `8` or `0x1f`. What is set is current after a reboot or a reset of the firmware.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from .host import Host, HostError
from .reading import Reading
from .setting import Setting

Value = bool | int | str

_ROW = re.compile(
    r"^\s*(?:\*\s*|RO\s+)*(?P<name>[A-Z][A-Z0-9_]*(?:\[\d+(?:\.\.\d+)?\])?)"
    r"\s+(?P<default>\S+)\s+(?P<current>\S+)\s+(?P<next>\S+)\s*$"
)
_NAMED = re.compile(r"(?P<name>.*)\((?P<number>0x[0-9a-fA-F]+|\d+)\)")
#: A parameter of a port that not every card has.
_OTHER_PORT = re.compile(r"_P(?:[2-9]|\d\d)$")
_QUERY_S, _SET_S = 60.0, 120.0
NOT_LISTED = "(not listed: this card has no such port)"
_WAYS = {True: "True", False: "False"}


class Stage(NamedTuple):
    """One parameter's three values."""

    default: str
    current: str
    next: str


def parse_query(text: str) -> dict[str, Stage]:
    """Parameters of `mlxconfig -e query` by name. Raises HostError when the three columns are not there."""
    head, _, rows = text.partition("Configurations:")
    columns = rows.partition("\n")[0]
    if [word for word in ("Default", "Current", "Next") if word not in columns]:
        said = " ".join((columns or head).split())[-120:]
        raise HostError(
            f"mlxconfig: shows no default, current and next values: {said!r}; install a newer MFT"
        )
    found: dict[str, Stage] = {}
    for line in rows.splitlines()[1:]:
        match = _ROW.match(line)
        if match is not None:
            found[match["name"]] = Stage(match["default"], match["current"], match["next"])
    if not found:
        raise HostError("mlxconfig: lists no parameter; look at the card with mlxconfig -e query")
    return found


def same_value(seen: str, want: str) -> bool:
    """Whether `ETH(2)` is `ETH` or `2`, `True(1)` is `True` or `1`, `0x10` is `16`."""
    match = _NAMED.fullmatch(seen.strip())
    name, number = (match["name"], match["number"]) if match else (seen.strip(), seen.strip())
    asked = want.strip()
    if asked.casefold() in (name.casefold(), name.lstrip("_").casefold()):
        return True
    value = {"true": 1, "false": 0}.get(asked.casefold(), _number(asked))
    return value is not None and value == _number(number)


def _number(text: str) -> int | None:
    try:
        return int(text, 16 if text.lower().startswith("0x") else 10)
    except ValueError:
        return None


def as_text(value: Value) -> str:
    """A value of the profile as it is compared and set."""
    return _WAYS[value] if isinstance(value, bool) else str(value)


class Card:
    """One card: its parameters, and how they are set, all in one call."""

    def __init__(self, host: Host, device: str, address: Callable[[], str]) -> None:
        """`device` is the RDMA device that names it; `address` gives its PCI address. Raises HostError."""
        self._host = host
        self._address = address
        self.device = device
        self.wanted: dict[str, str] = {}
        self.reading: Reading[dict[str, Stage]] = Reading(self._query)

    def settings(self, values: Mapping[str, Value], fields: Mapping[str, str]) -> list[Setting]:
        """One setting for each parameter; `fields` has the key of the profile that each is from."""
        self.wanted = {name: as_text(value) for name, value in values.items()}
        return [self._setting(name, want, fields[name]) for name, want in self.wanted.items()]

    def _setting(self, name: str, want: str, field: str) -> Setting:
        return Setting(
            f"{self.device} {name}",
            field,
            want,
            lambda: self._stage(name).current,
            self._set,
            staged=lambda: self._stage(name).next,
            same=lambda seen, wanted: seen == NOT_LISTED or same_value(seen, wanted),
            advice="see mlxconfig -e query; some values need a power cycle of the node",
        )

    def link_waits(self) -> bool:
        """Whether the port is of another link type until the next boot; False when that cannot be told."""
        try:
            table = self.reading.get()
        except HostError:
            return False  # the settings of this card say so
        return any(
            name.startswith("LINK_TYPE_P") and name in table and not same_value(table[name].current, want)
            for name, want in self.wanted.items()
        )

    def _stage(self, name: str) -> Stage:
        table = self.reading.get()
        if name in table:
            return table[name]
        if _OTHER_PORT.search(name):
            return Stage(NOT_LISTED, NOT_LISTED, NOT_LISTED)
        raise HostError(
            f"{self.device} at {self._address()} does not list {name}; take it out of fabric.nic.config,"
            " or give it in fabric.nic.config_by_board to the cards that have it"
        )

    def _query(self) -> dict[str, Stage]:
        return parse_query(self._host.must([self._tool(), "-d", self._address(), "-e", "query"], _QUERY_S))

    def _set(self) -> None:
        """Set all that differs in one call; nothing when an earlier call of this card has done it."""
        due = {name: want for name, want in self.wanted.items() if not self._is_staged(name, want)}
        if not due:
            return
        pairs = [f"{name}={ {'True': '1', 'False': '0'}.get(want, want) }" for name, want in due.items()]
        try:
            self._host.must([self._tool(), "-d", self._address(), "-y", "set", *pairs], _SET_S)
        finally:
            self.reading.forget()

    def _is_staged(self, name: str, want: str) -> bool:
        seen = self._stage(name).next
        return seen == NOT_LISTED or same_value(seen, want)

    def _tool(self) -> str:
        """mlxconfig of MFT, else mstconfig of the distribution."""
        for name in ("mlxconfig", "mstconfig"):
            if self._host.has(name):
                return name
        raise HostError("mlxconfig: is not installed on this node; install MFT (or mstflint) and run again")
