"""`nodegate fleet status` over 1000 SIMULATED agents, as a process, against a bare loop that asks the same.

The command reads the inventory with Ansible and 1000 profiles (remembered from a run before), asks every
agent and makes the table. The bare loop has the addresses and reads until the end; it understands nothing.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import many_nodes
import yaml
from bench_node import NODE
from bench_table import Figure, Ratio

NODES = 1000
ROUNDS = 3
GOAL_S = 3.0
AT_ONCE = 500
REQUEST = b"GET /status?brief=1 HTTP/1.1\r\nhost: node\r\nconnection: close\r\n\r\n"


def measure(folder: Path) -> tuple[list[Ratio], list[Figure]]:
    """The best of some rounds that alternate; the first one, which works the profiles out, beside it."""
    with _agents() as port:
        site = _site(folder / "fleet", port)
        first_s = _status(folder, site)
        rounds = [(_status(folder, site), asyncio.run(_bare(port))) for _ in range(ROUNDS)]
    own_s, base_s = (min(times) for times in zip(*rounds, strict=True))
    what = f"fleet status of {NODES} nodes, the whole command"
    ratio = Ratio(what, own_s, base_s, "asking them and nothing else")
    return [ratio], [
        Figure(what, own_s, "s", GOAL_S),
        Figure(f"{what}, profiles not seen before", first_s, "s"),
    ]


@contextmanager
def _agents() -> Iterator[int]:
    argv = [sys.executable, str(Path(many_nodes.__file__)), str(NODES)]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.communicate(timeout=20)


def _site(folder: Path, port: int) -> Path:
    """An inventory with a layer for all nodes and one for each."""
    profiles = folder / "profiles"
    profiles.mkdir(parents=True)
    common = yaml.safe_load((NODE / "profile.yaml").read_text())
    common.pop("node", None)
    (profiles / "all.yaml").write_text(yaml.safe_dump({**common, "api": {"port": port}}))
    hosts = {}
    for number in range(NODES):
        name = many_nodes.name_of(number)
        hosts[name] = {"ansible_host": many_nodes.address_of(number)}
        (profiles / f"{name}.yaml").write_text(f"node: {name}\n")
    (folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": hosts}}))
    return folder


def _status(folder: Path, site: Path) -> float:
    """Seconds of one run, from the start of the program to its end."""
    program = str(Path(sys.executable).with_name("nodegate"))
    env = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "XDG_CACHE_HOME": str(folder / "cache")}
    began_s = time.perf_counter()
    done = subprocess.run(
        [program, "fleet", "status", "-i", str(site)], capture_output=True, text=True, env=env, timeout=300
    )
    took_s = time.perf_counter() - began_s
    assert done.returncode == 1 and f"{NODES} hosts: " in done.stdout and "unknown" not in done.stdout, done
    return took_s


async def _bare(port: int) -> float:
    turn = asyncio.Semaphore(AT_ONCE)

    async def ask(number: int) -> bytes:
        async with turn:
            reader, writer = await asyncio.open_connection(many_nodes.address_of(number), port)
            writer.write(REQUEST)
            found = await reader.read(-1)
            writer.close()
            return found

    began_s = time.perf_counter()
    found = await asyncio.gather(*map(ask, range(NODES)))
    took_s = time.perf_counter() - began_s
    assert all(answer.startswith(b"HTTP/1.1 200") for answer in found)
    return took_s
