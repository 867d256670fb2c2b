"""Asking the agent of every host at once, read-only, within a bounded time and with bounded answers."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from agent.fleet.site import SiteHost
from agent.fleet.told import Garbage, Told, parse
from agent.sources.engine_http import BadRequest, HttpError, TooLong, exchange

PATH = "/status?brief=1"
TIMEOUT_S = 3.0
CONCURRENT = 500
#: A brief status of a node has 1 to 10 kB; one of an agent that knows no brief one, of 16 GPUs, below 1 MB.
MOST_BYTES = 1024 * 1024
#: Files that this process has open besides its connections.
_OTHER_FILES = 64


@dataclass(frozen=True)
class Answer:
    """What one host's agent said; without `told`, `why` says why nothing is known of it."""

    told: Told | None = None
    why: str = ""


async def ask_all(
    hosts: Iterable[SiteHost], *, timeout_s: float = TIMEOUT_S, concurrent: int = CONCURRENT
) -> dict[str, Answer]:
    """The answers by host. Takes at most `timeout_s` for every `concurrent` hosts, whatever they do."""
    turn = asyncio.Semaphore(room_for(concurrent))

    async def one(host: SiteHost) -> tuple[str, Answer]:
        async with turn:
            return host.name, await ask(host, timeout_s)

    known = tuple(hosts)
    return _once_each(known, dict(await asyncio.gather(*map(one, known))))


def _once_each(hosts: Iterable[SiteHost], answers: dict[str, Answer]) -> dict[str, Answer]:
    """No agent counts as two nodes: where no profile names the node, its address must be its own."""
    there: dict[tuple[str, int], list[SiteHost]] = {}
    for host in hosts:
        there.setdefault((host.address, host.port), []).append(host)
    for same in there.values():
        for host in same if len(same) > 1 else ():
            if not host.facts.node:
                other = next(one.name for one in same if one is not host)
                why = f"{other} has the same address and port: set `node` in its profile, or correct one"
                answers[host.name] = Answer(why=why)
    return answers


def asked(
    hosts: Iterable[SiteHost], *, timeout_s: float = TIMEOUT_S, concurrent: int = CONCURRENT
) -> Mapping[str, Answer]:
    """The same, for callers that have no event loop."""
    return asyncio.run(ask_all(hosts, timeout_s=timeout_s, concurrent=concurrent))


async def ask(host: SiteHost, timeout_s: float) -> Answer:
    """Ask one host. Only a whole, fresh answer of the right node within the time is one."""
    address = (host.address, host.port)
    try:
        async with asyncio.timeout(timeout_s):
            status, body = await exchange(address, "GET", PATH, {}, b"", MOST_BYTES)
    except TimeoutError:
        return Answer(why=f"no answer within {timeout_s:g} s")
    except (OSError, UnicodeError) as cause:  # UnicodeError: no name for a resolver
        return Answer(why=_words(cause, host))
    except TooLong:
        return Answer(why=f"what answers there sends more than {MOST_BYTES // 1024} KiB")
    except (HttpError, BadRequest):
        return Answer(why="what answers there is no nodegate agent: no HTTP")
    if status != 200:
        return Answer(why=f"what answers there says HTTP {status}, and is not asked further")
    try:
        return Answer(parse(body, host.facts.node or None))
    except Garbage as cause:
        return Answer(why=str(cause))


def room_for(concurrent: int) -> int:
    """How many connections this process may have at once; its limit of open files is raised for them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = concurrent + _OTHER_FILES
    if soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        soft = most
    return max(1, min(concurrent, soft - _OTHER_FILES))


def _words(cause: Exception, host: SiteHost) -> str:
    """The system's own words for it, and what the profile has to do with it."""
    if isinstance(cause, socket.gaierror):
        return f"{host.address}: {(cause.strerror or str(cause)).lower()}"
    if not isinstance(cause, OSError):
        return f"{host.address} is no address"
    text = os.strerror(cause.errno).lower() if cause.errno else str(cause).lower()
    if host.facts.api_host in ("127.0.0.1", "::1", "localhost"):
        return f"{text}; api.host of its profile is {host.facts.api_host}, where only the node itself can ask"
    return text
