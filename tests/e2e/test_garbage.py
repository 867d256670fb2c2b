"""Garbage on every port and socket of a serving daemon: 4xx or a closed connection, and it goes on."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator

import pytest
from daemon_rig import DaemonRig, wait_until

#: What is sent and whether an answer, if there is one, must be a refusal.
GARBAGE = {
    "noise": random.Random(7).randbytes(4096),
    "a TLS greeting": bytes.fromhex("16030100c8010000c40303") + bytes(190),
    "half a request": b"GET /readyz HTTP/1.1\r\nHost: x\r\n",
    "a bare line": b"GET /readyz\r\n\r\n",
    "a huge head": b"GET / HTTP/1.1\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
    "a huge path": b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    "an order": b"POST /readyz HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}",
    "a wrong path": b"GET /../../etc/passwd HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    "an unknown engine": b"GET /readyz/%00%ff HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    "a body that never comes": b"POST /status HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n",
    "two lengths": b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
}


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonRig]:
    """A serving daemon for all of these."""
    whole = DaemonRig(tmp_path_factory.mktemp("garbage"), {"main": list(range(8))})
    whole.start()
    try:
        whole.wait_ready()
        yield whole
    finally:
        whole.close()


def _send(peer: socket.socket, data: bytes) -> bytes:
    """Send, say that no more will come, and read to the end; a reset is an answer too."""
    peer.settimeout(30)
    answer = b""
    try:
        peer.sendall(data)
        peer.shutdown(socket.SHUT_WR)
        while piece := peer.recv(65536):
            answer += piece
    except (ConnectionError, BrokenPipeError):
        pass  # what could be read before the reset is the answer
    finally:
        peer.close()
    return answer


def _refused_or_silent(answer: bytes) -> bool:
    """Nothing, or a status of 400 to 499."""
    return not answer or answer.split(b" ", 2)[1][:1] == b"4"


@pytest.mark.parametrize("what", GARBAGE)
def test_the_read_only_port(rig: DaemonRig, what: str) -> None:
    answer = _send(socket.create_connection(("127.0.0.1", rig.api_port)), GARBAGE[what])
    assert _refused_or_silent(answer), answer[:300]
    assert rig.ready("main")


@pytest.mark.parametrize("what", GARBAGE)
def test_the_operator_socket(rig: DaemonRig, what: str) -> None:
    peer = socket.socket(socket.AF_UNIX)
    peer.connect(str(rig.run_dir / "admin.sock"))
    answer = _send(peer, GARBAGE[what])
    assert _refused_or_silent(answer), answer[:300]
    assert rig.ready("main")


@pytest.mark.parametrize("what", GARBAGE)
def test_the_agent_check_port_says_its_line_whatever_it_hears(rig: DaemonRig, what: str) -> None:
    answer = _send(socket.create_connection(("127.0.0.1", rig.check_ports["main"])), GARBAGE[what])
    assert answer == b"" or answer.startswith(b"up ready 100%")
    wait_until("the line", lambda: rig.agent_line("main").startswith("up ready 100%"))


def test_nothing_of_it_was_an_event(rig: DaemonRig) -> None:
    assert rig.process is not None
    assert rig.process.poll() is None
    assert "Traceback" not in rig.log()
    entries = rig.admin.get("/history", since_s=3600)["entries"]
    assert [entry for entry in entries if entry["kind"] == "operator"] == []
    assert [entry for entry in entries if entry["kind"] == "gate" and entry["before"] == "serving"] == []
