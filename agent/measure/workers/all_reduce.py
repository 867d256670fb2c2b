"""All-reduce over the GPUs of one or more nodes, in the engine's own Python: is the sum right, and how fast?

    python all_reduce.py '{"gpus": 8, "size_mib": 1024, "iterations": 20, "backend": "nccl", ...}'

Needs torch alone. Prints one JSON line: either {"error": ...} or what was measured (`bus_gb_s` is GB/s,
2(n-1)/n of the bytes over the time of the slowest process, as nccl-tests reckons it). On several nodes each
runs the same with its own `node`; they meet at `host` and `port`, which node 0 opens.
"""

from __future__ import annotations

import datetime
import json
import socket
import time
from collections.abc import Callable
from typing import Any

import ranks

#: What each process fills in: whole numbers small enough that the sum over any number of GPUs is exact.
_PATTERN = 1021
_WARM_UP = 5
_LEAVE_S = 20.0
_TELL_S = 5.0


def main() -> None:
    """Read the order, run a process a GPU, print one line."""
    order = {"node": 0, "nodes": 1, "backend": "nccl", "host": "127.0.0.1", "port": 0, **ranks.read_order()}
    if order["nodes"] == 1:
        order |= {"host": "127.0.0.1", "port": _free_port()}
    measured: dict[str, Any] = {}
    for _, answer in ranks.answers(reduce_all, order, order["gpus"], order["limit_s"]):
        if "error" in answer:
            ranks.say({"test": "all_reduce", "error": answer["error"]})
            return
        measured = answer
    ranks.say({"test": "all_reduce", **measured})


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def reduce_all(order: ranks.Order, number: int, answer: Callable[[ranks.Answer], None]) -> None:
    """One process: meet the others, check the sum, time it, check it again."""
    import torch
    import torch.distributed as dist

    on_gpu = order["backend"] == "nccl"
    device = torch.device("cuda", number) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    store, first, world = _meet(order, number, dist)
    dist.init_process_group(
        order["backend"],
        store=dist.PrefixStore("ranks", store),
        rank=first + number,
        world_size=world,
        timeout=datetime.timedelta(seconds=order["limit_s"]),
        **({"device_id": device} if on_gpu else {}),
    )
    wait = torch.cuda.synchronize if on_gpu else lambda: None
    count = order["size_mib"] * 2**20 // 4
    right = _sum_is_right(torch, dist, device, count)
    each_s, quiet = _timed(torch, dist, device, count, order["iterations"], wait)
    right = _sum_is_right(torch, dist, device, count) and right and quiet
    bytes_each = count * 4
    dist.destroy_process_group()
    _leave(store, first + number, world)
    answer({
        "done": True, "backend": order["backend"], "world": world, "nodes": order["nodes"],
        "bytes": bytes_each, "iterations": order["iterations"], "seconds_each": each_s, "right": right,
        "bus_gb_s": 2 * (world - 1) / world * bytes_each / each_s / 1e9,
        "torch": torch.__version__, "device": torch.cuda.get_device_name(device) if on_gpu else "cpu",
        "nccl": ".".join(str(part) for part in torch.cuda.nccl.version()) if on_gpu else "",
    })  # fmt: skip


def _meet(order: ranks.Order, number: int, dist: Any) -> tuple[Any, int, int]:
    """The common store, the number of this node's first process, and how many there are of all nodes."""
    node, nodes = order["node"], order["nodes"]
    patience = datetime.timedelta(seconds=order["rendezvous_s"])
    opens = node == 0 and number == 0
    try:
        store = dist.TCPStore(
            order["host"], order["port"], None, opens, timeout=patience, wait_for_workers=False
        )
    except Exception as cause:
        if opens:
            raise
        where = f"{order['host']} port {order['port']}"
        late = f"node 0 cannot be reached at {where} within {order['rendezvous_s']:g} s"
        raise RuntimeError(late) from cause
    mine = {key: order[key] for key in ("gpus", "size_mib", "iterations", "backend")}
    if number == 0:
        store.set(f"node/{node}", json.dumps(mine))
    orders = [_order_of(store, other, order["rendezvous_s"]) for other in range(nodes)]
    for other, said in enumerate(orders):
        if {**said, "gpus": 0} != {**mine, "gpus": 0}:
            time.sleep(_TELL_S if opens else 0)  # the others must be able to read why, too
            raise RuntimeError(f"node {other} runs another test: {said} where this one runs {mine}")
    counts = [said["gpus"] for said in orders]
    return store, sum(counts[:node]), sum(counts)


def _order_of(store: Any, node: int, patience_s: float) -> dict[str, Any]:
    """What a node has come for, waiting for it."""
    began_s = time.monotonic()
    try:
        found = json.loads(store.get(f"node/{node}"))
    except Exception as cause:
        late = time.monotonic() - began_s >= 0.9 * patience_s
        what = f"has not come within {patience_s:g} s" if late else "is not to be heard of any more"
        raise RuntimeError(f"node {node} {what}") from cause
    assert isinstance(found, dict)
    return found


def _sum_is_right(torch: Any, dist: Any, device: Any, count: int) -> bool:
    """One all-reduce of numbers that differ by place and by process, against what must come out, on all."""
    rank, world = dist.get_rank(), dist.get_world_size()
    places = torch.arange(count, device=device, dtype=torch.int64).remainder_(_PATTERN).to(torch.float32)
    summed = places + rank
    dist.all_reduce(summed)
    places.mul_(world).add_(world * (world - 1) // 2)
    wrong = torch.tensor([0.0 if torch.equal(summed, places) else 1.0], device=device)
    dist.all_reduce(wrong)
    return bool(wrong.item() == 0)


def _timed(
    torch: Any, dist: Any, device: Any, count: int, iterations: int, wait: Callable[[], None]
) -> tuple[float, bool]:
    """Seconds of one all-reduce by the slowest process, and whether a sum of nothing stayed nothing."""
    payload = torch.zeros(count, device=device)
    for _ in range(_WARM_UP):
        dist.all_reduce(payload)
    wait()
    dist.barrier()
    began_s = time.perf_counter()
    for _ in range(iterations):
        dist.all_reduce(payload)
    wait()
    slowest = torch.tensor([(time.perf_counter() - began_s) / iterations], device=device)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    quiet = torch.tensor([float(torch.count_nonzero(payload).item())], device=device)
    dist.all_reduce(quiet)
    return float(slowest.item()), bool(quiet.item() == 0)


def _leave(store: Any, rank: int, world: int) -> None:
    """The process that holds the store goes last; nobody waits for one that is gone."""
    store.add("left", 1)
    until_s = time.monotonic() + _LEAVE_S
    while rank == 0 and store.add("left", 0) < world and time.monotonic() < until_s:
        time.sleep(0.05)


if __name__ == "__main__":
    main()
