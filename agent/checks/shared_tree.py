"""Files that several subjects of one run share are read once: four ports of a NIC are one device.

For checks that read a device once for each of its ports; counters, of which every port has its own, are read
directly. It lives as long as the run, so no run ever judges by what an earlier one has read.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from agent.errors import SourceError
from agent.sources import Sources, Tree

T = TypeVar("T")


def reading_once(sources: Sources) -> Sources:
    """The sources for one run of a check, with files that are each read once; an error is kept too."""
    return replace(sources, tree=_OnceTree(sources.tree))


class _OnceTree(Tree):
    """A tree that remembers."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._known: dict[tuple[str, str], object] = {}

    def text(self, path: str) -> str:
        return self._once("text", path, self._tree.text)

    def data(self, path: str) -> bytes:
        return self._once("data", path, self._tree.data)

    def integer(self, path: str) -> int:
        return self._once("integer", path, self._tree.integer)

    def names(self, path: str) -> list[str]:
        return self._once("names", path, self._tree.names)

    def exists(self, path: str) -> bool:
        return self._once("exists", path, self._tree.exists)

    def link_target(self, path: str) -> str:
        return self._once("link_target", path, self._tree.link_target)

    def _once(self, what: str, path: str, read: Callable[[str], T]) -> T:
        key = (what, path)
        if key not in self._known:
            try:
                self._known[key] = read(path)
            except SourceError as cause:
                self._known[key] = cause
        found = self._known[key]
        if isinstance(found, SourceError):
            raise copy.copy(found)  # a raised one collects the traceback of whoever raises it
        return found  # type: ignore[return-value]
