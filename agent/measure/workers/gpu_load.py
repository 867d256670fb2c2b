"""Matrix products on every GPU for a while, in the engine's own Python: the load of a soak or a burn-in.

    python gpu_load.py '{"gpus": 8, "size": "full", "duration_s": 60, "limit_s": 300}'

Needs torch alone. Prints one JSON line a second and GPU, {"gpu", "at_s", "tflops", "wrong"}, where `wrong`
counts looks at which a product differed from the first one (the same inputs must give the same bits), and in
the end {"done": true} or {"error": ...}.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import ranks

#: Rows, columns and inner size of one product. `full` keeps a GPU at its power limit; `small` is what
#: decoding a few requests looks like: its weights are read from memory again and again.
SIZES = {"full": (8192, 8192, 8192), "small": (16, 8192, 8192)}
#: Weights that are used in turn, so that none of them stays in a cache: 128 MiB each.
_WEIGHTS = 8
_REPORT_S = 1.0
#: Seconds of work that are queued before anybody looks: a load that is called off ends within it.
_BATCH_S = 0.1
#: On a CPU (tests) there is no time for large ones.
_CPU_SIZES = {"full": (64, 64, 64), "small": (4, 64, 64)}


def main() -> None:
    """Read the order, run a process a GPU, pass on what they say."""
    order = {"device": "cuda", **ranks.read_order()}
    for number, answer in ranks.answers(burn, order, order["gpus"], order["limit_s"]):
        if "error" in answer:
            ranks.say({"gpu": number, "error": answer["error"]})
            return
        if "done" not in answer:
            ranks.say({"gpu": number, **answer})
    ranks.say({"done": True})


def burn(order: ranks.Order, number: int, answer: Callable[[ranks.Answer], None]) -> None:
    """One process: products until the time is over, a report a second."""
    import torch

    on_gpu = order["device"] == "cuda"
    device = torch.device("cuda", number) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    wait = torch.cuda.synchronize if on_gpu else lambda: None
    rows, columns, inner = (SIZES if on_gpu else _CPU_SIZES)[order["size"]]
    torch.manual_seed(number)
    left = torch.randn(rows, inner, device=device, dtype=torch.bfloat16)
    weights = [torch.randn(inner, columns, device=device, dtype=torch.bfloat16) for _ in range(_WEIGHTS)]
    first = [left @ weight for weight in weights]
    out = torch.empty_like(first[0])
    wait()
    rounds = _rounds(torch, left, weights, out, wait)
    began_s = told_s = time.monotonic()
    made, wrong = 0, 0
    while (now_s := time.monotonic()) - began_s < order["duration_s"]:
        for _ in range(rounds):
            for weight in weights:
                torch.matmul(left, weight, out=out)
        made += rounds * _WEIGHTS
        wrong += int(not torch.equal(out, first[-1]))  # waits for the batch
        seconds = time.monotonic() - told_s
        if seconds >= _REPORT_S:
            tflops = 2 * rows * columns * inner * made / seconds / 1e12
            answer({"at_s": round(now_s - began_s, 2), "tflops": round(tflops, 3), "wrong": wrong})
            told_s, made = time.monotonic(), 0
    answer({"done": True})


def _rounds(torch: Any, left: Any, weights: list[Any], out: Any, wait: Callable[[], None]) -> int:
    """How often all weights are used in one batch."""
    began_s, rounds = time.monotonic(), 0
    while time.monotonic() - began_s < _BATCH_S:
        for weight in weights:
            torch.matmul(left, weight, out=out)
        wait()
        rounds += 1
    return max(1, rounds)


if __name__ == "__main__":
    main()
