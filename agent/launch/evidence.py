"""LiveLaunches: looks at the launches of this node's engines, in background threads: no check waits long.

A look is repeated while it is asked for; headers are read again only when a file has changed. Until the first
is done, and when one has hung for long, there is no evidence and the checks say UNKNOWN.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Protocol

from agent.errors import LaunchError, SourceError, SourceUnavailable
from agent.launch.checkpoint.checksums import STORE_NAME, Checksums
from agent.launch.checkpoint.reports import (
    checkpoint_report,
    contradiction,
    dummy_report,
    ledger_of,
    ledger_report,
)
from agent.launch.checkpoint.scan import Fingerprint, Scan, fingerprint, scan
from agent.launch.checkpoint.spread import Spread, spread_of
from agent.launch.checkpoint.where import weights_folder
from agent.node_profile import Engine, Mode, NodeProfile
from agent.sources import Sources
from agent.sources.launch_reading import LaunchReport

#: A look is made anew when it is older than this, and is no evidence any more when it is older than that.
REFRESH_S = 20.0
STALE_S = 300.0
#: The longest that one question waits for a first look.
WAIT_S = 3.0
#: One pass has no second chance; it waits nearly as long as its checks may take.
ONE_PASS_WAIT_S = 9.0


class Look:
    """One kind of look at one engine: its newest report, made by a thread."""

    def __init__(self, what: str, mono_s: Callable[[], float], wait_s: float = WAIT_S) -> None:
        """Nothing is known yet."""
        self._what = what
        self._mono_s = mono_s
        self._wait_s = wait_s
        self._changed = threading.Condition()
        self._key: object = None
        self._busy: object = None
        self._found: LaunchReport | SourceError | None = None
        self._found_s = 0.0

    def report(self, key: object, read: Callable[[], LaunchReport]) -> LaunchReport:
        """The newest report under this key. Raises SourceError when there is none."""
        with self._changed:
            late_s = self._begin(key, read)
            self._changed.wait_for(lambda: self._found is not None or self._key != key, self._wait_s)
            found = self._found if self._key == key else None
        if found is None:
            since = f", the last answer is {late_s:.0f} s old" if late_s > STALE_S else ""
            raise SourceUnavailable(f"{self._what}: still being looked at{since}")
        if isinstance(found, SourceError):
            raise type(found)(str(found))
        return found

    def start(self, key: object, read: Callable[[], LaunchReport]) -> None:
        """Make a look that is due, and do not wait for it."""
        with self._changed:
            self._begin(key, read)

    def _begin(self, key: object, read: Callable[[], LaunchReport]) -> float:
        """Start a thread when a look is due and none for this key is under way; how old the last one is."""
        late_s = self._mono_s() - self._found_s if self._found is not None else 0.0
        if key != self._key or late_s > STALE_S:
            self._key, self._found = key, None
        due = self._found is None or self._mono_s() - self._found_s >= REFRESH_S
        if due and self._busy != key:
            self._busy = key
            threading.Thread(target=self._run, args=(key, read), name="launch-look", daemon=True).start()
        return late_s

    def _run(self, key: object, read: Callable[[], LaunchReport]) -> None:
        """Make the look; what another key asked for meanwhile is not overwritten."""
        found: LaunchReport | SourceError
        try:
            found = read()
        except SourceError as cause:
            found = cause
        except LaunchError as cause:
            found = contradiction(cause)
        # The edge of a thread: a defect that ended it silently would read as a look that never ends.
        except Exception as defect:  # noqa: BLE001
            found = SourceUnavailable(
                f"{self._what}: a defect of nodegate: {type(defect).__name__}: {defect}"
            )
        with self._changed:
            if self._busy == key:
                self._busy = None
            if self._key == key:
                self._found, self._found_s = found, self._mono_s()
            self._changed.notify_all()


@dataclass
class _Known:
    """The last scan of one engine's folder, and what it was made from."""

    made_from: tuple[Fingerprint, str] | None = None
    found: Scan | None = None


class LiveLaunches:
    """LaunchEvidence of this machine. `take_profile` when another one is in force; `close` at the end."""

    def __init__(
        self,
        profile: NodeProfile,
        sources: Sources,
        state_dir: Path | None,
        *,
        work: bool,
        wait_s: float = WAIT_S,
    ) -> None:
        """With `work` sums are worked out in the background, else only what is known of them is told."""
        self._profile = profile
        self._sources = sources
        self._wait_s = wait_s
        self._checksums = Checksums(state_dir / STORE_NAME if state_dir else None, work=work)
        self._lock = threading.Lock()
        self._looks: dict[tuple[str, str], Look] = {}
        self._known: dict[str, _Known] = {}
        self._scanning: dict[str, threading.Lock] = {}

    def take_profile(self, profile: NodeProfile) -> None:
        """Another profile is in force."""
        self._profile = profile

    def close(self) -> None:
        """Stop working out sums."""
        self._checksums.close()

    def flags(self, engine: str) -> LaunchReport:
        """Flags and environment against the installed engine."""
        return self._ask("flags", engine, self._flags)

    def memory(self, engine: str) -> LaunchReport:
        """Weights, offload and key-value room against the devices and the host."""
        return self._ask("memory", engine, self._memory)

    def checkpoint(self, engine: str) -> LaunchReport:
        """Index, shard count, sizes, checksums of the weights on disk."""
        return self._ask("checkpoint", engine, self._checkpoint)

    def _ask(self, kind: str, name: str, read: Callable[[NodeProfile, str], LaunchReport]) -> LaunchReport:
        """The newest report of one kind for one engine."""
        profile = self._profile
        engine = profile.engines.get(name)
        if engine is None:
            raise SourceUnavailable(f"the profile has no engine {name}")
        # All engines are looked at together: a check asks for one after another.
        for other, its in profile.engines.items():
            if other != name and weights_folder(its.launch) is not None:
                self._look(kind, other).start(_key(profile, its), partial(read, profile, other))
        return self._look(kind, name).report(_key(profile, engine), partial(read, profile, name))

    def _look(self, kind: str, name: str) -> Look:
        """The look of one kind at one engine."""
        with self._lock:
            made = Look(f"{kind} of {name}", self._sources.clock.mono_s, self._wait_s)
            return self._looks.setdefault((kind, name), made)

    def _flags(self, profile: NodeProfile, name: str) -> LaunchReport:
        from agent.launch.launch_profile import build_plan
        from agent.launch.lint import lint

        plan = build_plan(profile, name, self._sources, os.environ)
        return lint(plan, profile.engines[name], tree=self._sources.tree, fabric=profile.fabric)

    def _memory(self, profile: NodeProfile, name: str) -> LaunchReport:
        spread = spread_of(name, profile.engines[name])
        if spread.dummy:
            return dummy_report()
        found = self._scan(name, profile.engines[name], spread)
        return ledger_report(ledger_of(profile, name, self._sources, found, spread))

    def _checkpoint(self, profile: NodeProfile, name: str) -> LaunchReport:
        engine = profile.engines[name]
        spread = spread_of(name, engine)
        if spread.dummy:
            return dummy_report()
        found = self._scan(name, engine, spread)
        return checkpoint_report(found, engine.launch.checkpoint.checksums, self._checksums)

    def _scan(self, name: str, engine: Engine, spread: Spread) -> Scan:
        """The folder as it is now; headers are read again only when a file or the profile has changed."""
        folder = weights_folder(engine.launch)
        if folder is None:
            raise SourceUnavailable("the engine names no folder of weights on this host")
        wanted = engine.launch.checkpoint
        with self._lock:
            known = self._known.setdefault(name, _Known())
            mine = self._scanning.setdefault(name, threading.Lock())
        with mine:  # two kinds of look need the same scan: one of them makes it
            made_from = (fingerprint(Path(folder), wanted.stage_index), f"{folder} {spread} {wanted}")
            if known.found is None or known.made_from != made_from:
                known.found = scan(Path(folder), spread, wanted)
                known.made_from = made_from
            return known.found


def _key(profile: NodeProfile, engine: Engine) -> str:
    """All of the profile that decides a launch."""
    parts = (engine, profile.gpus, profile.nvlink, profile.fabric)
    return " ".join(part.model_dump_json() for part in parts)


class Opened(Protocol):
    """Sources that were opened."""

    sources: Sources


def attach_launches(
    opened: Opened, profile: NodeProfile, state_dir: Path | None, *, work: bool
) -> LiveLaunches | None:
    """Give live sources their launch evidence; None where nodegate launches nothing."""
    if profile.mode is not Mode.MANAGE or not profile.engines:
        return None
    wait_s = WAIT_S if work else ONE_PASS_WAIT_S
    launches = LiveLaunches(profile, opened.sources, state_dir, work=work, wait_s=wait_s)
    opened.sources = replace(opened.sources, launches=launches)
    return launches
