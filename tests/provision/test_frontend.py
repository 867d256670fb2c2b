"""Roles loadbalancer and monitoring, by real Ansible into a folder, judged by haproxy, nginx and promtool."""

from __future__ import annotations

import http.client
import re
import socketserver
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from frontend_kit import play
from ports import free_port

pytestmark = [pytest.mark.root, pytest.mark.timeout(400)]


def recap(done: subprocess.CompletedProcess[str]) -> dict[str, int]:
    assert done.returncode == 0, done.stdout + done.stderr
    counted = re.findall(r"(\w+)=(\d+)", done.stdout.rpartition("PLAY RECAP")[2])
    return {key: sum(int(value) for name, value in counted if name == key) for key, _ in counted}


@pytest.mark.parametrize("kind", ["haproxy", "nginx"])
def test_the_example_site_has_a_load_balancer_that_its_program_accepts(tmp_path: Path, kind: str) -> None:
    target = tmp_path / "made.cfg"
    variables = {"loadbalancer_config": str(target), "loadbalancer_kind": kind, "loadbalancer_reload": False}
    first = play(tmp_path, "loadbalancer", variables)
    assert recap(first)["changed"] == 1
    text = target.read_text()
    assert text.count("192.0.2.") >= 8 and "192.0.2.22" not in text, "heads of the groups alone"
    assert recap(play(tmp_path, "loadbalancer", variables))["changed"] == 0


def test_a_file_that_the_program_refuses_replaces_nothing(tmp_path: Path) -> None:
    target = tmp_path / "made.cfg"
    target.write_text("as it was\n")
    variables = {"loadbalancer_config": str(target), "loadbalancer_reload": False}
    done = play(tmp_path, "loadbalancer", {**variables, "loadbalancer_ports": {"kimi": "80 nonsense"}})
    assert done.returncode != 0
    assert target.read_text() == "as it was\n"


def test_prometheus_and_its_rules_pass_promtool(tmp_path: Path) -> None:
    variables = {"monitoring_folder": str(tmp_path), "monitoring_reload": False}
    assert recap(play(tmp_path, "monitoring", variables))["changed"] == 3
    text = (tmp_path / "prometheus.yml").read_text()
    assert text.count("targets:") == 38 and '"192.0.2.11:9470"' in text
    assert recap(play(tmp_path, "monitoring", variables))["changed"] == 0


class Replica:
    """An engine and its agent: /readyz as `ready` says, an agent check that says `word`."""

    def __init__(self, name: str) -> None:
        self.name, self.ready, self.word = name, True, "up ready 100%"
        outer = self

        class Http(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                gate = self.path.startswith("/readyz")
                self.send_response(503 if gate and not outer.ready else 200)
                self.end_headers()
                self.wfile.write(outer.name.encode())

            def log_message(self, *_: object) -> None:
                pass

        class Check(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                self.request.sendall(f"{outer.word}\n".encode())

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Http)
        self.check = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Check)
        for server in (self.http, self.check):
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()

    def backend(self) -> dict[str, object]:
        port = self.http.server_address[1]
        return {"node": self.name, "address": "127.0.0.1", "port": port, "agent_address": "127.0.0.1",
                "api_port": port, "agent_check_port": self.check.server_address[1]}  # fmt: skip

    def close(self) -> None:
        for server in (self.http, self.check):
            server.shutdown()
            server.server_close()


@contextmanager
def haproxy(folder: Path, replicas: list[Replica]) -> Iterator[int]:
    """The rendered configuration in a HAProxy that runs; its port."""
    import jinja2
    from repo_files import ROOT

    port = free_port()
    text = (ROOT / "playbooks/roles/loadbalancer/templates/haproxy.j2").read_text()
    backends = [one.backend() for one in replicas]
    made = (
        jinja2.Environment(trim_blocks=True, undefined=jinja2.StrictUndefined)
        .from_string(text)
        .render(
            loadbalancer_services=[{"name": "kimi", "port": port, "backends": backends, "min_live": 1}],
            loadbalancer_log="stdout format raw local0",
            loadbalancer_stats_socket="unix@stats",
        )
    )
    (folder / "haproxy.cfg").write_text(made)
    child = subprocess.Popen(
        ["haproxy", "-f", "haproxy.cfg", "-db"],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield port
    finally:
        child.terminate()
        child.wait(10)


def answer(port: int) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/v1/models")
        response = connection.getresponse()
        return response.read().decode() if response.status == 200 else str(response.status)
    except OSError as cause:
        return type(cause).__name__
    finally:
        connection.close()


def until(port: int, wanted: set[str], within_s: float = 60.0) -> None:
    """Wait until the last eight answers come from just these."""
    end, seen = time.monotonic() + within_s, set[str]()
    while time.monotonic() < end:
        seen = {answer(port) for _ in range(8)}
        if seen == wanted:
            return
        time.sleep(0.1)
    raise AssertionError(f"{seen}, not {wanted}")


def test_haproxy_sends_traffic_only_where_the_gate_is_open(tmp_path: Path) -> None:
    one, two = Replica("one"), Replica("two")
    try:
        with haproxy(tmp_path, [one, two]) as port:
            until(port, {"one", "two"})
            one.ready = False
            until(port, {"two"})
            two.word = "maint"
            until(port, {"503"})
            one.ready = True
            until(port, {"one"})
            two.word = "up ready 100%"
            until(port, {"one", "two"})
    finally:
        one.close()
        two.close()
