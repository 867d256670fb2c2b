"""One question to the NVML child, whom it concerns, and its answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agent.errors import SourceError, SourceTimeout

#: Names of what is asked besides GPUs.
NODE, START = "node", "start"


@dataclass(frozen=True, slots=True)
class Ask:
    """A request about what it `touches`: GPUs by UUID, the node.

    It is not sent while something that it touches is left alone or a process is stuck in it. When it hangs
    or crashes, `rests` are left alone for a while: for a value of one GPU that is this GPU, and for longer
    the group of values, so that one call that never works does not keep the rest of its GPU unknown.
    """

    op: str
    what: str
    args: Mapping[str, object]
    touches: tuple[str, ...]
    rests: tuple[str, ...]


def about_gpu(name: str, op: str, what: str, args: Mapping[str, object], group: str = "") -> Ask:
    """A request about one GPU."""
    return Ask(op, what, args, (name,), (name, f"{name} {group or op}"))


def about_node(op: str, what: str) -> Ask:
    """A request about no GPU."""
    return Ask(op, what, {}, (NODE,), (NODE,))


class Fault(Exception):
    """A call about one GPU failed, while NVML as a whole may be fine; `name` is NVML's error or the like.

    `asked` is False when it was not even tried: what it concerns is left alone now.
    """

    def __init__(self, name: str, error: SourceError, *, asked: bool = True) -> None:
        super().__init__(str(error))
        self.name = name
        self.error = error
        self.asked = asked


@dataclass(frozen=True, slots=True)
class Answer:
    """The child's `ok` value, or the error; a SourceError that is no Fault means NVML as a whole."""

    at_s: float
    value: Any = None
    error: Fault | SourceError | None = field(default=None)


def fault(error: SourceError, *, asked: bool = True) -> Fault:
    """A failure of our own making (too late, crashed, left alone) as a Fault."""
    return Fault("TIMEOUT" if isinstance(error, SourceTimeout) else "UNKNOWN", error, asked=asked)
