"""Flags of vLLM that contradict each other or the GPUs, as its own source refuses or ignores them. Pure.

Rules of the form "needs" and "against" are data (combinations.yaml); here are those that compare values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from agent.launch.lint.installed import EngineSource
from agent.launch.lint.names import table
from agent.launch.lint.settings import Gpus, Settings
from agent.sources.launch_reading import Problem, Severity

Rule = Callable[[Settings, Gpus], Iterator[Problem]]


def rule_problems(source: EngineSource, settings: Settings, gpus: Gpus) -> list[Problem]:
    """All of them."""
    found = list(_combinations(source.engine, settings))
    for rule in _RULES if source.engine == "vllm" else ():
        found += rule(settings, gpus)
    return found


def _combinations(engine: str, settings: Settings) -> Iterator[Problem]:
    for row in table("combinations.yaml")[engine]:
        if not settings.on(row["flag"]):
            continue
        severity = Severity(row["severity"])
        if "needs" in row and not settings.on(row["needs"]):
            yield Problem(severity, row["flag"], row["why"], f"add {row['needs']} or remove {row['flag']}")
        if "against" in row and settings.on(row["against"]):
            text = f"contradicts {row['against']}: {row['why']}"
            yield Problem(severity, row["flag"], text, "keep the one that is meant")


def _error(where: str, text: str, remedy: str) -> Problem:
    return Problem(Severity.ERROR, where, text, remedy)


def _warning(where: str, text: str, remedy: str) -> Problem:
    return Problem(Severity.WARNING, where, text, remedy)


def _memory_share(settings: Settings, _gpus: Gpus) -> Iterator[Problem]:
    text = settings.text("--gpu-memory-utilization")
    share = settings.number("--gpu-memory-utilization")
    if text is not None and (share is None or not 0 < share <= 1):
        remedy = "write a share such as 0.9"
        yield _error(
            "--gpu-memory-utilization", f"{text[:20]} is no share of memory above 0 and up to 1", remedy
        )


def _batch(settings: Settings, _gpus: Gpus) -> Iterator[Problem]:
    where = "--max-num-batched-tokens"
    batch, longest = settings.count(where), settings.count("--max-model-len")
    requests = settings.count("--max-num-seqs")
    if batch is None:
        return
    if longest is not None and batch < longest and settings.off("--enable-chunked-prefill"):
        text = (
            f"{batch} is below --max-model-len {longest} and chunked prefill is off, which the engine refuses"
        )
        yield _error(where, text, "remove --no-enable-chunked-prefill or raise it")
    if requests is not None and batch < requests:
        text = f"{batch} is less than --max-num-seqs {requests}: the engine refuses it"
        yield _error(where, text, "raise it, or lower --max-num-seqs")


def _sizes(settings: Settings) -> tuple[int, int, int]:
    """GPUs of one copy of the model, copies, nodes."""
    tensor = settings.count("--tensor-parallel-size") or 1
    pipeline = settings.count("--pipeline-parallel-size") or 1
    copies = settings.count("--data-parallel-size") or 1
    return tensor * pipeline, copies, settings.count("--nnodes") or 1


def _spread(settings: Settings, gpus: Gpus) -> Iterator[Problem]:
    """One copy of the model, spread evenly over the nodes, must have its GPUs here."""
    world, copies, nodes = _sizes(settings)
    where = "--tensor-parallel-size"
    if world * copies % nodes:
        text = f"{world} GPUs of one model, {copies} times, do not divide by --nnodes {nodes}"
        yield _error("--nnodes", text, "correct the sizes or the number of nodes")
        return
    elsewhere = settings.text("--distributed-executor-backend") in ("ray", "external_launcher")
    if not gpus.count or elsewhere or settings.given("--data-parallel-size-local") or _one_copy(settings):
        return
    here = world * copies // nodes
    spelled = f"tensor x pipeline {world}" + (f" x data {copies}" if copies > 1 else "")
    over = f" over {nodes} nodes" if nodes > 1 else ""
    if here > gpus.count:
        text = f"{spelled}{over} needs {here} GPUs on this node and the engine has {gpus.count}"
        yield _error(where, text, "correct the sizes or the engine's gpus")
    elif here < gpus.count:
        text = f"{spelled}{over} uses {here} of the engine's {gpus.count} GPUs, the others idle"
        yield _warning(where, text, "correct the sizes or the engine's gpus")


def _one_copy(settings: Settings) -> bool:
    """Whether this server holds one of several copies, the others being servers of their own."""
    names = ("--data-parallel-rank", "--data-parallel-start-rank", "--data-parallel-external-lb")
    return any(settings.given(name) for name in (*names, "--data-parallel-hybrid-lb"))


def _nodes(settings: Settings, _gpus: Gpus) -> Iterator[Problem]:
    nodes, rank = settings.count("--nnodes") or 1, settings.count("--node-rank")
    if rank is not None and rank >= nodes:
        text = f"{rank} is not below --nnodes {nodes}"
        yield _error("--node-rank", text, "ranks are 0 to nodes - 1")
    if nodes > 1 and settings.given("--master-addr") is None:
        text = f"{nodes} nodes and no --master-addr: every rank waits for itself without a word"
        yield _error("--nnodes", text, "add --master-addr with the address of rank 0")
    if nodes > 1 and rank is None:
        text = f"{nodes} nodes and no --node-rank: every node takes itself for rank 0"
        yield _error("--nnodes", text, "add --node-rank")


def _headless(settings: Settings, _gpus: Gpus) -> Iterator[Problem]:
    if settings.on("--headless") and (settings.count("--api-server-count") or 0) > 0:
        text = "contradicts --api-server-count: a headless rank has no API server"
        yield _error("--headless", text, "remove one of the two")


def _numa(settings: Settings, gpus: Gpus) -> Iterator[Problem]:
    where = "--numa-bind-nodes"
    nodes = settings.texts(where)
    if not nodes or not gpus.count:
        return
    if any(not node.isdecimal() for node in nodes):
        yield _error(where, f"{' '.join(nodes)[:40]} are no NUMA nodes", "write one number a GPU")
    elif len(nodes) < gpus.count:
        text = f"names {len(nodes)} nodes for {gpus.count} GPUs: the worker of GPU {len(nodes)} fails"
        yield _error(where, text, "name one node for each GPU, in the order of the GPUs")
    elif len(nodes) > gpus.count:
        text = f"names {len(nodes)} nodes for {gpus.count} GPUs"
        yield _warning(where, text, "name one node for each GPU, in the order of the GPUs")


def _executor(settings: Settings, _gpus: Gpus) -> Iterator[Problem]:
    if settings.text("--distributed-executor-backend") == "ray":
        text = "Ray adds latency to each step, and its workers are not children of the engine"
        yield _warning("--distributed-executor-backend", text, "use mp, with --nnodes over several nodes")


def _offload(settings: Settings, _gpus: Gpus) -> Iterator[Problem]:
    backend = settings.text("--offload-backend")
    if backend == "uva" and not settings.on("--cpu-offload-gb"):
        text = "uva offloads nothing without --cpu-offload-gb"
        yield _error("--offload-backend", text, "add --cpu-offload-gb or remove it")
    if backend == "prefetch" and not settings.on("--offload-group-size"):
        text = "prefetch offloads nothing without --offload-group-size"
        yield _error("--offload-backend", text, "add --offload-group-size or remove it")
    if backend == "prefetch" and settings.on("--cpu-offload-gb"):
        text = "is for the backend uva, and --offload-backend is prefetch"
        yield _error("--cpu-offload-gb", text, "keep the one that is meant")


_RULES: tuple[Rule, ...] = (
    _memory_share,
    _batch,
    _spread,
    _nodes,
    _headless,
    _numa,
    _executor,
    _offload,
)
