"""RedfishClient: documents of BMCs and cooling units over HTTPS, for any number of threads.

Each service has its own connection, session and rest, so one that is slow or dead delays no other. Files
(credentials, CA) are read in the caller's thread, so a hung mount holds up that caller alone.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import stat
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

from agent.bmc_profile import RedfishEndpoint, plain_http_problem
from agent.errors import SourceError, SourceUnavailable
from agent.sources.bmc_reading import Bmc
from agent.sources.redfish_credentials import Credentials, read_credentials
from agent.sources.redfish_loop import LoopThread
from agent.sources.redfish_service import RedfishService

#: Seconds that close() may spend on ending sessions.
CLOSE_S = 2.0
#: The loop bounds a request by itself; this much later the caller stops trusting the loop.
LOOP_GRACE_S = 2.0


class RedfishClient(Bmc):
    """Redfish services by name."""

    def __init__(self, *, mono_s: Callable[[], float] = time.monotonic) -> None:
        """Nothing is connected and no thread runs yet. `mono_s` times rests and cache."""
        # The transport's debug log quotes the headers of answers, the session's token among them.
        logging.getLogger("httpcore").setLevel(logging.INFO)
        logging.getLogger("httpx").setLevel(logging.WARNING)
        self._mono_s = mono_s
        self._loop = LoopThread()
        self._lock = threading.Lock()
        self._services: dict[str, RedfishService] = {}
        self._contexts: dict[tuple[str | None, bool, object], ssl.SSLContext] = {}

    def get(self, name: str, endpoint: RedfishEndpoint, path: str) -> Mapping[str, Any]:
        """The JSON object at a path of a service. Raises SourceError, within the endpoint's deadline."""
        try:
            problem = plain_http_problem(endpoint)
            if problem:
                raise SourceUnavailable(f"{endpoint.url}: {problem}")
            credentials = read_credentials(endpoint.credentials_file) if endpoint.credentials_file else None
            context = self._context(endpoint)
            work = self._ask(name, endpoint, path, credentials, context)
            return self._loop.run(work, endpoint.deadline_s + LOOP_GRACE_S)
        except SourceError as cause:
            raise type(cause)(f"{name}: {cause}") from None

    def close(self) -> None:
        """End all sessions, as far as the services answer within CLOSE_S seconds."""
        self._loop.close(self._end_sessions(), CLOSE_S)

    async def _ask(
        self,
        name: str,
        endpoint: RedfishEndpoint,
        path: str,
        credentials: Credentials | None,
        context: ssl.SSLContext | bool,
    ) -> Mapping[str, Any]:
        return await self._service(name, endpoint).get(path, credentials, context)

    def _service(self, name: str, endpoint: RedfishEndpoint) -> RedfishService:
        """The service of a name; a changed endpoint (a new profile) is a new service. On the loop only."""
        service = self._services.get(name)
        if service is None or service.endpoint != endpoint:
            if service is not None:
                _in_background(service.close())
            self._services[name] = service = RedfishService(endpoint, self._mono_s)
        return service

    def _context(self, endpoint: RedfishEndpoint) -> ssl.SSLContext | bool:
        """What TLS trusts; read again when the CA file has changed."""
        if not endpoint.url.startswith("https:"):
            return False
        key = (endpoint.ca_file, endpoint.tls_verify, _stamp(endpoint.ca_file))
        with self._lock:
            known = self._contexts.get(key)
        if known is not None:
            return known
        context = make_context(endpoint)  # not under the lock: a dead mount must stop no other service
        with self._lock:
            for old in [old for old in self._contexts if old[:2] == key[:2] and old != key]:
                del self._contexts[old]
            return self._contexts.setdefault(key, context)

    async def _end_sessions(self) -> None:
        services, self._services = list(self._services.values()), {}
        await asyncio.gather(*(service.close() for service in services), return_exceptions=True)


_background: set[asyncio.Task[None]] = set()


def _in_background(work: Coroutine[Any, Any, None]) -> None:
    """Run on the loop without waiting; the set keeps the task from being collected."""

    async def bounded() -> None:
        try:
            async with asyncio.timeout(CLOSE_S):
                await work
        except TimeoutError:
            pass  # an old service that hangs: its session ends by itself

    task = asyncio.get_running_loop().create_task(bounded())
    _background.add(task)
    task.add_done_callback(_background.discard)


def _stamp(path: str | None) -> object:
    """What changes when a file does; None for no file or one that is not there."""
    if path is None:
        return None
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def make_context(endpoint: RedfishEndpoint) -> ssl.SSLContext:
    """What TLS trusts for this endpoint. Raises SourceUnavailable if its CA file cannot be used."""
    try:
        # A pipe in the place of the file would be waited for without end.
        if endpoint.ca_file is not None and not stat.S_ISREG(Path(endpoint.ca_file).stat().st_mode):
            raise SourceUnavailable(f"ca_file {endpoint.ca_file}: is not a regular file")
        context = ssl.create_default_context(cafile=endpoint.ca_file)
    except ssl.SSLError:
        raise SourceUnavailable(f"ca_file {endpoint.ca_file}: holds no certificate in PEM form") from None
    except OSError as cause:
        raise SourceUnavailable(f"ca_file {endpoint.ca_file}: {cause.strerror or 'cannot be read'}") from None
    if not endpoint.tls_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
