"""A node that serves is not disturbed, and is given back only when it is proven."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from nodegate_apply.agent_status import Proof, ask, judge, serving, wait_for
from nodegate_apply.guard import MARK, Guard
from nodegate_apply.host import HostError, Output


def status(ready=True, mode="manage", pid=7, **more):
    gate = {"engine": "main", "ready": ready, "state": "serving", "reason": "", "process": {"pid": pid}}
    return {"profile_hash": "h", "mode": mode, "gates": [gate], "results": [result()], "holds": {}, **more}


def result(verdict="PASS", **more):
    action = {"kind": "apply_play", "hint": "Set it.", "play": "gpu"}
    base = {
        "check": "gpu.power_limit",
        "subject": "gpu3",
        "verdict": verdict,
        "summary": "400 W",
        "action": action,
    }
    return {**base, "observed": 400, "expected": 700, "waived": False, "shadow": False, **more}


class FakeHost:
    def __init__(self):
        self.orders = []
        self.agent = "inactive"

    def has(self, program):
        return program == "systemctl"

    def run(self, argv):
        assert argv == ["systemctl", "is-active", "nodegate.service"]
        return Output(0, f"{self.agent}\n", "")

    def must(self, argv, timeout_s):
        self.orders.append(argv[1:])
        return ""


def guard(*answers):
    """A guard whose agent gives these answers in turn, the last for ever; its host; its clock."""
    host, left, clock = FakeHost(), list(answers), [0.0]

    def step(seconds):
        clock[0] += seconds

    made = Guard(
        host,
        lambda: left.pop(0) if len(left) > 1 else left[0],
        "nodegate",
        mono_s=lambda: clock[0],
        sleep=step,
    )
    return made, host


def test_a_serving_node_is_refused():
    made, host = guard(status())
    with pytest.raises(HostError, match=r"serves \(main\).*nodegate_drain=true"):
        made.take(False, "reboot", 10, check=False)
    assert host.orders == []


@pytest.mark.parametrize("answer", [None, status(ready=False)])
def test_nothing_is_done_where_nothing_serves(answer):
    made, host = guard(answer)
    assert made.take(True, "reboot", 10, check=False) == "" and host.orders == []


def test_an_agent_that_runs_and_is_silent_proves_nothing():
    made, host = guard(None)
    host.agent = "active"
    with pytest.raises(HostError, match=r"runs and does not answer.*stop the agent"):
        made.take(True, "reboot", 10, check=False)
    late, host = guard(None, None, status())
    host.agent = "active"
    with pytest.raises(HostError, match=r"serves \(main\)"):
        late.take(False, "reboot", 10, check=False)


def test_a_drain_waits_until_the_engine_is_gone():
    made, host = guard(status(), status(ready=False), status(ready=False), status(ready=False, pid=None))
    assert made.take(True, "reboot", 10, check=False) == "drained main"
    assert [order[:2] for order in host.orders] == [["maintenance", "enter"]]
    assert host.orders[0][-1] == MARK + "reboot"


def test_check_mode_orders_nothing():
    made, host = guard(status())
    assert made.take(True, "reboot", 10, check=True) == "would drain main" and host.orders == []


def test_an_engine_that_does_not_end_is_told():
    made, _host = guard(status(), status(ready=False))
    with pytest.raises(HostError, match="main still runs 5 s after the drain began"):
        made.take(True, "reboot", 5, check=False)


def test_only_our_own_maintenance_is_held_and_given_back():
    assert guard(status(holds={"maintenance": {"reason": MARK + "reboot"}}))[0].holds()
    assert not guard(status(holds={"maintenance": {"reason": "coolant loop"}}))[0].holds()
    assert not guard(None)[0].holds()
    made, host = guard(status(ready=False))
    made.give()
    assert [order[:2] for order in host.orders] == [["maintenance", "exit"]]


def test_what_a_status_proves():
    assert judge(status(), "h").good
    assert judge(None, "h").waiting[0].startswith("the agent does not answer")
    assert judge(status(), "other").waiting[0].startswith("the agent runs another profile")
    assert judge(status(results=[]), "h").waiting == ["the agent has run no check yet"]
    closed = status(ready=False)
    assert judge(closed, "h").waiting and judge(closed, "h", ready=False).good
    assert judge(status(ready=False, mode="observe"), "h").good


@pytest.mark.parametrize("verdict", ["FAIL", "UNKNOWN"])
def test_a_failing_check_names_its_tag(verdict):
    proof = judge(status(results=[result(verdict)]), "h")
    assert proof.problems == [f"{verdict} gpu.power_limit gpu3: 400 W; run site.yml --tags gpu"]
    assert proof.findings[0]["tag"] == "gpu"
    for waived in ({"waived": True}, {"shadow": True}):
        assert judge(status(results=[result(verdict, **waived)]), "h").good
    assert judge(status(results=[result("WARN")]), "h").warnings


def test_what_is_unknown_of_an_engine_is_told_while_it_serves():
    unknown = result("UNKNOWN", check="engine.numa", subject="engine:main")
    assert judge(status(results=[unknown]), "h").good and judge(status(results=[unknown]), "h").warnings
    assert judge(status(ready=False, results=[unknown]), "h").problems


def test_an_engine_that_is_stopped_for_maintenance_keeps_no_node_in_it():
    stopped = result("FAIL", check="engine.health", subject="engine:main")
    closed = status(ready=False, results=[stopped])
    assert judge(closed, "h", ready=False).good and judge(closed, "h").problems
    assert judge(status(ready=False, results=[result("FAIL")]), "h", ready=False).problems


def test_it_waits_for_the_proof():
    clock, proofs = [0.0], [Proof(waiting=["x"]), Proof(problems=["y"]), Proof()]

    def step(seconds):
        clock[0] += seconds

    assert wait_for(lambda: proofs.pop(0), 10, mono_s=lambda: clock[0], sleep=step).good and clock[0] == 2.0
    late = wait_for(lambda: Proof(waiting=["x"]), 3, mono_s=lambda: clock[0], sleep=step)
    assert late.waiting == ["x"]


def test_asking_a_real_server():
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self):
            body = json.dumps(status()).encode() if self.path == "/status" else b"no"
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *words):
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        assert serving(ask("0.0.0.0", port)) == ["main"] and ask("127.0.0.1", port, "/odd") is None
        server.shutdown()
        thread.join()
    assert ask("127.0.0.1", port) is None
