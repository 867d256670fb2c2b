"""Asking the agent: a real socket, answers of every kind, and an agent that has been replaced."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from ports import free_port

from agent.enforce import asking
from agent.enforce.asking import Asker
from agent.enforce.keeper import Word
from agent.node_profile import Api

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nok\n"


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that answers may wait for its turn: what is told apart here is not late."""
    monkeypatch.setattr(asking, "DEADLINE_S", 20.0)


@contextmanager
def _agent(*answers: bytes) -> Iterator[tuple[int, list[bytes]]]:
    """One answer for each request; an empty one ends the connection. Its port and the requests."""
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(20)

        def serve() -> None:
            left = list(answers)
            while left:
                peer, _ = listener.accept()
                with peer:
                    while left and (request := peer.recv(4096)):
                        asked.append(request.split(b"\r\n")[0])
                        answer = left.pop(0)
                        if not answer:
                            break
                        peer.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1], asked
        thread.join(20)
        assert not thread.is_alive()


@pytest.mark.parametrize(
    ("answer", "word"),
    [
        (OK, Word.OPEN),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", Word.CLOSED),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n<html>", Word.CLOSED),
        (OK.replace(b"\r\n\r", b"\r\nx-nodegate-simulated: true\r\n\r"), Word.CLOSED),
        (b"HTTP/1.1 503 x\r\ncontent-length: 0\r\n\r\n", Word.CLOSED),
        (b"HTTP/1.1 404 x\r\ncontent-length: 0\r\n\r\n", Word.CLOSED),
        (b"HTTP/1.1 302 x\r\nlocation: /\r\ncontent-length: 0\r\n\r\n", Word.CLOSED),
        (b"200 OK\r\n\r\n", Word.SILENT),
        (b"", Word.SILENT),
    ],
)
@pytest.mark.usefixtures("patient")
def test_only_the_answer_of_an_open_gate_of_this_node_is_open(answer: bytes, word: Word) -> None:
    with _agent(answer) as (port, asked):
        asker = Asker(Api(port=port))
        assert asker("glm") is word
        asker.close()
    assert asked == [b"GET /readyz/glm HTTP/1.1"]


@pytest.mark.usefixtures("patient")
def test_the_connection_is_kept_and_renewed_after_a_restart() -> None:
    with _agent(OK, OK, b"", OK) as (port, asked):
        asker = Asker(Api(port=port))
        assert [asker("glm") for _ in range(3)] == [Word.OPEN] * 3
        asker.close()
    assert len(asked) == 4


def test_an_answer_that_trickles_is_none() -> None:
    """Each byte comes in time and the whole never: the table of a helper that waits is never loaded."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(20)

        def trickle() -> None:
            peer, _ = listener.accept()
            with peer, suppress(OSError):
                peer.sendall(b"HTTP/1.1 200 OK\r\nx: ")
                while not over.wait(0.05):
                    peer.sendall(b"x")

        thread = threading.Thread(target=trickle)
        thread.start()
        began_s = time.monotonic()
        ask = threading.Thread(target=lambda: heard.append(Asker(Api(port=port))("glm")))
        heard: list[Word] = []
        port = listener.getsockname()[1]
        ask.start()
        ask.join(20)
        waited_s = time.monotonic() - began_s
        over.set()
        thread.join(20)
        ask.join(20)
    assert heard == [Word.SILENT]
    assert waited_s < 15


def test_nobody_listens() -> None:
    assert Asker(Api(port=free_port()))("glm") is Word.SILENT
