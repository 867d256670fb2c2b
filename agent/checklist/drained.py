"""`maintenance enter` returns while engines still drain: a checklist that is begun right after it waits."""

from __future__ import annotations

import time
from collections.abc import Callable

from agent.checklist.daemon_link import DaemonLink
from agent.errors import ConfigError

#: How long gates that drain are waited for, in seconds, and how often they are looked at.
WAIT_S = 900.0
_LOOK_S = 0.5
#: States of a gate that waiting does not close.
_OPEN = ("serving", "degraded", "member")


def await_drained(
    daemon: DaemonLink,
    say: Callable[[str], None],
    *,
    sleep: Callable[[float], None] = time.sleep,
    mono_s: Callable[[], float] = time.monotonic,
) -> None:
    """Return once no gate drains, or at once where another is open, for then there is nothing to wait for.

    Raises ConfigError after WAIT_S seconds, and DaemonError where the daemon does not answer.
    """
    until_s, told = mono_s() + WAIT_S, False
    while True:
        gates = daemon.status()["gates"]
        names = ", ".join(gate["engine"] for gate in gates if gate["state"] == "draining")
        if not names or any(gate["state"] in _OPEN for gate in gates):
            return
        if mono_s() >= until_s:
            raise ConfigError(
                f"{names} still drains after {WAIT_S:g} s", remedy="see nodegate status, then run this again"
            )
        if not told:
            say(f"{names} still drains: waiting until the engine has stopped")
            told = True
        sleep(_LOOK_S)
