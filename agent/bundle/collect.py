"""Ask every source at once, each in a thread that is given up at its deadline: none is waited for longer."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from agent.bundle.parts import Case, NotHere, Piece, Source
from agent.errors import AgentError

#: Seconds between two looks at what has come; Ctrl-C is obeyed within it.
_LOOK_S = 0.2


@dataclass(slots=True)
class Collected:
    """What a source gave. `problem` says why it is not whole; `not_here` that nothing is missing for that."""

    source: Source
    pieces: list[Piece] = field(default_factory=list)
    problem: str = ""
    not_here: bool = False
    took_s: float = 0.0


class _Reading:
    """One source being read; what it gave is taken at any time, and after that nothing more counts."""

    def __init__(self, source: Source, case: Case) -> None:
        self._source = source
        self._case = case
        self._lock = threading.Lock()
        self._got: Collected | None = Collected(source)
        self._started_s = time.monotonic()
        self.done = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"bundle {source.name}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        problem, not_here = "", False
        try:
            for piece in self._source.read(self._case):
                if not self._keep(piece):
                    return
        except NotHere as cause:
            problem, not_here = str(cause), True
        except AgentError as cause:
            problem = str(cause)
        # A source that breaks is told of in the manifest; the others must still get into the bundle.
        except Exception as defect:  # noqa: BLE001
            problem = f"could not be read: {type(defect).__name__}: {defect}"
        finally:
            with self._lock:
                if self._got is not None:
                    self._got.problem, self._got.not_here = problem, not_here
                    self._got.took_s = time.monotonic() - self._started_s
            self.done.set()

    def _keep(self, piece: Piece) -> bool:
        with self._lock:
            if self._got is None:
                return False
            self._got.pieces.append(piece)
            return True

    def take(self, waited_s: float) -> Collected:
        """What it gave; of one that is still at it what there is until now."""
        with self._lock:
            got, self._got = self._got, None
        assert got is not None
        if not self.done.is_set():
            so_far = f"; {len(got.pieces)} files until then" if got.pieces else ""
            got.problem = f"no answer in {waited_s:.0f} s{so_far}"
            got.took_s = time.monotonic() - self._started_s
        return got


def collect(
    case: Case,
    sources: Sequence[Source],
    most_bytes: int,
    *,
    mono_s: Callable[[], float] = time.monotonic,
    say: Callable[[str], None] = lambda _line: None,
) -> list[Collected]:
    """Ask all sources; returns after the longest deadline at the latest, in the order of `sources`."""
    started_s = mono_s()
    readings = [
        _Reading(source, dataclasses.replace(case, most_bytes=int(most_bytes * source.share)))
        for source in sources
    ]
    found: dict[int, Collected] = {}
    while len(found) < len(readings):
        waited_s = mono_s() - started_s
        for index, reading in enumerate(readings):
            late = waited_s >= sources[index].deadline_s
            if index not in found and (late or reading.done.is_set()):
                found[index] = reading.take(sources[index].deadline_s)
                say(_line(found[index]))
        waiting = next((each for index, each in enumerate(readings) if index not in found), None)
        if waiting is not None:
            waiting.done.wait(_LOOK_S)
    return [found[index] for index in range(len(readings))]


def _line(got: Collected) -> str:
    state = f": {got.problem}" if got.problem else ""
    return f"{got.source.title} ({got.took_s:.1f} s){state}"
