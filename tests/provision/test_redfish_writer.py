"""The Redfish client that writes, against a function as service (SIMULATED) with a clock of its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from agent.provision.redfish_task import TaskProgress
from agent.provision.redfish_words import (
    Conflict,
    LoginRefused,
    NoAnswer,
    RedfishError,
    Refused,
    TaskFailed,
    TaskLate,
    TaskLost,
    Uncertain,
    Untrusted,
)
from agent.provision.redfish_writer import RedfishWriter

R = "/redfish/v1"
SESSIONS = f"{R}/SessionService/Sessions"
BIOS = f"{R}/Systems/1/Bios/Settings"
PASSWORD = "s3cret-Pa55word"
Answer = httpx.Response | Exception


class Service:
    """Answers by method and path from lists; the last answer of a list stays. `now_s` is the clock."""

    def __init__(self, **script: Any) -> None:
        self.script: dict[tuple[str, str], list[Any]] = {
            ("GET", f"{R}/"): [ok({"Links": {"Sessions": {"@odata.id": SESSIONS}}})],
            ("POST", SESSIONS): [
                lambda: httpx.Response(
                    201, json={"@odata.id": f"{SESSIONS}/1"}, headers={"X-Auth-Token": "token-1"}
                )
            ],
            ("DELETE", f"{SESSIONS}/1"): [ok(None, 204)],
        }
        self.seen: list[tuple[str, str]] = []
        self.requests: list[httpx.Request] = []
        self.now_s = 1000.0
        self.waits: list[str] = []

    def on(self, method: str, path: str, *answers: Any) -> Service:
        self.script[(method, path)] = list(answers)
        return self

    def asked(self, method: str, path: str) -> int:
        return self.seen.count((method, path))

    def handle(self, request: httpx.Request) -> httpx.Response:
        key = (request.method, request.url.raw_path.decode())
        self.seen.append(key)
        self.requests.append(request)
        answers = self.script.get(key)
        if answers is None:
            return httpx.Response(404, json={"error": {"message": "no such resource"}})
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        answer = answer() if callable(answer) else answer
        if isinstance(answer, Exception):
            raise answer
        return answer

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def writer(self, **how: Any) -> RedfishWriter:
        given = {
            "username": "operator",
            "password": PASSWORD,
            "mono_s": lambda: self.now_s,
            "sleep": self.sleep,
            "on_wait": self.waits.append,
            "transport": _Wire(self),
        }
        return RedfishWriter("https://bmc.example", **{**given, **how})


class _Wire(httpx.AsyncBaseTransport):
    """Answers that are read from a stream, as those of a network are."""

    def __init__(self, service: Service) -> None:
        self.service = service

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await request.aread()
        made = self.service.handle(request)
        return httpx.Response(made.status_code, headers=made.headers, stream=httpx.ByteStream(made.content))


def ok(document: Any = None, status: int = 200, **headers: str) -> Callable[[], httpx.Response]:
    return lambda: (
        httpx.Response(status, json=document, headers=headers)
        if document is not None
        else (httpx.Response(status, headers=headers))
    )


@pytest.fixture
def service() -> Iterator[Service]:
    yield Service()


def test_a_document_comes_with_its_etag_and_the_session_ends(service: Service) -> None:
    service.on("GET", BIOS, ok({"Attributes": {}}, ETag='"7"'))
    with service.writer() as bmc:
        assert bmc.get(BIOS) == ({"Attributes": {}}, '"7"')
        assert bmc.get(BIOS).etag == '"7"'
    assert service.asked("POST", SESSIONS) == 1
    assert service.seen[-1] == ("DELETE", f"{SESSIONS}/1")
    assert service.requests[2].headers["x-auth-token"] == "token-1"


@pytest.mark.parametrize(
    "why",
    [
        {"root": ok({})},
        {"login": ok({"error": {}}, 404)},
        {
            "login": ok(
                {"error": {"@Message.ExtendedInfo": [{"MessageId": "Base.1.8.SessionLimitExceeded"}]}}, 400
            )
        },
    ],
)
def test_a_service_without_sessions_gets_basic(service: Service, why: dict[str, Any]) -> None:
    service.on("GET", BIOS, ok({"a": 1}))
    if "root" in why:
        service.on("GET", f"{R}/", why["root"])
    else:
        service.on("POST", SESSIONS, why["login"])
    with service.writer() as bmc:
        bmc.get(BIOS)
    assert service.requests[-1].headers["authorization"].startswith("Basic ")


def test_a_session_that_has_ended_is_opened_again_once(service: Service) -> None:
    service.on("GET", BIOS, ok({"a": 1}), ok({}, 401), ok({"a": 2}))
    with service.writer() as bmc:
        bmc.get(BIOS)
        assert bmc.get(BIOS).document == {"a": 2}
    assert service.asked("POST", SESSIONS) == 2


def test_a_refused_login_is_told_at_once_and_not_tried_again(service: Service) -> None:
    echo = {"error": {"message": f"operator:{PASSWORD} is wrong"}}
    service.on("POST", SESSIONS, ok(echo, 401))
    with service.writer() as bmc, pytest.raises(LoginRefused) as told:
        bmc.get(BIOS)
    assert service.asked("POST", SESSIONS) == 1
    assert PASSWORD not in f"{told.value}{told.value!r}{bmc!r}{vars(told.value)}"
    assert "nodegate_bmc_password" in str(told.value)


def test_a_bmc_that_is_busy_for_five_minutes_is_survived(service: Service) -> None:
    service.on("GET", BIOS, lambda: busy(service, until_s=1300.0))
    with service.writer() as bmc:
        assert bmc.get(BIOS).document == {"a": 1}
    assert service.now_s >= 1300.0
    assert any("HTTP 503" in line for line in service.waits)


def test_past_the_patience_it_is_one_line(service: Service) -> None:
    service.on("PATCH", BIOS, lambda: busy(service, until_s=9999.0))
    with service.writer() as bmc, pytest.raises(NoAnswer) as told:
        bmc.patch(BIOS, {"Attributes": {"A": 1}})
    text = str(told.value)
    assert "\n" not in text and "HTTP 503" in text and "nodegate_bmc_patience_s" in text and "360 s" in text


def busy(service: Service, until_s: float) -> httpx.Response:
    if service.now_s < until_s:
        return httpx.Response(503, json={}, headers={"Retry-After": "30"})
    return httpx.Response(200, json={"a": 1})


def test_a_login_that_breaks_leaves_no_doubt_about_what_was_not_asked(service: Service) -> None:
    reset = f"{R}/Systems/1/Actions/ComputerSystem.Reset"
    login = service.script[("POST", SESSIONS)][0]
    service.on("POST", SESSIONS, httpx.ReadError("reset"), login)
    service.on("POST", reset, ok(None, 204))
    with service.writer() as bmc:
        assert bmc.post(reset, {"ResetType": "GracefulRestart"}).status == 204
    assert service.asked("POST", reset) == 1


def test_a_login_has_time_however_long_the_bmc_was_away(service: Service) -> None:
    """Looks with a small patience, as while a BMC restarts, must not use up that of the login."""
    given: list[float] = []
    service.on("POST", SESSIONS, httpx.ReadError("reset"))
    with service.writer() as bmc:
        sent = bmc._send
        bmc._send = lambda request: given.append(request.timeout_s) or sent(request)  # type: ignore
        for _ in range(30):
            with pytest.raises(NoAnswer):
                bmc.get(BIOS, patience_s=20.0)
    assert service.now_s > 1500 and max(given[-10:]) > 10


def test_retry_after_is_honoured(service: Service) -> None:
    service.on("GET", BIOS, ok({}, 503, **{"Retry-After": "42"}), ok({"a": 1}))
    with service.writer() as bmc:
        bmc.get(BIOS)
    assert service.now_s == 1042.0


@pytest.mark.parametrize(
    "failure", [httpx.ConnectError("refused"), httpx.ReadError("reset"), httpx.RemoteProtocolError("x")]
)
def test_a_read_is_repeated_whatever_happened(service: Service, failure: Exception) -> None:
    service.on("GET", BIOS, failure, ok({}, 500), ok({"a": 1}))
    with service.writer() as bmc:
        assert bmc.get(BIOS).document == {"a": 1}


def test_an_answer_without_end_is_not_asked_for_again_and_again(service: Service) -> None:
    service.on("GET", BIOS, ok({"a": "x" * 8_400_000}))
    with service.writer() as bmc, pytest.raises(NoAnswer, match="more than 8388608 bytes"):
        bmc.get(BIOS)
    assert service.now_s < 1100


def test_an_error_that_stays_is_not_waited_for_as_long_as_a_busy_bmc(service: Service) -> None:
    service.on("GET", BIOS, ok({}, 500))
    with service.writer() as bmc, pytest.raises(NoAnswer, match="HTTP 500"):
        bmc.get(BIOS)
    assert service.now_s < 1100


def test_an_action_is_repeated_only_if_it_was_not_done(service: Service) -> None:
    reset = f"{R}/Systems/1/Actions/ComputerSystem.Reset"
    service.on("POST", reset, httpx.ConnectError("refused"), ok({}, 503), ok(None, 204))
    with service.writer() as bmc:
        assert bmc.post(reset, {"ResetType": "GracefulRestart"}).status == 204
    service.on("POST", reset, httpx.ReadError("reset"), ok(None, 204))
    with service.writer() as bmc, pytest.raises(Uncertain, match="run the play again"):
        bmc.post(reset, {"ResetType": "GracefulRestart"})
    assert service.asked("POST", reset) == 4


def test_a_change_whose_answer_was_lost_is_read_before_it_is_made_again(service: Service) -> None:
    def settled(document: Any) -> bool:
        return bool(document["Attributes"] == {"A": "1"})

    service.on("PATCH", BIOS, httpx.ReadError("reset"), ok({}))
    service.on("GET", BIOS, ok({"Attributes": {"A": "1"}}, ETag='"8"'))
    with service.writer() as bmc:
        bmc.patch(BIOS, {"Attributes": {"A": "1"}}, '"7"', settled=settled)
    assert service.asked("PATCH", BIOS) == 1

    service.on("PATCH", BIOS, httpx.ReadError("reset"), ok({}))
    service.on("GET", BIOS, ok({"Attributes": {}}, ETag='"8"'))
    with service.writer() as bmc:
        bmc.patch(BIOS, {"Attributes": {"A": "1"}}, '"7"', settled=settled)
    patches = [each for each in service.requests if each.method == "PATCH"]
    assert [each.headers["if-match"] for each in patches] == ['"7"', '"7"', '"8"']


def test_a_weak_etag_is_tried_as_a_strong_one_before_it_is_a_conflict(service: Service) -> None:
    service.on("PATCH", BIOS, ok({}, 412), ok({}))
    with service.writer() as bmc:
        bmc.patch(BIOS, {}, 'W/"7"')
    service.on("PATCH", BIOS, ok({}, 412))
    with service.writer() as bmc, pytest.raises(Conflict, match="it has changed since"):
        bmc.patch(BIOS, {}, '"7"')


def test_the_services_own_words_are_one_line_without_the_password(service: Service) -> None:
    info = [
        {"MessageId": "Base.1.8.PropertyValueNotInList", "Message": f"The value {PASSWORD} is not\nallowed.",
         "RelatedProperties": ["#/Attributes/NumaNodes"], "Severity": "Warning"},
        {"MessageId": "Base.1.8.Success", "Message": "fine", "Severity": "OK"},
    ]  # fmt: skip
    service.on("PATCH", BIOS, ok({"error": {"@Message.ExtendedInfo": info}}, 400))
    with service.writer() as bmc, pytest.raises(Refused) as told:
        bmc.patch(BIOS, {})
    assert told.value.status == 400
    assert told.value.messages == ("NumaNodes: The value ******** is not allowed",)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    "link", ["https://evil.example/redfish/v1/Systems/2", "/redfish/v1/../etc", "/elsewhere"]
)
def test_a_redirect_stays_on_the_service(service: Service, link: str) -> None:
    service.on("GET", BIOS, ok({}, 308, Location=link))
    with service.writer() as bmc, pytest.raises(RedfishError, match=r"redirects elsewhere|no path|404"):
        bmc.get(BIOS)
    assert {request.url.host for request in service.requests} == {"bmc.example"}


def test_plain_http_is_for_this_machine_alone() -> None:
    with pytest.raises(Untrusted, match="https"):
        RedfishWriter("http://bmc.example", "a", "b")
    with pytest.raises(Untrusted, match="https"):
        RedfishWriter("http://bmc.example")
    with pytest.raises(RedfishError, match="nodegate_bmc_ca_file"):
        RedfishWriter("https://bmc.example", ca_file="/does/not/exist.pem")
    with pytest.raises(RedfishError, match="no URL"):
        RedfishWriter("bmc.example")
    RedfishWriter("http://127.0.0.1:1", "a", "b").close()


TASK = f"{R}/TaskService/Tasks/7"


def test_a_task_is_followed_to_its_end(service: Service) -> None:
    running = {"TaskState": "Running", "PercentComplete": 40}
    service.on(
        "GET",
        TASK,
        ok({}, 202),
        ok(running, 202),
        ok(running),
        ok({"TaskState": "Completed", "TaskStatus": "OK"}),
    )
    told: list[TaskProgress] = []
    with service.writer() as bmc:
        assert bmc.task_wait(TASK, 600, told.append)["TaskState"] == "Completed"
    assert TaskProgress("Running", 40, "") in told
    assert len(told) == 3


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        (ok({"TaskState": "Exception", "Messages": [{"Message": "wrong board"}]}), TaskFailed, "wrong board"),
        (ok({"TaskState": "Completed", "TaskStatus": "Critical"}), TaskFailed, "no reason"),
        (ok({}, 404), TaskLost, "no longer knows"),
        (ok({"TaskState": "Running", "PercentComplete": 99}), TaskLate, "99 %"),
    ],
)  # fmt: skip
def test_a_task_that_does_not_end_well(
    service: Service, answer: Any, error: type[TaskFailed], words: str
) -> None:
    service.on("GET", TASK, answer)
    with service.writer() as bmc, pytest.raises(error, match=words):
        bmc.task_wait(TASK, 600)


def test_a_file_goes_after_its_parameters(service: Service, tmp_path: Path) -> None:
    image = tmp_path / "bios.bin"
    image.write_bytes(b"\0image")
    push = f"{R}/UpdateService/upload"
    service.on("POST", push, ok({"@odata.id": TASK}, 202, Location=f"https://10.0.0.9{TASK}"))
    with service.writer() as bmc:
        reply = bmc.post_multipart(push, {"Targets": []}, image, 60)
    assert (reply.status, reply.location) == (202, TASK)
    body = service.requests[-2].content
    assert body.index(json.dumps({"Targets": []}).encode()) < body.index(b"\0image")
    assert b'name="UpdateFile"; filename="bios.bin"' in body
    with service.writer() as bmc, pytest.raises(NoAnswer, match=r"missing\.bin"):
        bmc.post_multipart(push, {}, tmp_path / "missing.bin", 60)


def test_a_resource_that_is_gone_needs_no_deleting(service: Service) -> None:
    with service.writer() as bmc:
        assert bmc.delete(f"{R}/x").status == 404


def test_a_login_is_given_whole_or_not_at_all(service: Service) -> None:
    with pytest.raises(RedfishError, match="set nodegate_bmc_password"):
        service.writer(password=None)
    service.on("GET", BIOS, ok({}, 401))
    with (
        service.writer(username=None, password=None) as bmc,
        pytest.raises(LoginRefused, match="wants a login"),
    ):
        bmc.get(BIOS)
    with (
        service.writer(password=12345) as bmc,
        pytest.raises(LoginRefused, match="refuses user and password"),
    ):
        bmc.get(BIOS)
