"""The operator socket: who may reach it, what it refuses, that an order is on the disk when answered."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from desk_kit import CHECKS, Desk
from server_kit import Served, main_loop, serve

from agent import admin
from agent.admin_client import AdminClient
from agent.errors import DaemonError
from agent.holds import Holds
from agent.listening import bind_unix
from agent.model import Finding, Result, ServingClass, Snapshot, Verdict


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with main_loop() as loop:
        yield Desk(tmp_path, loop)


@pytest.fixture
def served(desk: Desk, tmp_path: Path) -> Iterator[Served]:
    # ENGINE health has no check here, so that the gates open on two results.
    desk.say(Verdict.PASS)
    with serve(desk.publisher, tmp_path, desk.office()) as servers:
        yield servers


def on_disk(desk: Desk) -> dict[str, Any]:
    return dict(json.loads(desk.store.path.read_text()))


def test_the_socket_is_never_open_to_the_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[int] = []
    real_listen = socket.socket.listen

    class Watched(socket.socket):
        def bind(self, address: Any) -> None:
            super().bind(address)
            modes.append(stat.S_IMODE(Path(address).stat().st_mode))

        def listen(self, backlog: int = 0) -> None:  # type: ignore[override]
            modes.append(stat.S_IMODE(Path(self.getsockname()).stat().st_mode))
            real_listen(self, backlog)

    monkeypatch.setattr("agent.listening.socket.socket", Watched)
    old = os.umask(0)
    try:
        with bind_unix(tmp_path / "admin.sock"):
            assert modes == [0o660, 0o660]
            assert os.umask(0) == 0, "the umask is as it was"
    finally:
        os.umask(old)


def test_a_dead_agents_socket_is_replaced(tmp_path: Path) -> None:
    bind_unix(tmp_path / "admin.sock").close()
    bind_unix(tmp_path / "admin.sock").close()


def test_drain_and_resume_are_on_disk_and_in_the_journal(desk: Desk, served: Served) -> None:
    answer = served.order("/gate/drain", engine="glm", reason="switch work")
    assert (answer.status_code, answer.json()) == (
        200,
        {"said": ["glm: draining", "reopen with: nodegate gate resume glm --reason TEXT"]},
    )
    assert on_disk(desk)["engines"]["glm"]["drain"]["reason"] == "switch work"
    assert desk.state("kimi") == "serving"
    assert desk.notes.operator == [("gate drain glm", "switch work", f"uid {os.getuid()}")]
    again = served.order("/gate/drain", engine="glm", reason="x")
    assert (again.status_code, again.json()["error"]) == (409, "cannot drain glm: its gate is draining")
    both = served.order("/gate/drain", reason="all")
    assert both.json()["said"] == [
        "kimi: draining",
        "cannot drain glm: its gate is draining",
        "reopen with: nodegate gate resume --reason TEXT",
    ]
    assert served.order("/gate/resume", reason="done").json()["said"] == ["glm: serving", "kimi: serving"]
    assert on_disk(desk)["engines"]["glm"]["drain"] is None


def test_maintenance_is_held_and_ended(desk: Desk, served: Served) -> None:
    assert served.order("/maintenance/enter", reason="pump").status_code == 200
    assert on_disk(desk)["maintenance"]["reason"] == "pump"
    assert {desk.state("glm"), desk.state("kimi")} == {"draining"}
    assert served.order("/maintenance/enter", reason="pump").status_code == 409
    assert served.order("/maintenance/exit", reason="done").status_code == 200
    assert on_disk(desk)["maintenance"] is None
    assert desk.state("glm") == "serving"
    refused = served.order("/maintenance/exit", reason="done")
    assert (refused.status_code, refused.json()["error"]) == (409, "the node is not in maintenance")


def test_force_open_has_an_end_and_shows(desk: Desk, served: Served) -> None:
    desk.say(Verdict.FAIL)
    assert desk.state("glm") == "failed"
    for wrong in ({}, {"for_s": 0}, {"for_s": 1e9}):
        assert served.order("/gate/force-open", engine="glm", reason="x", **wrong).status_code == 422
    waivable = {"gpu.ecc": CHECKS["gpu.ecc"]}
    desk.gates.checks = waivable
    assert served.order("/gate/force-open", engine="glm", reason="all is lost", for_s=60).status_code == 200
    assert desk.state("glm") == "degraded"
    gate = served.ask("/status").json()["gates"][0]
    assert gate["forced"] and gate["force_open"]["reason"] == "all is lost"
    assert served.ask("/readyz/glm").headers["x-nodegate-forced-open"].endswith("all is lost")
    assert served.ask("/readyz/kimi").status_code == 503


def test_force_open_does_not_override_a_lost_gpu(desk: Desk, served: Served) -> None:
    desk.say(Verdict.FAIL)
    assert served.order("/gate/force-open", engine="glm", reason="x", for_s=60).json()["said"] == [
        "glm: failed"
    ]


def test_waivers(desk: Desk, served: Served) -> None:
    desk.say(Verdict.FAIL)
    body = {"subject": "node", "for_s": 60, "reason": "known"}
    refused = served.order("/waive", check="gpu.lost", **body).json()["error"]
    assert refused.startswith("gpu.lost cannot be waived: do what")
    assert served.order("/waive", check="nope", **body).status_code == 404
    unknown = served.order("/waive", check="gpu.ecc", **{**body, "subject": "gpu9"})
    assert unknown.json()["error"] == "gpu.ecc has no subject 'gpu9'; it has node"
    assert served.order("/waive", check="gpu.ecc", **body).status_code == 200
    assert [w["check"] for w in on_disk(desk)["waivers"]] == ["gpu.ecc"]
    desk.on_loop(desk.gates.evaluate)
    assert [b.check for b in desk.gates.records["glm"].blockers] == ["gpu.lost"]
    assert served.order("/waive", check="gpu.ecc", **{**body, "for_s": 0}).status_code == 200
    assert on_disk(desk)["waivers"] == []


def test_clear_forgets_this_gates_faults(desk: Desk, served: Served) -> None:
    desk.say(Verdict.FAIL)
    assert served.order("/gate/clear", engine="glm", reason="GPU reset").status_code == 200
    assert set(desk.forgotten) == {("gpu.lost", "node"), ("gpu.ecc", "node")}


def test_engines_that_nodegate_does_not_run_cannot_be_restarted(served: Served) -> None:
    answer = served.order("/engine/restart", engine="glm", reason="x")
    assert (answer.status_code, "does not run this engine" in answer.text) == (409, True)


def test_an_engine_is_not_stopped_for_a_launch_that_would_fail(desk: Desk, served: Served) -> None:
    finding = Finding("engine:glm", Verdict.FAIL, "--swap-space: is gone; remove it")
    fail, shown = Verdict.FAIL, desk.gates.shown
    assert shown is not None
    result = Result("engine.flags", finding, fail, fail, ServingClass.SOFT, shown.mono_s, 0.0, 600.0)
    results = {**shown.results, ("engine.flags", "engine:glm"): result}
    desk.on_loop(lambda: desk.gates.evaluate(replace(shown, results=results)))
    answer = served.order("/engine/restart", engine="glm", reason="x")
    assert answer.status_code == 409
    assert answer.json()["error"].startswith(
        "glm is not stopped, for its launch would fail: engine.flags: --swap"
    )
    assert desk.state("glm") == "serving"


REFUSED = [
    ("/gate/drain", b"", 422),
    ("/gate/drain", b"{", 422),
    ("/gate/drain", b"[]", 422),
    ("/gate/drain", b"null", 422),
    ("/gate/drain", b"{}", 422),
    ("/gate/drain", b'{"reason": ""}', 422),
    ("/gate/drain", b'{"reason": "  "}', 422),
    ("/gate/drain", b'{"reason": "a\\nb"}', 422),
    ("/gate/drain", b'{"reason": "a\\u2028b"}', 422),
    ("/gate/drain", b'{"reason": "a\\u009b31mb"}', 422),
    ("/gate/drain", b'{"reason": "a\\u202eb"}', 422),
    ("/gate/drain", b'{"reason": "a\\ud800b"}', 422),
    ("/gate/drain", b'{"reason": "x", "force": true}', 422),
    ("/gate/drain", b'{"reason": "x", "engine": "none"}', 404),
    ("/gate/drain", b'{"reason": 5}', 422),
    ("/gate/force-open", b'{"reason": "x", "for_s": NaN}', 422),
    ("/gate/force-open", b'{"reason": "x", "for_s": Infinity}', 422),
    ("/gate/explode", b'{"reason": "x"}', 422),
    ("/engine/restart", b'{"reason": "x"}', 422),
    ("/nothing", b"{}", 404),
    ("/gate/drain", b"[" * 50_000, 4),
    ("/gate/drain", b'{"reason": "' + b"x" * 200_000 + b'"}', 413),
    ("/gate/drain", b"\xff\xfe\x00", 4),
]


@pytest.mark.parametrize(("path", "raw", "status"), REFUSED, ids=range(len(REFUSED)))
def test_a_bad_order_gets_4xx_and_one_line_and_changes_nothing(
    desk: Desk, served: Served, path: str, raw: bytes, status: int
) -> None:
    answer = served.operator("POST", path, raw)
    assert answer.status_code == status or answer.status_code // 100 == status
    error = answer.json()["error"]
    assert error and "\n" not in error
    assert desk.state("glm") == "serving"
    assert not desk.store.path.exists()
    assert not desk.notes.operator


def test_raw_garbage_on_the_socket_does_no_harm(served: Served) -> None:
    for raw in (
        b"\x00\xff" * 5000,
        b"GET",
        b"POST /gate/drain HTTP/1.1\r\nhost: x\r\ncontent-length: 99\r\n\r\n{",
    ):
        with socket.socket(socket.AF_UNIX) as peer, contextlib.suppress(ConnectionError):
            peer.connect(str(served.socket))
            peer.sendall(raw)
    assert served.operator("GET", "/status").status_code == 200


def test_a_full_disk_refuses_what_opens_and_lets_what_closes_count(desk: Desk, served: Served) -> None:
    desk.store.path.mkdir()
    drained = served.order("/gate/drain", engine="glm", reason="x")
    assert (drained.status_code, desk.state("glm")) == (507, "draining")
    assert "it is in effect, but a restart" in drained.json()["error"]
    resumed = served.order("/gate/resume", engine="glm", reason="x")
    assert (resumed.status_code, desk.state("glm")) == (507, "draining")
    assert "nothing was changed" in resumed.json()["error"]


def test_a_main_loop_that_hangs_is_told_in_time(
    desk: Desk, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin, "ORDER_DEADLINE_S", 0.3)
    release = threading.Event()
    desk.loop.call_soon_threadsafe(release.wait, 60)
    try:
        answer = served.order("/gate/drain", engine="glm", reason="x")
        assert (answer.status_code, "main loop does not answer" in answer.text) == (503, True)
    finally:
        release.set()


@pytest.fixture
def left_on_disk(desk: Desk) -> Iterator[Callable[[], Holds]]:
    """The keeper runs; called, it ends, and the holds are as a restarted agent would find them."""
    keeper = desk.gates.keeper
    running = asyncio.run_coroutine_threadsafe(keeper.run(), desk.loop)

    def end() -> Holds:
        running.cancel()
        asyncio.run_coroutine_threadsafe(keeper.close(), desk.loop).result(30)
        return desk.store.load(desk.gates.boot_id)

    yield end
    running.cancel()


def test_an_order_given_up_while_the_disk_is_slow_leaves_the_hold_on_it(
    desk: Desk, served: Served, monkeypatch: pytest.MonkeyPatch, left_on_disk: Callable[[], Holds]
) -> None:
    assert served.order("/maintenance/enter", reason="work on the loop").status_code == 200
    monkeypatch.setattr(admin, "ORDER_DEADLINE_S", 0.3)
    release = threading.Event()
    save = desk.store.save

    def slowly(holds: Holds) -> None:
        save(holds)
        release.wait(60)

    monkeypatch.setattr(desk.store, "save", slowly)
    try:
        assert served.order("/maintenance/exit", reason="done").status_code == 503
    finally:
        release.set()
    assert desk.gates.maintenance is not None
    assert left_on_disk().maintenance == desk.gates.maintenance


def test_an_exit_that_the_agents_end_overtakes_leaves_the_hold_on_the_disk(
    desk: Desk, served: Served, monkeypatch: pytest.MonkeyPatch, left_on_disk: Callable[[], Holds]
) -> None:
    assert served.order("/maintenance/enter", reason="work on the loop").status_code == 200
    save = desk.store.save

    def as_the_agent_ends(holds: Holds) -> None:
        save(holds)
        desk.on_loop(desk.gates.shut_down)

    monkeypatch.setattr(desk.store, "save", as_the_agent_ends)
    answer = served.order("/maintenance/exit", reason="done")
    assert (answer.status_code, "shutting down" in answer.text) == (409, True)
    monkeypatch.setattr(desk.store, "save", save)
    assert left_on_disk().maintenance is not None


def test_history_and_logs(served: Served) -> None:
    entries = served.operator("GET", "/history?since_s=60&limit=5").json()["entries"]
    assert entries == [{"kind": "mark", "since": 60, "limit": 5, "part": None}]
    (of_part,) = served.operator("GET", "/history?since_s=60&part=GPU-1234").json()["entries"]
    assert of_part["part"] == "GPU-1234"
    assert served.operator("GET", "/engine/logs?engine=glm&lines=3").json() == {"lines": ["a line"]}
    for path in ("/history?since_s=x", "/history?limit=0", "/engine/logs", "/engine/logs?engine=none"):
        assert served.operator("GET", path).status_code in (404, 422)


@pytest.mark.parametrize("observed", [math.nan, -math.inf, "\ud800", 10**400])
def test_odd_values_in_a_result_hide_no_status(desk: Desk, served: Served, observed: str | float) -> None:
    def strictly(text: str) -> Any:
        return json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))

    finding = Finding("node", Verdict.FAIL, "text of a device: \udcff", observed, observed)
    bad = Verdict.FAIL
    result = Result("gpu.ecc", finding, bad, bad, ServingClass.HARD, 0.0, 0.0, 600.0)
    snapshot = Snapshot("bench", "h", True, "b", 0.0, 0.0, {("gpu.ecc", "node"): result})
    current = desk.publisher.current
    assert current is not None
    desk.publisher.publish(replace(current, snapshot=snapshot))
    for answer in (served.operator("GET", "/status"), served.ask("/status")):
        assert (answer.status_code, strictly(answer.text)["results"][0]["check"]) == (200, "gpu.ecc")
    assert (served.ask("/").status_code, served.ask("/metrics").status_code) == (200, 200)


def test_the_client_says_what_is_wrong_in_one_line(served: Served, tmp_path: Path) -> None:
    client = AdminClient(served.socket.parent)
    assert client.get("/status")["node"] == "bench"
    with pytest.raises(DaemonError, match="there is no engine 'none'"):
        client.post("/gate/drain", {"engine": "none", "reason": "x"})
    with pytest.raises(DaemonError, match="reason: write one line of printable text"):
        client.post("/gate/drain", {"reason": "a\tb"})
    with pytest.raises(DaemonError, match="not valid text"):
        client.post("/gate/drain", {"reason": "\udcff"})
    with pytest.raises(DaemonError, match=r"no daemon answers at .*admin\.sock; start it with"):
        AdminClient(tmp_path / "none").get("/status")


def test_the_client_is_not_fooled_by_another_server(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "admin.sock"))
        listener.listen()

        def greet() -> None:
            for _ in range(2):  # the client knocks before it asks
                peer, _ = listener.accept()
                with peer:
                    if peer.recv(4096):
                        peer.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello")

        thread = threading.Thread(target=greet)
        thread.start()
        with pytest.raises(DaemonError, match="not a nodegate daemon"):
            AdminClient(tmp_path).get("/status")
        thread.join(30)


def test_orders_of_checklists_are_looked_at_before_they_count(desk: Desk, served: Served) -> None:
    client = AdminClient(desk.folder)
    client.post("/maintenance/enter", {"reason": "fan swap"})
    told = client.get("/checklist/whereabouts")
    assert told["state_dir"] == str(desk.folder.resolve()) and told["replay"] is None
    run_id = "20261130T081500Z-post-maintenance"
    for body, words in (
        ({"run_id": run_id, "soak_s": 180}, "No such file"),
        ({"run_id": "../../etc/passwd", "soak_s": 180}, "run_id: "),
        ({"run_id": run_id, "soak_s": -1}, "soak_s: "),
        ({"run_id": run_id}, "soak_s: Field required"),
    ):
        with pytest.raises(DaemonError, match=words):
            client.post("/checklist/passed", body)
    assert on_disk(desk)["maintenance"]["reason"] == "fan swap"
    said = client.post("/checklist/failed", {"run_id": run_id, "step": "coolant", "why": "flow 18 L/min"})[
        "said"
    ]
    assert said == ["maintenance: stays in force"]
    assert (
        on_disk(desk)["maintenance"]["reason"] == f"fan swap [run {run_id} failed at coolant: flow 18 L/min]"
    )
    client.post("/maintenance/exit", {"reason": "by hand"})
    client.post("/checklist/failed", {"run_id": run_id, "step": "gate", "why": "soak failed"})
    assert on_disk(desk)["maintenance"]["reason"] == f"run {run_id} failed at gate: soak failed"
    commands = [command for command, _, _ in desk.notes.operator]
    assert commands == ["maintenance enter", "maintenance stays", "maintenance exit", "maintenance enter"]


@pytest.mark.parametrize(
    ("at", "may"),
    [({}, False), ({"step": "gate"}, True), ({"verdict": "FAIL"}, True), ({"name": "before-traffic"}, True),
     ({"name": "of-a-file"}, False)],
)  # fmt: skip
def test_nothing_opens_beside_a_run(desk: Desk, served: Served, at: dict[str, str], may: bool) -> None:
    """An engine that starts would share the GPUs with a load, and each would spoil the other."""
    client, store = AdminClient(desk.folder), desk.checklists.store
    run_id = "20261130T081500Z-post-maintenance"
    store.begin(run_id)
    told = {"name": "post-maintenance", "run_id": run_id, "step": "load", "verdict": None, **at}
    (store.folder / run_id / "progress.json").write_text(json.dumps(told))
    (store.folder / "current").write_text(run_id)
    orders: tuple[tuple[str, dict[str, str]], ...] = (
        ("/engine/stop", {"engine": "glm"}), ("/engine/start", {"engine": "glm"}),
        ("/maintenance/enter", {}), ("/maintenance/exit", {}),
    )  # fmt: skip
    with store.lock():
        for path, body in orders:
            if may or not path.endswith(("start", "exit")):
                client.post(path, {"reason": "r", **body})
                continue
            with pytest.raises(DaemonError, match=r"is under way .* beside it; wait for its end"):
                client.post(path, {"reason": "r", **body})
    if not may:
        client.post("/maintenance/exit", {"reason": "nobody runs it any more"})
