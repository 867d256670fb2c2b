"""`nodegate enforce run|show|off`: the helper that lets the kernel enforce the gates."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from agent.commands import OverlayOption, ProfileOption, resolve_profile

if TYPE_CHECKING:
    from agent.profile_loader import LoadedProfile

#: Seconds between words to systemd's watchdog, well within the unit's WatchdogSec.
_WATCHDOG_S = 2.0
log = logging.getLogger("nodegate.enforce")
_CHANGED = (
    "the profile's files have changed since this helper has started: engines and ports that are new in them "
    "are not enforced until `systemctl restart nodegate-enforce`"
)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    enforce = typer.Typer(
        help="The enforced gate: the kernel refuses new outside connections to closed engines.",
        no_args_is_help=True,
    )
    enforce.command("run")(run_command)
    enforce.command("show")(show_command)
    enforce.command("off")(off_command)
    app.add_typer(enforce, name="enforce")


def run_command(profile: ProfileOption = None, overlay: OverlayOption = None) -> None:
    """Load the table and keep permissions as the agent's answers say, until stopped. Needs CAP_NET_ADMIN.

    When it is stopped the table stays and every permission ends by itself: closed, not open. With
    enforce.enabled false it takes the table away and ends.
    """
    from agent.log_json import start_logging
    from agent.sd_notify import Notifier

    start_logging()
    loaded = resolve_profile(profile, overlay)
    notifier = Notifier()
    if not loaded.profile.enforce.enabled:
        _remove()
        notifier.ready("enforce.enabled is false")
        typer.echo("enforce.enabled is false: nothing is enforced")
        return
    with _stop_signals() as stop:
        _keep(loaded, notifier.ready, notifier.watchdog, stop)


def show_command() -> None:
    """Print the table as the kernel has it. Exit code 0: it is loaded, 1: nothing is enforced."""
    from agent.enforce.ruleset import TABLE
    from agent.sources.nft import show_table

    text = show_table(TABLE)
    typer.echo(text if text is not None else "nothing is enforced: the table is not loaded")
    raise typer.Exit(0 if text is not None else 1)


def off_command() -> None:
    """Take the table away: engines' ports are open to others, whatever their gates say."""
    _remove()
    typer.echo(
        "the table is gone; a helper that runs loads it again: systemctl disable --now nodegate-enforce"
    )


def _remove() -> None:
    from agent.enforce.ruleset import removal
    from agent.sources.nft import load_rules

    load_rules(removal())


def _keep(
    loaded: LoadedProfile, ready: Callable[[str], None], watchdog: Callable[[], None], stop: threading.Event
) -> None:
    """Load, and look again every period. Raises SourceError if the table cannot be loaded at the start."""
    from agent.enforce.asking import Asker
    from agent.enforce.keeper import Keeper
    from agent.sources.nft import load_rules

    profile, stamps, told = loaded.profile, _stamps(loaded.files), False
    keeper = Keeper(profile, Asker(profile.api), load_rules, _boottime_s)
    keeper.load(_permissions)
    ready(f"{len(profile.engines)} engines")
    while not stop.is_set():
        next_s = time.monotonic() + profile.enforce.period_s
        keeper.round()
        watchdog()
        if not told and _stamps(loaded.files) != stamps:
            # Not taken at once: the agent takes other ports at its own restart only.
            told = True
            log.warning("%s", _CHANGED)
        # The watchdog may be shorter than a period.
        while (left_s := next_s - time.monotonic()) > 0 and not stop.wait(min(left_s, _WATCHDOG_S)):
            watchdog()


def _stamps(files: Iterable[Path]) -> list[tuple[int, int, int] | None]:
    """What changes with each file."""
    return [_stamp(file) for file in files]


def _stamp(file: Path) -> tuple[int, int, int] | None:
    try:
        now = file.stat()
    except OSError:
        return None
    return now.st_ino, now.st_size, now.st_mtime_ns


def _permissions() -> dict[int, float]:
    """What a helper before this one has left; nothing where that cannot be read: closed is safe."""
    from agent.enforce.ruleset import TABLE, permissions
    from agent.errors import SourceError
    from agent.sources.nft import show_table

    try:
        return permissions(show_table(TABLE) or "")
    except SourceError:
        return {}


def _boottime_s() -> float:
    """It goes on while this process or the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@contextmanager
def _stop_signals() -> Iterator[threading.Event]:
    """An event that SIGTERM and SIGINT set."""
    stop = threading.Event()
    before = {
        number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
