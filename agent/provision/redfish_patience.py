"""How long a BMC that does not answer is waited for, and with what pauses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from agent.provision.redfish_wire import Request
from agent.provision.redfish_words import NoAnswer

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 15.0
#: A service that asks for a longer rest than this is asked earlier: many name a number without thinking.
LONGEST_RETRY_AFTER_S = 60.0
#: Least time that a request gets, however little patience is left.
LEAST_REQUEST_S = 0.2


@dataclass
class Patience:
    """Patience with one service; silence counts from the first failure after its last good answer."""

    where: str
    total_s: float
    mono_s: Callable[[], float] = field(repr=False)
    sleep: Callable[[float], None] = field(repr=False)
    on_wait: Callable[[str], None] | None = field(default=None, repr=False)
    _since_s: float | None = None
    _pause_s: float = FIRST_PAUSE_S

    def of(self, total_s: float | None) -> Patience:
        """This patience, or a smaller one for a single request."""
        if total_s is None:
            return self
        return replace(self, total_s=total_s, _since_s=None, _pause_s=FIRST_PAUSE_S)

    def rewarded(self) -> None:
        """There was a good answer."""
        self._since_s, self._pause_s = None, FIRST_PAUSE_S

    def cut(self, request: Request, *, whole: bool) -> Request:
        """The request with no more time than is left; `whole` = it has its own, as an upload has."""
        if whole:
            return request
        if self._since_s is None:
            self._since_s = self.mono_s()
        left_s = self.total_s - (self.mono_s() - self._since_s)
        return replace(request, timeout_s=max(LEAST_REQUEST_S, min(request.timeout_s, left_s)))

    def wait(self, problem: str, retry_after: str | None, limit_s: float | None = None) -> None:
        """Pause before the next try. Raises NoAnswer when the patience (or `limit_s`) is over."""
        now_s = self.mono_s()
        if self._since_s is None:
            self._since_s = now_s
        spent_s, total_s = now_s - self._since_s, min(self.total_s, limit_s or self.total_s)
        if spent_s >= total_s:
            raise NoAnswer(
                f"no usable answer for {spent_s:.0f} s ({problem})",
                where=self.where,
                remedy="look after the BMC (network, power, restart it) and run the play again;"
                " nodegate_bmc_patience_s says how long to wait",
            )
        pause_s = min(max(self._pause_s, _seconds(retry_after)), total_s - spent_s)
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
        if self.on_wait is not None:
            self.on_wait(f"{self.where}: {problem}; waiting, {spent_s:.0f} of {total_s:.0f} s")
        self.sleep(pause_s)


def _seconds(retry_after: str | None) -> float:
    """What Retry-After asks for; a date or nonsense counts as nothing, our own pause is enough then."""
    text = (retry_after or "").strip()
    return min(float(text), LONGEST_RETRY_AFTER_S) if text.isascii() and text.isdigit() else 0.0
