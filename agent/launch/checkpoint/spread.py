"""How an engine's flags spread its model: over ranks, stages, nodes and host memory (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent.errors import LaunchError
from agent.launch.arguments import Parallel, flag_value, flag_values, has_flag, parallel_sizes
from agent.launch.engine_argv import given_arguments
from agent.launch_parts import EngineKind, Runtime
from agent.node_profile import Engine

PARTITION = "VLLM_PP_LAYER_PARTITION"
#: What vLLM takes of the device's memory where no flag says it.
VLLM_UTILISATION = 0.92
_DIGITS = 12


@dataclass(frozen=True, slots=True)
class Rank:
    """One worker of this node: its stage, its tensor-parallel group, the slot of its GPU."""

    stage: int
    group: int
    slot: int


@dataclass(frozen=True, slots=True)
class Spread:
    """What the flags say, with their defaults filled in."""

    tensor: int
    pipeline: int
    data: int
    nodes: int
    node: int
    ranks: tuple[Rank, ...]
    utilisation: float
    utilisation_from: str
    offload_gib: float
    offload_params: frozenset[str]
    prefetch_offload: bool
    cache_dtype: str
    max_model_len: int | None
    partition: tuple[int, ...] | None
    worker_bind: bool
    bind_nodes: tuple[int, ...]
    language_only: bool
    drafts: bool
    float32: bool
    converts: bool
    dummy: bool
    #: Memory limit of the engine's container, which offloaded weights count against.
    container_gib: float | None = None
    #: Further flags are in a file of the engine's own (--config), which is not read here.
    config_file: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def stages_here(self) -> tuple[int, ...]:
        """The pipeline stages that this node holds, sorted."""
        return tuple(sorted({rank.stage for rank in self.ranks}))

    @property
    def spans_nodes(self) -> bool:
        """Whether a tensor-parallel group is on more than one node."""
        return self.nodes > 1 and self.tensor > max(1, self.tensor * self.pipeline // self.nodes)


def spread_of(name: str, engine: Engine) -> Spread:
    """Read it off the profile. LaunchError for a value that cannot be."""
    launch = engine.launch
    args = given_arguments(engine)
    sizes = parallel_sizes(args)
    nodes, node = _nodes(name, engine, args)
    ranks, notes = _ranks(sizes, nodes, node, engine.gpus)
    sglang = launch.kind is EngineKind.SGLANG
    share, origin = _utilisation(name, args, sglang=sglang)
    return Spread(
        tensor=sizes.tensor,
        pipeline=sizes.pipeline,
        data=sizes.data,
        nodes=nodes,
        node=node,
        ranks=ranks,
        utilisation=share,
        utilisation_from=origin,
        offload_gib=_number(name, args, "--cpu-offload-gb", 0.0),
        offload_params=frozenset(flag_values(args, "--cpu-offload-params")),
        prefetch_offload=flag_value(args, "--offload-backend") == "prefetch"
        or flag_value(args, "--offload-group-size") not in (None, "0"),
        cache_dtype=flag_value(args, "--kv-cache-dtype") or "auto",
        max_model_len=_whole(flag_value(args, "--context-length" if sglang else "--max-model-len")),
        partition=_partition(name, launch.env.get(PARTITION), sizes.pipeline),
        worker_bind=has_flag(args, "--numa-bind"),
        bind_nodes=tuple(int(n) for n in flag_values(args, "--numa-bind-nodes") if _plain(n)),
        language_only=has_flag(args, "--language-model-only"),
        drafts=has_flag(args, "--speculative-config") or has_flag(args, "--speculative-algorithm"),
        float32=flag_value(args, "--dtype") in ("float32", "float"),
        converts=has_flag(args, "--quantization") or has_flag(args, "-q"),
        dummy=flag_value(args, "--load-format") == "dummy",
        container_gib=launch.container.memory_gib
        if launch.runtime is Runtime.PODMAN and launch.container
        else None,
        config_file=flag_value(args, "--config"),
        notes=notes,
    )


def _nodes(name: str, engine: Engine, args: Sequence[str]) -> tuple[int, int]:
    """How many nodes one model is on, and which of them this is."""
    if engine.group is not None:
        return len(engine.group.members), engine.group.rank
    nodes = int(_number(name, args, "--nnodes", 1))
    node = int(_number(name, args, "--node-rank", 0))
    if nodes < 1 or not 0 <= node < nodes:
        raise LaunchError(f"engine {name}: --nnodes {nodes} and --node-rank {node} do not go together")
    return nodes, node


def _ranks(
    sizes: Parallel, nodes: int, node: int, slots: Sequence[int]
) -> tuple[tuple[Rank, ...], tuple[str, ...]]:
    """The workers here. Ranks count through a tensor-parallel group first, then stages, then replicas."""
    needs = sizes.world / nodes
    replicas = min(int(len(slots) / needs), sizes.data)  # further replicas are on other nodes
    used = slots[: max(int(replicas * needs), 0)] if replicas else slots
    first = node * (sizes.world // nodes)
    ranks = tuple(
        Rank(
            stage=(first + at) // sizes.tensor % sizes.pipeline, group=(first + at) // sizes.tensor, slot=slot
        )
        for at, slot in enumerate(used)
    )
    if len(used) == len(slots) and (not slots or len(slots) % needs == 0):
        return ranks, ()
    shape = f"TP {sizes.tensor} x PP {sizes.pipeline} x DP {sizes.data} over {nodes} node(s)"
    return ranks, (f"{shape} takes {needs * max(replicas, 1):g} GPUs here, not {len(slots)}",)


def _utilisation(name: str, args: Sequence[str], *, sglang: bool) -> tuple[float, str]:
    """The share of the device's memory that the engine takes, and who says so."""
    flag = "--mem-fraction-static" if sglang else "--gpu-memory-utilization"
    given = flag_value(args, flag)
    if not sglang and has_flag(args, "--kv-cache-memory-bytes"):
        return 1.0, "kv-cache-memory-bytes is set, so no share counts"
    if given is None:
        # SGLang works its share out when it starts; all of the device is the only safe bound.
        return (1.0, "not set: at most all") if sglang else (VLLM_UTILISATION, "vLLM's default")
    share = _number(name, args, flag, 0.0)
    if not 0 < share <= 1:
        raise LaunchError(f"engine {name}: {flag} is {given}; write a share above 0 and up to 1")
    return share, flag


def _partition(name: str, text: str | None, stages: int) -> tuple[int, ...] | None:
    """Layers by stage from the environment variable."""
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != stages or not all(map(_plain, parts)):
        raise LaunchError(
            f"engine {name}: {PARTITION} is {text[:80]!r}; "
            f"write {stages} whole numbers, one a stage, with commas"
        )
    return tuple(map(int, parts))


def _number(name: str, args: Sequence[str], flag: str, default: float) -> float:
    """A flag's number."""
    text = flag_value(args, flag)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e12:
        raise LaunchError(f"engine {name}: {flag} is {text[:40]!r}; write a number")
    return value


def _whole(text: str | None) -> int | None:
    """A whole number as people write it (`32k` = 32000, `32K` = 32768); None for `auto` and anything else."""
    if text is None:
        return None
    factor = {"k": 1000, "K": 1024, "m": 10**6, "M": 1 << 20}.get(text[-1:], 0)
    digits = text[:-1] if factor else text
    return int(digits) * (factor or 1) if _plain(digits) else None


def _plain(text: str) -> bool:
    """Whether it is a whole number of a sane length."""
    return text.isdecimal() and len(text) <= _DIGITS
