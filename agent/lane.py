"""One check on its way through the runner: plan, memory, results, and the bell that ends its rest."""

from __future__ import annotations

import asyncio

from agent.check_plan import CheckPlan
from agent.check_track import CheckTrack
from agent.model import Phase, Result, ResultKey, Verdict


class Lane:
    """One check; belongs to the thread of the event loop."""

    def __init__(self, plan: CheckPlan, track: CheckTrack, beat_s: float) -> None:
        self.plan = plan
        self.track = track
        #: Where its beat lies on this node, in seconds, always the same.
        self.beat_s = beat_s
        self.bell = asyncio.Event()
        self.duration_s: float | None = None
        self.logged: str | None = None
        self._results: dict[ResultKey, Result] | None = None

    @property
    def results(self) -> dict[ResultKey, Result]:
        """The check's results, collected once for each change: a node has more than a thousand in all."""
        if self._results is None:
            self._results = {(r.check, r.finding.subject): r for r in self.track.results}
        return self._results

    @property
    def blocks_admission(self) -> bool:
        """Whether the last reading of any subject keeps a closed gate closed."""
        check = self.plan.check
        if self.plan.shadow or Phase.ADMISSION not in check.phases:
            return False
        bad = {Verdict.FAIL, Verdict.UNKNOWN} if check.unknown_blocks_admission else {Verdict.FAIL}
        return any(result.raw_verdict in bad for result in self.track.results)

    def changed(self) -> None:
        """The track has taken something in."""
        self._results = None
