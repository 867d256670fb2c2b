#!/usr/bin/python3 -ES
"""Stand-in for cma_roce_tos (mlnx-tools): the TOS that connections of librdmacm begin with. SIMULATED."""

from __future__ import annotations

import standin
from standin import Machine, Refused


def work(words: list[str], machine: Machine) -> str:
    device = standin.option(words, "-d") or "mlx5_0"
    port = standin.option(words, "-p") or "1"
    if device not in machine.nics:
        raise Refused(
            f"mkdir: cannot create directory '{device}'\nFailed to create configuration for {device}"
        )
    if port != "1":
        raise Refused(f"Device {device} port {port} does not exist")
    path = standin.sysfs(f"kernel/config/rdma_cm/{device}/ports/{port}/default_roce_tos")
    text = standin.option(words, "-t")
    if text is None or (standin.number_in(text) or 0) < 0:
        return path.read_text(encoding="utf-8")
    machine.poke(path, text)
    return f"{text}\n"


if __name__ == "__main__":
    standin.main("cma_roce_tos", work)
