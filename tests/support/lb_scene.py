"""Scenes of the load-balancer tests: load, a fault, its end, and the account of every request."""

from __future__ import annotations

import http.client
import socket
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from daemon_rig import wait_until
from lb_front import FRONT_PORT, HaProxy, Nginx, Sent
from lb_node import API_PORT, ENGINE, ENGINE_PORT, MODEL, LbNode
from lb_space import Space, folder_for_now, lay_lan
from lb_table import ROWS, Row
from open_loop import Fate, OpenLoop

from agent.provision.services import Node

LOOK_S = 0.05
PATIENCE_S = 90.0
#: Several agents and engines start at once.
START_S = 180.0
#: What the role's HAProxy answers when too few nodes are ready.
TOO_FEW = "nodes of main are ready"


class Trace:
    """What a look gives, over time: a thread that notes each change."""

    def __init__(self, look: Callable[[], bool], enter: Callable[[], None]) -> None:
        self.changes: list[tuple[float, bool]] = []
        self._look, self._enter = look, enter
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def now(self) -> bool:
        """The newest."""
        return bool(self.changes) and self.changes[-1][1]

    def first(self, value: bool, since_s: float) -> float | None:
        """When it was first so, at or after a time; the time itself where it was so already."""
        known = list(self.changes)
        before = [seen for at_s, seen in known if at_s <= since_s]
        if before and before[-1] is value:
            return since_s
        return next((at_s for at_s, seen in known if at_s >= since_s and seen is value), None)

    def close(self) -> None:
        self._end.set()
        self._thread.join(10)

    def _run(self) -> None:
        self._enter()
        while not self._end.wait(LOOK_S):
            seen = self._look()
            if not self.changes or self.changes[-1][1] is not seen:
                self.changes.append((time.time(), seen))


class Fleet:
    """Nodes and the load balancer before them."""

    def __init__(self, space: Space, nodes: Sequence[LbNode], front: HaProxy | Nginx) -> None:
        self.space, self.nodes, self.front = space, list(nodes), front
        self.kind = "HAProxy" if isinstance(front, HaProxy) else "nginx"
        self.broken = ""
        self._states: dict[str, bool] = {}
        self.gates = {node.name: Trace(lambda n=node: gate_open(n.address), space.enter) for node in nodes}
        self.takes = {node.name: Trace(lambda n=node: self._takes(n), space.enter) for node in nodes}

    def wait_all(self) -> None:
        """Every gate is open and every node gets requests in full."""
        try:
            wait_until("every gate is open", lambda: all(trace.now() for trace in self.gates.values()))
        except AssertionError as cause:
            states = {node.name: node.gate(ENGINE) for node in self.nodes}
            raise AssertionError(f"{cause}: {states}") from cause
        wait_until("every node is taken", lambda: all(trace.now() for trace in self.takes.values()))
        if isinstance(self.front, HaProxy):
            front = self.front
            wait_until("full weight", lambda: {weight for _, weight in front.servers().values()} == {100})

    def wait_weight(self, percent: int, *nodes: LbNode) -> None:
        """HAProxy has heard it."""
        assert isinstance(self.front, HaProxy)
        front = self.front
        wanted = {node.name: ("UP", percent) for node in nodes}
        wait_until(f"weight {percent}", lambda: wanted.items() <= front.servers().items(), PATIENCE_S)

    def front_status(self) -> int:
        """What the load balancer answers when it is asked whether the service is ready."""
        return self.space.inside(lambda: status_of("127.0.0.1", FRONT_PORT, "/readyz"))

    def close(self) -> None:
        for trace in (*self.gates.values(), *self.takes.values()):
            trace.close()
        self.front.end()

    def _takes(self, node: LbNode) -> bool:
        """Whether new requests reach a node: HAProxy's own word; for nginx, what the node's kernel does."""
        if isinstance(self.front, HaProxy):
            return self.front.in_rotation(node.name)
        return taken(node.address)

    @contextmanager
    def scene(self, name: str, *failing: LbNode, planned: bool = False, note: str = "") -> Iterator[Scene]:
        """Load before, during and after what the block does to the nodes in `failing`; then the account."""
        assert not self.broken, f"not tried: the scene {self.broken} before it left the fleet broken"
        self.broken = name
        self.wait_all()
        scene = Scene(self, name, failing, note)
        try:
            scene.wait_for_traffic()
            yield scene
            self.wait_all()
            scene.wait_for_traffic()
        finally:
            fates = scene.load.stop()
        scene.account(fates, planned)
        self.broken = ""


@contextmanager
def fleet_of(
    kind: type[LbNode], count: int, make_front: Callable[[Path, Space, list[Node]], HaProxy | Nginx]
) -> Iterator[Fleet]:
    """So many nodes that serve, and a load balancer before them; nothing is left of it afterwards."""
    nodes: list[LbNode] = []
    with folder_for_now() as folder, closing(Space()) as space:
        lay_lan(space)
        try:
            for number in range(count):
                nodes.append(kind(folder / f"n{number}", f"n{number}", space, number))
                nodes[-1].start()
            for node in nodes:
                node.wait_serving(START_S)
            front = make_front(folder, space, [node.seen_by_role() for node in nodes])
            with closing(Fleet(space, nodes, front)) as made:
                yield made
        finally:
            for node in nodes:
                node.close()


@dataclass
class Scene:
    """One scene; times are seconds of time.time()."""

    fleet: Fleet
    name: str
    failing: Sequence[LbNode]
    note: str
    load: OpenLoop = field(init=False)
    fault_s: float = 0.0
    end_s: float = 0.0
    #: Whether requests may be refused because too few nodes are ready.
    may_refuse: bool = False

    def __post_init__(self) -> None:
        prefix = f"{self.fleet.kind}-{self.name}".replace(" ", "-").lower()
        self.load = OpenLoop(prefix, ("127.0.0.1", FRONT_PORT), MODEL, self.fleet.space.enter)
        self._prefix = f"{prefix}-"

    def sent(self) -> dict[str, Sent]:
        """The requests of this scene that have ended."""
        return {name: one for name, one in self.fleet.front.sent.items() if name.startswith(self._prefix)}

    def wait_for_traffic(self, at_least: int = 5) -> None:
        """Every node has answered some requests that were sent from now on."""
        now_s = time.time()

        def served() -> bool:
            new = [one.server for one in self.sent().values() if one.at_s > now_s and one.status == 200]
            return all(new.count(node.name) >= at_least for node in self.fleet.nodes)

        wait_until("traffic to every node", served, PATIENCE_S)

    def fault(self) -> None:
        """It happens now."""
        self.fault_s = time.time()

    def over(self) -> None:
        """What caused it is mended now; whoever comes back by itself is mended at once."""
        self.end_s = time.time()

    def wait_out(self) -> None:
        """The failing nodes get no new requests."""
        for node in self.failing:
            trace = self.fleet.takes[node.name]
            what = f"{node.name} out of rotation"
            wait_until(what, lambda t=trace: t.first(False, self.fault_s) is not None, PATIENCE_S)

    def out_s(self, name: str) -> float | None:
        """When a node was out."""
        trace = self.fleet.takes.get(name)
        return None if trace is None else trace.first(False, self.fault_s)

    def account(self, fates: Sequence[Fate], planned: bool) -> None:
        """Nobody lost a request that the fault did not take; the row of the table."""
        wait_until("the log of every request", lambda: len(self._unlogged(fates)) == 0, 20)
        sent = self.sent()
        refused = [fate for fate in fates if self.may_refuse and TOO_FEW in fate.what]
        lost = [fate for fate in fates if fate.lost and fate not in refused]
        self._note_row(fates, lost, refused, sent)
        told = [
            (fate, sent.get(fate.id), self.out_s(sent[fate.id].server)) for fate in lost if fate.id in sent
        ]
        assert not (planned and lost), told
        # One may still have been ready for a look after the last but one was out.
        outs_s = sorted(self.out_s(node.name) or 0.0 for node in self.failing)
        early = [fate for fate in refused if fate.end_s < outs_s[-1] - LOOK_S * 4]
        assert not early, f"refused while enough nodes were ready: {early}"
        names = {node.name for node in self.failing}
        assert {one.server for one in sent.values() if one.at_s < self.fault_s} >= names, "no load before"
        for fate, one, out_s in told:
            assert one is not None and one.server in names, f"lost at no failing node: {fate}, {one}"
            assert out_s is not None and one.at_s <= out_s, f"sent after {one.server} was out: {fate}, {one}"
        assert len(told) == len(lost), [fate for fate in lost if fate.id not in sent]
        for one in sent.values():
            out_s = self.out_s(one.server) if one.server in names and self.fault_s else None
            late = out_s is not None and out_s + LOOK_S < one.at_s < self.end_s
            assert not late, f"{one} was sent to a node that was out"

    def _unlogged(self, fates: Sequence[Fate]) -> set[str]:
        return {fate.id for fate in fates if fate.what != "refused"} - self.sent().keys()

    def _note_row(
        self, fates: Sequence[Fate], lost: Sequence[Fate], refused: Sequence[Fate], sent: dict[str, Sent]
    ) -> None:
        names = {node.name for node in self.failing}
        inside = [fate for fate in lost if fate.id in sent and sent[fate.id].server in names]
        whole = [fate.latency_s for fate in fates if not fate.lost] or [0.0]
        ROWS.append(
            Row(
                self.fleet.kind, self.name, len(fates), len(lost), len(inside), len(refused),
                self._worst(self.fleet.gates), self._worst(self.fleet.takes), self._back_s(),
                round(statistics.median(whole), 2), round(max(whole), 2), self.note,
            )
        )  # fmt: skip

    def _worst(self, traces: dict[str, Trace]) -> float | None:
        """Seconds until the last of the failing nodes was closed or out; None if nothing was to be."""
        times = [traces[node.name].first(False, self.fault_s) for node in self.failing]
        return _span(self.fault_s, times)

    def _back_s(self) -> float | None:
        """Seconds from the end of the fault until the last of the failing nodes got requests again."""
        outs = {node.name: self.out_s(node.name) or 0.0 for node in self.failing}
        return _span(self.end_s, [self.fleet.takes[name].first(True, out_s) for name, out_s in outs.items()])


def _span(from_s: float, times: Sequence[float | None]) -> float | None:
    if not times or None in times:
        return None
    return round(max(at_s for at_s in times if at_s is not None) - from_s, 2)


def gate_open(address: str) -> bool:
    """Whether a node's agent says so."""
    return status_of(address, API_PORT, f"/readyz/{ENGINE}") == 200


def status_of(address: str, port: int, path: str) -> int:
    """The status of a GET; 0 when no answer comes within two seconds."""
    connection = http.client.HTTPConnection(address, port, timeout=2)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


def taken(address: str) -> bool:
    """Whether an engine's port takes a connection from outside."""
    try:
        socket.create_connection((address, ENGINE_PORT), 1).close()
    except OSError:
        return False
    return True
