"""A serving pass, against a bare loop of the same NVML calls and preads and one scrape of node_exporter.

The pass is what the daemon does at its fastest: every check that counts while serving, once, one after
another. The bare loop reads exactly what the pass has read: the same groups of the same GPUs by the same
library in a plain process, the same files by pread on descriptors that stay open.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from bench_node import NODE, sources_on
from bench_table import Ratio
from launch_kit import free_port
from nvml_lib import NvmlFile

from agent.check_plan import CheckPlan, plan_all
from agent.check_run import perform
from agent.checks.registry import load_all
from agent.commands import resolve_profile
from agent.model import Phase
from agent.sources import Sources
from agent.sources.gpu_reading import NvmlGroup
from agent.sources.nvml import NvmlProcess

PASSES = 15
EXPORTER = "prometheus-node-exporter"
#: The collectors of what the pass reads too: NIC counters, interfaces, memory, file systems, CPU, clock.
COLLECTORS = ("infiniband", "netclass", "meminfo", "loadavg", "stat", "cpu", "vmstat")
#: A check that runs less often than this is not part of the fast pass.
FAST_S = 10.0


class _Noting:
    """Stands before a source and notes what is read through it, once each."""

    def __init__(self, inner: object, names: tuple[str, ...]) -> None:
        self._inner, self._names = inner, names
        self.seen: dict[tuple[object, ...], None] = {}

    def __getattr__(self, name: str) -> object:
        method = getattr(self._inner, name)
        if name not in self._names:
            return method

        def noted(*args: object) -> object:
            found = method(*args)
            self.seen[args] = None
            return found

        return noted


def plans(fast: bool) -> list[CheckPlan]:
    """The checks of a serving pass on the benchmark's node."""
    profile = resolve_profile(None, None, NODE).profile
    found = [p for p in plan_all(load_all(), profile).values() if p.skip_reason is None]
    serving = [plan for plan in found if Phase.SERVING in plan.check.phases]
    return [plan for plan in serving if plan.period_s <= FAST_S] if fast else serving


def measure(root: Path, nvml_file: NvmlFile, library: Path) -> list[Ratio]:
    """Fast and full pass against their bare loops; the fast one against the exporter too."""
    env = nvml_file.env(library)
    nvml = NvmlProcess(env=env)
    ratios = []
    try:
        scrape_s = _scrape(root)
        for fast in (True, False):
            chosen = plans(fast)
            sources = sources_on(root, nvml)
            what = f"serving pass, {'checks of 10 s or less' if fast else 'all checks'} ({len(chosen)})"
            reads = _reads(sources, chosen)
            bare_s = _bare(reads, root, env)
            took_s = _best(lambda s=sources, c=chosen: [perform(plan, s) for plan in c])
            ratios.append(
                Ratio(
                    what,
                    took_s,
                    bare_s,
                    f"bare loop of its {len(reads[1])} preads and {len(reads[0])} NVML groups",
                )
            )
            ratios.append(Ratio(what, took_s, scrape_s, "scrape of node_exporter, same tree"))
    finally:
        nvml.close()
    return ratios


def _reads(sources: Sources, chosen: list[CheckPlan]) -> tuple[list[tuple[str, str]], list[str]]:
    """What one pass reads: (uuid, group) and file paths."""
    nvml = _Noting(sources.nvml, ("read",))
    tree = _Noting(sources.tree, ("text", "integer", "data"))
    noted = replace(sources, nvml=nvml, tree=tree)
    for _ in range(2):
        for plan in chosen:
            perform(plan, noted)
    groups = [(str(uuid), str(NvmlGroup(group).value)) for uuid, group in nvml.seen]
    return groups, list(dict.fromkeys(str(args[0]) for args in tree.seen))


def _bare(reads: tuple[list[tuple[str, str]], list[str]], root: Path, env: dict[str, str]) -> float:
    """The fastest pass of the bare loop, in a process of its own."""
    given = json.dumps(
        {"groups": reads[0], "files": [str(root / path) for path in reads[1]], "passes": PASSES}
    )
    command = [sys.executable, str(Path(__file__).with_name("bare_loop.py"))]
    answer = subprocess.run(
        command,
        env={**os.environ, **env},
        input=given,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=120,
    )
    return min(json.loads(answer.stdout))


def _best(run: Callable[[], object]) -> float:
    """Seconds of the fastest of some runs: on a shared machine the others measure the neighbours."""
    run()
    times_s = []
    for _ in range(PASSES):
        time.sleep(0.06)  # past the window within which checks share a reading
        began_s = time.perf_counter()
        run()
        times_s.append(time.perf_counter() - began_s)
    return min(times_s)


def _scrape(root: Path) -> float:
    with _exporter(root) as url:
        return _best(lambda: urllib.request.urlopen(url, timeout=20).read())


@contextmanager
def _exporter(root: Path) -> Iterator[str]:
    """Debian's node_exporter on the tree; stopped by its pid."""
    port = free_port()
    argv = [
        EXPORTER,
        f"--path.sysfs={root / 'sys'}",
        f"--path.procfs={root / 'proc'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--collector.disable-defaults",
        *(f"--collector.{name}" for name in COLLECTORS),
    ]
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}/metrics"
    try:
        _wait_for(url, process)
        yield url
    finally:
        process.terminate()
        process.wait(timeout=10)


def _wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline_s = time.monotonic() + 20
    while process.poll() is None and time.monotonic() < deadline_s:
        try:
            urllib.request.urlopen(url, timeout=20).read()
            return
        except OSError:
            time.sleep(0.05)
    raise SystemExit(f"{EXPORTER} does not answer (exit {process.poll()})")
