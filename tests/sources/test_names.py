"""Names are looked up beside the loop's own threads, one look a name, whoever asks for it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading

import pytest

from agent.errors import SourceTimeout, SourceUnavailable
from agent.sources.group_pull import pull_status
from agent.sources.names import Names


class Silent:
    """A resolver that is silent until it is told to answer."""

    def __init__(self) -> None:
        self.may_answer = threading.Event()
        self.asked: list[str] = []

    def __call__(self, host: str) -> tuple[str, ...]:
        self.asked.append(host)
        assert self.may_answer.wait(30)
        return ("127.0.0.1", "127.0.0.2")


async def _pull(names: Names, deadline_s: float) -> None:
    with contextlib.suppress(SourceTimeout):
        await pull_status(("member.example", 1), "glm", "0" * 16, deadline_s, 1024, names)


def test_a_silent_name_server_takes_one_thread_and_none_of_the_pool() -> None:
    async def scenario() -> None:
        silent = Silent()
        names = Names(silent)
        try:
            await asyncio.gather(*(_pull(names, 0.02) for _ in range(64)))
            assert silent.asked == ["member.example"]
            async with asyncio.timeout(5):
                assert await asyncio.to_thread(lambda: True), "the pool is free"
            waiting = asyncio.ensure_future(names.of("member.example"))
            await asyncio.sleep(0)
        finally:
            silent.may_answer.set()
        assert await waiting == ("127.0.0.1", "127.0.0.2")
        assert await names.of("::1") == ("::1",), "an address is no question"
        assert silent.asked == ["member.example"]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "name or service not known"),
        (UnicodeError("label too long"), "^it is no host name$"),
        (None, "^its name has no address$"),
    ],
)
def test_a_name_that_nobody_knows_is_one_clear_error(cause: Exception | None, words: str) -> None:
    def unknown(host: str) -> tuple[str, ...]:
        if cause is None:
            return ()
        raise cause

    async def scenario() -> None:
        with pytest.raises(SourceUnavailable, match=words):
            await pull_status(("member.example", 1), "glm", "0" * 16, 5.0, 1024, Names(unknown))

    asyncio.run(scenario())
