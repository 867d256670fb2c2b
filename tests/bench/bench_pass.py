"""A serving pass, against a bare loop of the same NVML calls and preads and one scrape of node_exporter.

The pass runs every check that counts while serving once, as the daemon does: those that read NVML start at
the same time, each in its thread, the others one after another. The bare loop reads exactly what the pass has
read: the same groups of the same GPUs by the same library in a plain process, the same files by pread on
descriptors that stay open.
"""

from __future__ import annotations

import gc
import json
import os
import queue
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from bench_node import NODE, sources_on
from bench_table import Ratio
from nvml_lib import NvmlFile
from ports import free_port

from agent.check_plan import IN_STEP, CheckPlan, plan_all
from agent.check_run import Outcome, perform, start
from agent.check_threads import CheckThreads
from agent.checks.registry import load_all
from agent.commands import resolve_profile
from agent.front import TURN_S
from agent.model import Phase
from agent.sources import Sources
from agent.sources.gpu_reading import NvmlGroup
from agent.sources.nvml import SHARE_S, NvmlProcess

#: Enough passes within this time, for the fastest of them to have been left alone by the neighbours.
PASSES, PASSES_S = 40, 6.0
BARE_PASSES = 8
EXPORTER = "prometheus-node-exporter"
SCRAPE = "scrape of node_exporter, its own collectors"
#: Families of checks that read the tree and no NVML, as the exporter does.
TREE = ("nic", "roce", "ib", "host")
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
    """The fast and the full pass against their bare loops, and what of each reads files against a scrape."""
    env = nvml_file.env(library)
    nvml = NvmlProcess(env=env)
    sys.setswitchinterval(TURN_S)
    gc.freeze()  # as the daemon: what is loaded by now is no garbage
    ratios: list[Ratio] = []
    try:
        sources = sources_on(root, nvml)
        for fast in (True, False):
            chosen = plans(fast)
            tree = [plan for plan in chosen if _family(plan) in TREE]
            name = f"serving pass, {f'checks of {FAST_S:g} s or less' if fast else 'all checks'}"
            whole = _against_bare(name, chosen, sources, root, env)
            scrape_s = _scrape(root)
            files = _against_bare("of these what reads files alone", tree, sources, root, env)
            # NVML alone takes longer than a scrape, which has no part of it: the line after compares like
            # with like.
            against = [Ratio(each.what, each.seconds, scrape_s, SCRAPE, 1.0) for each in (whole, files)]
            ratios += [replace(whole, goal=1.3), *against, files]
    finally:
        nvml.close()
    return ratios


def _against_bare(
    what: str, chosen: list[CheckPlan], sources: Sources, root: Path, env: dict[str, str]
) -> Ratio:
    """A pass of these checks against a bare loop of what it reads."""
    groups, files = _reads(sources, chosen)
    bare_s = _bare(groups, files, root, env)
    took_s = _best(partial(_pass, chosen, sources, CheckThreads()))
    bare_s = min(bare_s, _bare(groups, files, root, env))
    base = f"bare loop of its {len(files)} preads and {len(groups)} NVML groups"
    return Ratio(f"{what} ({len(chosen)} checks)", took_s, bare_s, base)


def _pass(chosen: list[CheckPlan], sources: Sources, threads: CheckThreads) -> None:
    """One run of each."""
    outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
    in_step = [plan for plan in chosen if _family(plan) in IN_STEP]
    for plan in in_step:
        start(plan, sources, outcomes.put, threads)
    for plan in chosen:
        if _family(plan) not in IN_STEP:
            perform(plan, sources)
    for _ in in_step:
        outcomes.get()


def _family(plan: CheckPlan) -> str:
    return plan.check.id.partition(".")[0]


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


def _bare(groups: list[tuple[str, str]], files: list[str], root: Path, env: dict[str, str]) -> float:
    """The fastest pass of the bare loop, in a process of its own."""
    given = json.dumps(
        {"groups": groups, "files": [str(root / path) for path in files], "passes": BARE_PASSES}
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
    times_s: list[float] = []
    end_s = time.perf_counter() + PASSES_S
    while len(times_s) < PASSES and time.perf_counter() < end_s:
        time.sleep(SHARE_S + 0.02)  # past the window within which checks share a reading
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
