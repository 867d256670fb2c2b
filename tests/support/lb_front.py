"""HAProxy and nginx as the shipped role configures them, in a Space, and what they tell of themselves."""

from __future__ import annotations

import calendar
import csv
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from daemon_rig import wait_until
from frontend_kit import play
from lb_space import Space, children

from agent.provision.services import Node, services

#: Where requests are sent, in the load balancer's own Space.
FRONT_PORT = 8080
_LOG_PORT = 5514
#: For so long one look at HAProxy's state is as good as another.
_SHARED_S = 0.03


def role_config(folder: Path, kind: str, found: Sequence[dict[str, Any]], **variables: Any) -> Path:
    """The file that the role writes for these services, by real Ansible; its program has accepted it."""
    target = folder / f"{kind}.conf"
    given = {
        "loadbalancer_kind": kind,
        "loadbalancer_config": str(target),
        "loadbalancer_reload": False,
        "loadbalancer_stats_socket": str(folder / "stats.sock"),
        # In place of what it makes of the inventory: these nodes are in none.
        "loadbalancer_services": list(found),
        **variables,
    }
    done = play(folder, "loadbalancer", given)
    assert done.returncode == 0, done.stdout + done.stderr
    return target


@dataclass(frozen=True)
class Sent:
    """One request as the load balancer logs it at its end.

    `server` is the last node that it was sent to, `at_s` when the first was chosen (time.time()).
    """

    id: str
    server: str
    at_s: float
    status: int
    ending: str


class HaProxy:
    """It runs."""

    def __init__(self, folder: Path, space: Space, nodes: Sequence[Node], **min_live: int) -> None:
        self._folder, self._space = folder, space
        (name,) = {name for node in nodes for name in node.profile["engines"]}
        found = services(nodes, {name: FRONT_PORT}, min_live)
        config = role_config(folder, "haproxy", found, loadbalancer_log=f"127.0.0.1:{_LOG_PORT} local0")
        self._sent: dict[str, Sent] = {}
        self._lock = threading.Lock()
        self._seen: dict[str, tuple[str, int]] = {}
        self._looked_s = 0.0
        self._log = space.inside(lambda: _udp(_LOG_PORT))
        self._over = threading.Event()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        with (folder / "haproxy.log").open("ab") as log:
            # Its log has times without a zone.
            self._child = space.start(log, "haproxy", "-db", "-f", str(config), TZ="UTC")
        wait_until("HAProxy's socket", self._answers, 20)

    @property
    def sent(self) -> dict[str, Sent]:
        """The requests that have ended, by id."""
        with self._lock:
            return dict(self._sent)

    def servers(self) -> dict[str, tuple[str, int]]:
        """Name -> status (`UP`, `DRAIN`, `DOWN`, ...) and weight."""
        rows = csv.DictReader(self._ask("show stat").removeprefix("# ").splitlines())
        inner = {"FRONTEND", "BACKEND"}
        return {
            row["svname"]: (row["status"], int(row["weight"])) for row in rows if row["svname"] not in inner
        }

    def in_rotation(self, name: str) -> bool:
        """Whether a server gets new requests; `UP 1/2` does. Whoever asks shares one look with the others."""
        with self._lock:
            if time.monotonic() - self._looked_s > _SHARED_S:
                self._seen, self._looked_s = self.servers(), time.monotonic()
            status, weight = self._seen[name]
        return status.startswith("UP") and weight > 0

    def end(self) -> None:
        """Stop it."""
        for pid in children(self._child.pid):
            os.kill(pid, signal.SIGKILL)
        self._child.wait(20)
        self._over.set()
        self._listener.join(10)
        self._log.close()

    def _answers(self) -> bool:
        try:
            return bool(self._ask("show stat"))
        except OSError:
            assert self._child.poll() is None, (self._folder / "haproxy.log").read_text()
            return False

    def _ask(self, words: str) -> str:
        with socket.socket(socket.AF_UNIX) as peer:
            peer.settimeout(10)
            peer.connect(os.path.relpath(self._folder / "stats.sock"))
            peer.sendall(f"{words}\n".encode())
            return peer.makefile().read()

    def _listen(self) -> None:
        while not self._over.is_set():
            try:
                line = self._log.recv(65536).decode(errors="replace")
            except TimeoutError:
                continue
            found = _HTTPLOG.search(line)
            if found is None:  # of a server, not of a request
                continue
            one = _sent(found)
            with self._lock:
                self._sent[one.id] = one


#: `option httplog`: date, frontend, backend/server, TR/Tw/Tc/Tr/Ta, status, ..., ending, ..., captured id.
_HTTPLOG = re.compile(
    r"\[(?P<date>[^\].]+)\.(?P<ms>\d+)\] \S+ \S+?/(?P<server>\S+) (?P<times>[-+\d/]+) (?P<status>-?\d+) \S+ "
    r"\S+ \S+ (?P<ending>\S{4}) \S+ \S+ \{(?P<id>[^}]*)\}"
)


def _sent(found: re.Match[str]) -> Sent:
    began_s = calendar.timegm(time.strptime(found["date"], "%d/%b/%Y:%H:%M:%S")) + int(found["ms"]) / 1000
    # Until the request was there, in the queue: then a server was chosen. -1 is a step that was not reached.
    waits = [max(0, int(part)) for part in found["times"].split("/")[:2]]
    return Sent(
        found["id"], found["server"], began_s + sum(waits) / 1000, int(found["status"]), found["ending"]
    )


class Nginx:
    """It runs; each look at `sent` reads its log."""

    def __init__(self, folder: Path, space: Space, nodes: Sequence[Node]) -> None:
        (name,) = {name for node in nodes for name in node.profile["engines"]}
        found = services(nodes, {name: FRONT_PORT})
        self._servers = {f"{one['address']}:{one['port']}": one["node"] for one in found[0]["backends"]}
        self._log = folder / "access.log"
        # -e: it writes to its usual place before it has read its file.
        validate = f"nginx -e {folder}/check.log -t -c %s"
        config = role_config(
            folder, "nginx", found, loadbalancer_log=str(self._log), loadbalancer_validate=validate
        )
        settings = f"daemon off; pid {folder}/nginx.pid;"
        with (folder / "nginx.log").open("ab") as log:
            words = ["nginx", "-e", str(folder / "error.log"), "-c", str(config), "-g", settings]
            self._child = space.start(log, *words)
        wait_until("nginx's log", self._log.exists, 20)

    @property
    def sent(self) -> dict[str, Sent]:
        """By id; the last node that was tried."""
        found = {}
        for line in self._log.read_text().splitlines():
            ended, took, name, status, servers, _, _ = _NGINX.split(line)[1:8]
            last = re.split(r"(?:,| :) ", servers)[-1]
            server = self._servers.get(last, last)
            found[name] = Sent(name, server, float(ended) - float(took), int(status), servers)
        return found

    def tries(self) -> int:
        """Attempts at a node that were not the last one of their request."""
        return sum(one.ending.count(",") for one in self.sent.values())

    def end(self) -> None:
        """Stop it and its workers."""
        for pid in children(self._child.pid):
            os.kill(pid, signal.SIGTERM)
        self._child.wait(20)


_NGINX = re.compile(r'^(\S+) (\S+) "([^"]*)" (\d+) (.+?) ((?:\d+|-)(?:[,:] (?:\d+|-))*) (\S+(?:[,:] \S+)*)$')


def _udp(port: int) -> socket.socket:
    opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    opened.settimeout(0.2)
    opened.bind(("127.0.0.1", port))
    return opened
