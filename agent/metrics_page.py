"""The reply of `/metrics`, made about once a second however many ask.

The page of a large node takes a tenth of a second to make, on the thread that answers /readyz too, and
whoever reaches the port may ask as often as he likes.
"""

from __future__ import annotations

from agent.metrics import CONTENT_TYPE
from agent.publisher import Publisher, Reply
from agent.status_view import metrics_text


class MetricsPage:
    """Makes the page of one publisher. Used from the thread of the HTTP servers."""

    def __init__(self, publisher: Publisher) -> None:
        """Nothing is made before it is asked for."""
        self._publisher = publisher
        self._made: tuple[object, Reply] | None = None

    def reply(self) -> Reply:
        """The page as of this second; gates are those of now: their states and what /readyz says of each."""
        about = self._about()
        if self._made is None or self._made[0] != about:
            self._made = about, Reply(200, metrics_text(self._publisher), CONTENT_TYPE)
        return self._made[1]

    def _about(self) -> object:
        """What a page that was made must still be about."""
        publisher = self._publisher
        current = publisher.current
        if current is None:
            return None, int(publisher.clock())
        ready = tuple((name, publisher.ready(name).status) for name in (*current.answers, *current.pairs))
        states = tuple((name, record.state) for name, record in current.records.items())
        return int(publisher.clock()), ready, states, current.facts.profile_hash, current.snapshot is None
