"""The Redfish client against a real HTTPS service: what works, and that everything else fails closed."""

import logging
import os
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ports import free_port
from redfish_server import PASSWORD, SESSIONS, USER, Certificates, RedfishServer, make_certificates

from agent.bmc_profile import RedfishEndpoint
from agent.errors import DeviceAbsent, ParseError, SourceError, SourceTimeout, SourceUnavailable
from agent.sources import redfish, redfish_service
from agent.sources.redfish import RedfishClient

SYSTEM = "/redfish/v1/Systems/1"
ROOT = "/redfish/v1/"
DOCUMENTS: dict[str, Any] = {SYSTEM: {"Id": "1", "PowerState": "On"}, ROOT: {"Id": "RootService"}}


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def client(clock: Clock) -> Iterator[RedfishClient]:
    client = RedfishClient(mono_s=clock)
    yield client
    client.close()


@pytest.fixture
def server(certificates: Certificates) -> Iterator[RedfishServer]:
    with RedfishServer(dict(DOCUMENTS), certificates.here) as server:
        yield server


@pytest.fixture
def endpoint(server: RedfishServer, certificates: Certificates, tmp_path: Path) -> RedfishEndpoint:
    return RedfishEndpoint(
        url=server.url, ca_file=str(certificates.ca), credentials_file=str(_login(tmp_path)), deadline_s=10
    )


def _login(folder: Path, password: str = PASSWORD) -> Path:
    path = folder / "bmc.credentials"
    path.write_text(f"# reader\nusername: {USER}\npassword: {password}\n")
    path.chmod(0o600)
    return path


def _refused(client: RedfishClient, endpoint: RedfishEndpoint, path: str = SYSTEM) -> SourceError:
    """The error, which is one line without a secret, also in its causes."""
    with pytest.raises(SourceError) as caught:
        client.get("node", endpoint, path)
    text = str(caught.value)
    assert "\n" not in text
    assert len(text) < 400
    assert text.startswith("node: ")
    assert PASSWORD not in repr(caught.value) + text
    assert "token-" not in text
    return caught.value


def _until_asked(server: RedfishServer, path: str) -> None:
    end_s = time.monotonic() + 10
    while not server.asked(path) and time.monotonic() < end_s:
        time.sleep(0.005)


def test_it_reads_with_one_session_and_ends_it(server: RedfishServer, endpoint: RedfishEndpoint) -> None:
    client = RedfishClient()
    assert client.get("node", endpoint, SYSTEM)["PowerState"] == "On"
    assert client.get("node", endpoint, ROOT)["Id"] == "RootService"
    assert server.asked(SESSIONS, "POST") == 1
    assert len(server.tokens) == 1
    client.close()
    assert not server.tokens
    with pytest.raises(SourceUnavailable, match="closed"):
        client.get("node", endpoint, SYSTEM)


def test_a_reading_is_shared_for_a_moment_only(
    client: RedfishClient, clock: Clock, server: RedfishServer, endpoint: RedfishEndpoint
) -> None:
    client.get("node", endpoint, SYSTEM)
    server.documents[SYSTEM] = {"PowerState": "Off"}
    clock.now_s += 8
    assert client.get("node", endpoint, SYSTEM)["PowerState"] == "On"
    clock.now_s += 2
    assert client.get("node", endpoint, SYSTEM)["PowerState"] == "Off"


def test_what_is_not_there_is_absent(client: RedfishClient, endpoint: RedfishEndpoint) -> None:
    with pytest.raises(DeviceAbsent, match="Chassis/9: not there"):
        client.get("node", endpoint, "/redfish/v1/Chassis/9")


def test_a_session_that_expired_is_opened_again_once(
    client: RedfishClient, clock: Clock, server: RedfishServer, endpoint: RedfishEndpoint
) -> None:
    client.get("node", endpoint, SYSTEM)
    server.tokens.clear()
    clock.now_s += 60
    assert client.get("node", endpoint, SYSTEM)["Id"] == "1"
    assert server.asked(SESSIONS, "POST") == 2


def test_a_document_that_answers_401_for_good_does_not_use_up_the_sessions(
    client: RedfishClient, clock: Clock, server: RedfishServer, endpoint: RedfishEndpoint
) -> None:
    """Some services say 401 where they mean 403; they have room for a few sessions alone."""
    server.behave[SYSTEM] = "unauthorized"
    for _ in range(60):
        clock.now_s += 10
        assert client.get("node", endpoint, ROOT)["Id"] == "RootService"
        assert "may not read this" in str(_refused(client, endpoint))
    assert server.asked(SESSIONS, "POST") <= 6
    assert server.asked(SYSTEM) <= 12


def test_another_endpoint_while_one_is_asked_is_no_crash(
    client: RedfishClient, server: RedfishServer, endpoint: RedfishEndpoint
) -> None:
    client.get("node", endpoint, ROOT)
    server.behave[SYSTEM] = "hang"
    errors: list[SourceError] = []
    waiting = threading.Thread(target=lambda: errors.append(_refused(client, endpoint)))
    waiting.start()
    _until_asked(server, SYSTEM)
    changed = endpoint.model_copy(update={"deadline_s": 9.0})
    assert client.get("node", changed, ROOT)["Id"] == "RootService"
    waiting.join(30)
    assert len(errors) == 1


def test_a_wrong_password_is_tried_once_until_the_file_changes(
    client: RedfishClient, clock: Clock, server: RedfishServer, endpoint: RedfishEndpoint, tmp_path: Path
) -> None:
    _login(tmp_path, "wrong-Pa55word")
    assert "refuses user and password" in str(_refused(client, endpoint))
    assert "next try in 300 s" in str(_refused(client, endpoint))
    clock.now_s += 200
    assert "wrong" not in str(_refused(client, endpoint, ROOT))
    assert server.asked(SESSIONS, "POST") == 1
    _login(tmp_path)
    assert client.get("node", endpoint, SYSTEM)["Id"] == "1"


def test_basic_only_without_a_session_service(certificates: Certificates, tmp_path: Path) -> None:
    with RedfishServer(dict(DOCUMENTS), certificates.here, sessions=False) as server:
        endpoint = RedfishEndpoint(
            url=server.url, ca_file=str(certificates.ca), credentials_file=str(_login(tmp_path))
        )
        client = RedfishClient(mono_s=(clock := Clock()))
        assert client.get("node", endpoint, SYSTEM)["Id"] == "1"
        server.password = "changed"
        clock.now_s += 60
        assert "refuses user and password" in str(_refused(client, endpoint))
        assert "next try in 300 s" in str(_refused(client, endpoint))
        client.close()


def test_without_credentials_it_says_what_to_set(client: RedfishClient, endpoint: RedfishEndpoint) -> None:
    open_ = endpoint.model_copy(update={"credentials_file": None})
    assert "set credentials_file" in str(_refused(client, open_))


@pytest.mark.parametrize("use", ["system", "other_ca"])
def test_a_certificate_of_another_ca_gets_no_password(
    use: str,
    client: RedfishClient,
    server: RedfishServer,
    endpoint: RedfishEndpoint,
    certificates: Certificates,
) -> None:
    ca = None if use == "system" else str(certificates.other_ca)
    text = str(_refused(client, endpoint.model_copy(update={"ca_file": ca})))
    assert "the certificate is refused" in text
    assert not server.seen


def test_a_certificate_of_another_host_gets_no_password(
    client: RedfishClient, endpoint: RedfishEndpoint, certificates: Certificates
) -> None:
    with RedfishServer(dict(DOCUMENTS), certificates.elsewhere) as server:
        there = endpoint.model_copy(update={"url": server.url})
        assert "the certificate is refused: IP address mismatch" in str(_refused(client, there))
        assert not server.seen
        # Whoever switches the verification off gets what they asked for.
        assert client.get("node", there.model_copy(update={"tls_verify": False}), SYSTEM)["Id"] == "1"


def test_a_corrected_ca_file_is_used_at_once(
    client: RedfishClient, endpoint: RedfishEndpoint, certificates: Certificates, tmp_path: Path
) -> None:
    ca = tmp_path / "ca.pem"
    mine = endpoint.model_copy(update={"ca_file": str(ca)})
    assert "ca.pem: No such file" in str(_refused(client, mine))
    ca.write_text("nonsense")
    assert "holds no certificate" in str(_refused(client, mine))
    ca.write_text(certificates.other_ca.read_text())
    assert "certificate is refused" in str(_refused(client, mine))
    ca.write_text(certificates.ca.read_text())
    assert client.get("node", mine, SYSTEM)["Id"] == "1"


def test_a_ca_file_that_is_a_pipe_is_refused(
    client: RedfishClient, endpoint: RedfishEndpoint, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe.pem")
    mine = endpoint.model_copy(update={"ca_file": str(tmp_path / "pipe.pem")})
    assert "is not a regular file" in str(_refused(client, mine))


def test_a_ca_file_that_cannot_be_read_to_its_end_delays_no_other_service(
    client: RedfishClient, endpoint: RedfishEndpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, goes_on, make = threading.Event(), threading.Event(), ssl.create_default_context

    def dead_mount(*, cafile: str) -> ssl.SSLContext:
        if cafile.endswith("dead.pem"):
            read.set()
            goes_on.wait(30)
        return make(cafile=cafile)

    monkeypatch.setattr(ssl, "create_default_context", dead_mount)
    (tmp_path / "dead.pem").write_text("nonsense")
    dead = endpoint.model_copy(update={"ca_file": str(tmp_path / "dead.pem")})
    waiting = threading.Thread(target=lambda: _refused(client, dead))
    waiting.start()
    assert read.wait(10)
    assert client.get("cdu", endpoint, SYSTEM)["Id"] == "1"
    assert waiting.is_alive()
    goes_on.set()
    waiting.join(30)


@pytest.mark.parametrize("how", ["hang", "drip", "drip-headers"])
def test_what_comes_too_slowly_ends_at_the_deadline(
    how: str, client: RedfishClient, server: RedfishServer, endpoint: RedfishEndpoint
) -> None:
    client.get("node", endpoint, ROOT)
    server.behave[SYSTEM] = how
    # A new deadline is a new endpoint, so it logs in again: leave time for that on a busy machine.
    began_s = time.monotonic()
    error = _refused(client, endpoint.model_copy(update={"deadline_s": 1.0}))
    assert isinstance(error, SourceTimeout)
    assert time.monotonic() - began_s < 10


@pytest.mark.parametrize(
    ("how", "kind", "text"),
    [
        ("error", SourceUnavailable, "HTTP 500"),
        ("busy", SourceUnavailable, "cannot answer now"),
        ("forbidden", SourceUnavailable, "the account may not read this"),
        ("garbage", ParseError, "no JSON"),
        ("nan", ParseError, "no JSON"),
        ("deep", ParseError, "no JSON"),
        ("nested", ParseError, "nested too deeply"),
        ("list", ParseError, "JSON list, not an object"),
        ("huge", ParseError, "more than 8388608 bytes"),
        ("gzip", ParseError, "compressed"),
        ("away", SourceUnavailable, "redirects elsewhere"),
        ("away-slashes", SourceUnavailable, "redirects elsewhere"),
        ("round", SourceUnavailable, "redirects more than 3 times"),
    ],
)
def test_a_bad_answer_is_an_error(
    how: str,
    kind: type[SourceError],
    text: str,
    client: RedfishClient,
    clock: Clock,
    server: RedfishServer,
    endpoint: RedfishEndpoint,
) -> None:
    server.behave[SYSTEM] = how
    error = _refused(client, endpoint)
    assert isinstance(error, kind)
    assert text in str(error)
    if how != "busy":  # one bad document is no reason to leave the others unread
        assert client.get("node", endpoint, ROOT)["Id"] == "RootService"
    server.behave.clear()
    clock.now_s += 60
    assert client.get("node", endpoint, SYSTEM)["Id"] == "1"


def test_a_redirect_within_the_service_is_followed(
    client: RedfishClient, server: RedfishServer, endpoint: RedfishEndpoint
) -> None:
    server.behave[SYSTEM] = "home"
    server.documents[f"{SYSTEM}/"] = {"Id": "with a slash"}
    assert client.get("node", endpoint, SYSTEM)["Id"] == "with a slash"


@pytest.mark.parametrize("how", ["away", "no-token", "bad-token", "error", "garbage"])
def test_a_login_that_goes_wrong_is_an_error(
    how: str, client: RedfishClient, server: RedfishServer, endpoint: RedfishEndpoint
) -> None:
    server.behave[SESSIONS] = how
    _refused(client, endpoint)
    assert server.asked(SYSTEM) == 0


@pytest.mark.parametrize(
    "path",
    [
        "//evil.example/redfish/v1",
        "http://evil.example/redfish/v1",
        "/redfish/v1/a b",
        "/redfish/v1/../etc",
        "/x",
        "",
    ],
)
def test_a_link_out_of_the_service_is_not_followed(
    path: str, client: RedfishClient, server: RedfishServer, endpoint: RedfishEndpoint
) -> None:
    assert isinstance(_refused(client, endpoint, path), ParseError)
    assert not server.seen


def _dead() -> socket.socket:
    """A port that takes connections and never says a word."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    return listener


def test_a_dead_bmc_is_left_alone_and_delays_no_other(
    client: RedfishClient, clock: Clock, server: RedfishServer, endpoint: RedfishEndpoint
) -> None:
    with _dead() as listener:
        url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        dead = endpoint.model_copy(update={"url": url, "deadline_s": 2.0})
        errors: list[SourceError] = []
        waiting = threading.Thread(target=lambda: errors.append(_refused(client, dead)))
        waiting.start()
        assert client.get("cdu", endpoint, SYSTEM)["Id"] == "1"
        assert not errors, "the answer of the other service waited for the dead one"
        waiting.join(30)
        assert "no connection in time" in str(errors[0])
        began_s = time.monotonic()
        text = str(_refused(client, dead, "/redfish/v1/Chassis"))
        assert "next try in 15 s" in text
        assert time.monotonic() - began_s < 1


def test_documents_that_hang_one_after_the_other_mean_a_bmc_that_hangs(
    client: RedfishClient, server: RedfishServer, endpoint: RedfishEndpoint
) -> None:
    hasty = endpoint.model_copy(update={"deadline_s": 1.5})
    for path in (SYSTEM, f"{SYSTEM}/Bios"):
        server.behave[path] = "hang"
        assert isinstance(_refused(client, hasty, path), SourceTimeout)
    assert "next try in 30 s" in str(_refused(client, hasty, ROOT))
    assert server.asked(ROOT) == 0


def test_a_document_that_waited_behind_one_that_hangs_is_not_called_slow(
    client: RedfishClient, server: RedfishServer, endpoint: RedfishEndpoint
) -> None:
    hasty = endpoint.model_copy(update={"deadline_s": 3.0})
    client.get("node", hasty, SYSTEM)  # the session
    bios = f"{SYSTEM}/Bios"
    server.documents[bios] = {"Id": "BIOS"}
    server.behave = {ROOT: "hang", bios: "hang"}
    first = threading.Thread(target=lambda: _refused(client, hasty, ROOT))
    first.start()
    _until_asked(server, ROOT)
    time.sleep(0.5)  # so that the second one has this long left when the first has used up its time
    assert isinstance(_refused(client, hasty, bios), SourceTimeout)
    first.join(30)
    server.behave.clear()
    assert client.get("node", hasty, bios)["Id"] == "BIOS"


def test_a_port_where_nobody_listens_is_told_and_rested(
    client: RedfishClient, clock: Clock, endpoint: RedfishEndpoint
) -> None:
    dead = endpoint.model_copy(update={"url": f"https://127.0.0.1:{free_port()}"})
    assert "connection refused" in str(_refused(client, dead))
    assert "next try in 15 s" in str(_refused(client, dead))
    clock.now_s += 16
    assert "next try" not in str(_refused(client, dead))
    assert "next try in 30 s" in str(_refused(client, dead))


def test_closing_waits_for_no_dead_bmc_and_leaves_no_connection(endpoint: RedfishEndpoint) -> None:
    client = RedfishClient()
    with _dead() as listener:
        url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        dead = endpoint.model_copy(update={"url": url, "deadline_s": 60.0})
        waiting = threading.Thread(target=lambda: _refused(client, dead))
        waiting.start()
        listener.settimeout(10)
        connection, _ = listener.accept()
        with connection:
            began_s = time.monotonic()
            client.close()
            assert time.monotonic() - began_s < 8
            assert _hung_up(connection)
        waiting.join(10)
        assert not waiting.is_alive()


def _hung_up(connection: socket.socket) -> bool:
    """Whether the other side has closed it, after whatever it sent."""
    connection.settimeout(10)
    try:
        while connection.recv(65536):
            pass
    except ConnectionResetError:
        pass
    except TimeoutError:
        return False
    return True


def test_a_handshake_that_is_cut_off_leaves_no_connection(
    client: RedfishClient, endpoint: RedfishEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        redfish_service, "CONNECT_SHARE", 20.0
    )  # so that the deadline of the whole comes first
    with _dead() as listener:
        url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        dead = endpoint.model_copy(update={"url": url, "deadline_s": 1.0})
        assert isinstance(_refused(client, dead), SourceTimeout)
        listener.settimeout(10)
        connection, _ = listener.accept()
        with connection:
            assert _hung_up(connection)


def test_a_service_that_hangs_at_the_end_of_the_session_is_left(
    server: RedfishServer, endpoint: RedfishEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redfish, "CLOSE_S", 0.5)
    client = RedfishClient()
    client.get("node", endpoint, SYSTEM)
    (session,) = server.tokens.values()
    server.behave[session] = "hang"
    began_s = time.monotonic()
    client.close()
    assert time.monotonic() - began_s < 5
    assert server.asked(session, "DELETE") == 1


def test_a_client_that_was_never_used_closes() -> None:
    RedfishClient().close()


def test_no_secret_gets_into_a_log(
    client: RedfishClient, server: RedfishServer, endpoint: RedfishEndpoint, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        client.get("node", endpoint, SYSTEM)
        _refused(client, endpoint, "/redfish/v1/none")
    (token,) = server.tokens
    assert PASSWORD not in caplog.text
    assert token not in caplog.text


def test_plain_http_is_for_this_machine_only(client: RedfishClient, tmp_path: Path) -> None:
    with RedfishServer(dict(DOCUMENTS), None) as server:
        here = RedfishEndpoint(url=server.url, credentials_file=str(_login(tmp_path)))
        assert client.get("node", here, SYSTEM)["Id"] == "1"
    with pytest.raises(ValueError, match="never sent over plain http"):
        RedfishEndpoint(url="http://bmc.example", credentials_file="/f", tls_verify=False)
    with pytest.raises(ValueError, match="proves nothing"):
        RedfishEndpoint(url="http://bmc.example")
    for url in ("https://u:p@bmc.example", "https://bmc.example?x", "ftp://bmc.example"):
        with pytest.raises(ValueError, match="pattern"):
            RedfishEndpoint(url=url)
    unchecked = here.model_copy(update={"url": "http://192.0.2.1"})
    assert "never sent over plain http" in str(_refused(client, unchecked))
