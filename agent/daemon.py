"""The resident agent's life: serve, run until told to stop, and end in order.

The main loop runs the checks' schedule, the controllers and the gates, and beats. Everything that answers
others is on a thread of its own (server_thread.py). If any part of the main loop ends by a defect the
daemon ends too, at once and with the engines left running: no answer is better than a stale one, and the
next agent adopts the engines.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import time
from collections.abc import Iterator
from functools import partial

from agent.admin import Office, make_admin
from agent.api import make_api
from agent.daemon_parts import Parts, Surroundings
from agent.daemon_reload import reload_profile
from agent.errors import DaemonError
from agent.hold_keeper import stop_quietly
from agent.http_protocol import PeerProtocol
from agent.log_events import Event, about
from agent.log_json import know_where
from agent.sd_notify import Notifier
from agent.server_thread import ServerThread, http_server

log = logging.getLogger("nodegate.daemon")
TICK_S = 1.0
PARTS_WITHIN_S = 1.0
#: Beyond the engines' own deadlines, what an orderly end may take.
STOP_SLACK_S = 10.0
_SAID = {"start": Event.AGENT_STARTED, "stop": Event.AGENT_STOPPING}
LEFT = "the agent restarts, its engines run on"


class Daemon:
    """One life of the agent. Build it and await `run`, on the main thread if signals are to count."""

    def __init__(self, given: Surroundings) -> None:
        """Build every part; nothing moves yet. Raises AgentError."""
        self._given = given
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._leave = False
        self._failure: BaseException | None = None
        self.parts = Parts(given, self._fail)
        know_where(self.parts.node, self.parts.boot_id)
        self._servers = given.front.servers if given.front is not None else ServerThread()
        self._notifier = Notifier()
        self._reloading: asyncio.Task[None] | None = None
        self._reload_asked = False

    def request_stop(self) -> None:
        """Begin an orderly end; the second time, a quick one. From the main loop's thread."""
        if self._stop.is_set():
            self._hurry.set()
        self._stop.set()

    def request_leave(self) -> None:
        """End at once and leave the engines to the next agent. From the main loop's thread."""
        self._leave = True
        self._stop.set()
        self._hurry.set()

    def request_reload(self) -> None:
        """Read the profile again; after one that is under way, once more. From the main loop's thread."""
        self._reload_asked = True
        if self._reloading is None or self._reloading.done():
            self._reloading = asyncio.get_running_loop().create_task(self._reload(), name="reload")

    async def run(self) -> None:
        """Run until asked to stop. Raises DaemonError if a part of the daemon broke."""
        loop = asyncio.get_running_loop()
        self._given.relay.connect(self.parts.runner.trigger)
        self.parts.gates.load_holds()
        with self._signals(loop):
            # An interrupt from before these handlers has cancelled this task: let it end, nothing is started.
            await asyncio.sleep(0)
            self._serve(loop)
            self._say("start", f"nodegate runs on {self.parts.node}, profile {self.parts.loaded.hash[:16]}")
            self._notifier.ready(f"mode {self.parts.loaded.profile.mode}")
            self.parts.recent.start()
            self.parts.checklists.watch.start()
            await self._know_parts()
            tasks = self._begin()
            stop = loop.create_task(self._wait_for_stop(), name="stop")
            done, _ = await asyncio.wait({stop, *tasks}, return_when=asyncio.FIRST_COMPLETED)
            self._look_for_failure(done - {stop})
            await stop_quietly(stop)
            await self._end(tasks)
        if self._failure is not None:
            text = f"{type(self._failure).__name__}: {self._failure}"
            raise DaemonError(f"the agent ended by a defect; engines are left running: {text}")

    def _fail(self, defect: BaseException) -> None:
        """A part of the daemon broke: end, fail closed."""
        if self._failure is None:
            self._failure = defect
            log.error("a part of the agent broke", exc_info=defect, extra=about(Event.AGENT_BROKE))
        self._stop.set()

    def _look_for_failure(self, ended: set[asyncio.Task[None]]) -> None:
        """Nothing on the main loop may end by itself."""
        for task in ended:
            defect = None if task.cancelled() else task.exception()
            self._fail(defect or DaemonError(f"{task.get_name()} has ended by itself"))

    async def _wait_for_stop(self) -> None:
        await self._stop.wait()

    async def _know_parts(self) -> None:
        """Let the parts be read once, so that the first fault is recorded with its part; not for long."""
        reader = self.parts.part_reader
        reader.start()
        until_s = time.monotonic() + PARTS_WITHIN_S
        while not reader.read_once.is_set() and not self._stop.is_set() and time.monotonic() < until_s:
            self.parts.publisher.beat()
            await asyncio.sleep(0.01)

    def _begin(self) -> set[asyncio.Task[None]]:
        """Everything that runs on the main loop for ever."""
        loop = asyncio.get_running_loop()
        parts = {
            "runner": self.parts.runner.run(),
            "holds": self.parts.gates.keeper.run(),
            "tick": self._tick(),
            **{f"group-{name}": member.run() for name, member in self.parts.members.items()},
            **{f"engine-{name}": controller.run() for name, controller in self.parts.controllers.items()},
        }
        return {loop.create_task(part, name=name) for name, part in parts.items()}

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start answering."""
        parts, premises = self.parts, self._given.premises
        office = Office(
            publisher=parts.publisher,
            desk=parts.desk,
            journal=parts.journal,
            log_tail=parts.log_tail,
            main_loop=loop,
            wall_s=parts.clock.wall_s,
            checklists=parts.checklists,
        )
        if self._given.front is None:
            self._servers.add_http(http_server(make_api(parts.publisher)), premises.api)
        self._servers.add_http(http_server(make_admin(office), PeerProtocol), premises.admin)
        for name, listener in premises.agent_checks.items():
            self._servers.add_agent_check(listener, partial(parts.publisher.agent_line, name))
        self._servers.start()

    async def _tick(self) -> None:
        """Beat, judge anew as time passes, and note how fresh the results are."""
        while True:
            self.parts.publisher.beat()
            if not self.parts.runner.flush():
                self.parts.gates.evaluate()
            self.parts.keep_memory()
            self._notifier.watchdog()
            if not self._servers.alive:
                raise DaemonError("the HTTP servers have ended")
            await asyncio.sleep(TICK_S)

    async def _reload(self) -> None:
        while self._reload_asked:
            self._reload_asked = False
            self._notifier.reloading(time.monotonic())
            try:
                await reload_profile(self.parts, self._given.load_again)
            # The edge of a task that nobody awaits: half a profile must not stay in force.
            except Exception as defect:  # noqa: BLE001
                self._fail(defect)
            self._notifier.ready(self.parts.problem or f"profile {self.parts.loaded.hash[:16]}")

    async def _end(self, tasks: set[asyncio.Task[None]]) -> None:
        """Close the gates, give the load balancers their grace, stop the engines, then everything else."""
        # Gates first, then the engines, and a little for the rest.
        self._notifier.stopping(2 * self._stop_deadline_s() + STOP_SLACK_S)
        if self._orderly:
            self._say("stop", "asked to stop: gates close, engines are stopped")
            await self._drain(tasks)
        # Asked to leave, at once or while it drained: what still runs goes on.
        orderly = self._orderly
        if not orderly:
            self._servers.stop()
        await self._close_engines(leave_running=not orderly)
        for task in tasks:
            await stop_quietly(task)
        self._servers.stop()
        self.parts.part_reader.stop()
        self.parts.checklists.watch.stop()
        self.parts.recent.stop()
        self.parts.counters.keep(now=True)
        await self.parts.gates.keeper.close()
        self.parts.journal.record_mark("end", "orderly" if orderly else str(self._failure or LEFT))
        await asyncio.to_thread(self.parts.journal.close)

    @property
    def _orderly(self) -> bool:
        """Whether the engines are to end with the agent."""
        return self._failure is None and not self._leave

    async def _drain(self, tasks: set[asyncio.Task[None]]) -> None:
        """Wait, with everything running, until every gate has come to its end or the time is over."""
        gates = self.parts.gates
        gates.shut_down()
        deadline_s = time.monotonic() + self._stop_deadline_s()
        while not gates.all_stopped and self._waits(deadline_s) and not any(t.done() for t in tasks):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._hurry.wait(), 0.05)
                self._hurry.clear()
                gates.hurry()

    def _waits(self, deadline_s: float) -> bool:
        """Whether the drain goes on."""
        return not self._leave and time.monotonic() < deadline_s

    async def _close_engines(self, *, leave_running: bool) -> None:
        """Let every controller end, all at once, within their deadlines."""
        closing = [
            asyncio.create_task(controller.close(leave_running=leave_running), name=f"close-{name}")
            for name, controller in self.parts.controllers.items()
        ]
        if not closing:
            return
        done, late = await asyncio.wait(closing, timeout=self._stop_deadline_s())
        for task in late:
            log.error("%s: not done in time", task.get_name())
            await stop_quietly(task)
        for task in done:
            if (defect := task.exception()) is not None:
                log.error("%s", task.get_name(), exc_info=defect)

    def _stop_deadline_s(self) -> float:
        """Seconds that closing and stopping all engines may take."""
        engines = self.parts.loaded.profile.engines.values()
        return STOP_SLACK_S + max((e.gate.drain_grace_s + e.stop_deadline_s for e in engines), default=0.0)

    def _say(self, mark: str, text: str) -> None:
        """One line in the log and the journal."""
        log.info("%s", text, extra=about(_SAID[mark]))
        self.parts.journal.record_mark(mark, text, boot_id=self.parts.boot_id)

    @contextlib.contextmanager
    def _signals(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        """SIGTERM and SIGINT end, SIGHUP reloads, SIGUSR1 (the unit restarts) leaves the engines running."""
        handlers = {
            signal.SIGTERM: self.request_stop,
            signal.SIGINT: self.request_stop,
            signal.SIGHUP: self.request_reload,
            signal.SIGUSR1: self.request_leave,
        }
        for number, handler in handlers.items():
            loop.add_signal_handler(number, handler)
        for early in self._given.told:
            handlers[early]()
        try:
            yield
        finally:
            for number in handlers:
                loop.remove_signal_handler(number)
