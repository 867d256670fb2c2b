"""Weights of each pipeline stage: bytes a GPU after the tensor-parallel split, and what can be offloaded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from agent.errors import LaunchError
from agent.launch.checkpoint import tensor_rules as rules
from agent.launch.checkpoint.headers import Tensor
from agent.launch.checkpoint.model_config import ModelConfig
from agent.launch.checkpoint.spread import PARTITION, Spread

GIB = float(1 << 30)
MOST_LAYERS = 1 << 16


@dataclass
class StageWeights:
    """Bytes of one stage; `whole_bytes` are on each of its GPUs."""

    layers: range
    #: Bytes that are divided, by the number of parts.
    by_parts: dict[int, float] = field(default_factory=dict)
    whole_bytes: float = 0.0
    #: Bytes a GPU of each parameter that may be offloaded, by layer and name.
    offloadable: dict[tuple[int, str], float] = field(default_factory=dict)

    @property
    def per_gpu_bytes(self) -> float:
        """Bytes on one GPU, before offload."""
        return sum(size / parts for parts, size in self.by_parts.items()) + self.whole_bytes

    @property
    def offloadable_bytes(self) -> float:
        """Bytes a GPU that may be offloaded."""
        return sum(self.offloadable.values())

    def offloaded_bytes(self, limit_gib: float) -> float:
        """As vLLM does it: whole parameters, layer after layer, until the limit is reached or passed."""
        moved = 0.0
        for _, size in sorted(self.offloadable.items()):
            if moved >= limit_gib * GIB:
                break
            moved += size
        return moved

    def add(self, size: float, parts: int) -> float:
        """Count a tensor in so many parts; what one GPU gets of it."""
        if parts == 1:
            self.whole_bytes += size
        else:
            self.by_parts[parts] = self.by_parts.get(parts, 0.0) + size
        return size / parts


def layer_ranges(spread: Spread, layers: int | None) -> list[range]:
    """The layers of each stage. LaunchError where they cannot be told."""
    if layers is None:
        if spread.pipeline > 1:
            raise LaunchError("config.json names no number of layers, so stages cannot be told apart")
        return [range(1 << 30)]
    if layers > MOST_LAYERS:
        raise LaunchError(f"config.json has {layers} layers, which no model has; copy it again")
    parts = list(spread.partition or rules.even_split(layers, spread.pipeline))
    if sum(parts) != layers:
        raise LaunchError(
            f"{PARTITION} sums up to {sum(parts)} layers and config.json has {layers}; make them equal"
        )
    return list(rules.ranges(parts))


class Stages:
    """Which stage loads a tensor."""

    def __init__(self, spread: Spread, layers: int | None) -> None:
        """LaunchError where stages cannot be told apart."""
        self.spans = layer_ranges(spread, layers)
        self._last = len(self.spans) - 1
        self._layers = layers
        self._by_layer = {} if layers is None else {n: at for at, span in enumerate(self.spans) for n in span}
        self._language_only = spread.language_only
        self._drafts = spread.drafts

    def of(self, seen: rules.Traits) -> int | None:
        """The stage, None for a tensor that no stage loads."""
        if seen.layer is None:
            if seen.vision and self._language_only:
                return None
            return self._last if seen.head else 0
        if self._layers is None:
            return 0
        if seen.layer >= self._layers:
            return self._last if self._drafts else None  # layers beyond the model's own draft tokens ahead
        return self._by_layer[seen.layer]


def weigh(tensors: Iterable[Tensor], spread: Spread, config: ModelConfig | None) -> list[StageWeights]:
    """The weights of every stage, from all the tensors that are known."""
    where = Stages(spread, config.layers if config else None)
    heads = config.first("num_key_value_heads") if config else None
    stages = [StageWeights(span) for span in where.spans]
    has_head = False
    embedding: list[Tensor] = []
    for tensor in tensors:
        seen = rules.traits(tensor.name)
        stage = where.of(seen)
        if stage is None:
            continue
        if seen.embedding:
            embedding.append(tensor)
        elif seen.head:
            has_head = has_head or "lm_head" in tensor.name
        _count(stages[stage], tensor, seen, spread, heads)
    if len(stages) > 1 and not has_head and (config is None or config.tied):
        for tensor in embedding:  # the last stage needs it as its output head
            _count(stages[-1], tensor, rules.traits(tensor.name), spread, heads)
    return stages


def _count(
    stage: StageWeights, tensor: Tensor, seen: rules.Traits, spread: Spread, heads: int | None
) -> None:
    """Add one tensor to a stage."""
    size = float(tensor.size_bytes)
    if tensor.dtype == "F32" and not spread.float32 and seen.converted:
        size /= 2
    own = stage.add(size, _parts(tensor, seen, spread, heads))
    if seen.layer is None or spread.offload_gib <= 0:
        return  # vLLM offloads parameters of layers only
    key = (seen.layer, seen.parameter)
    if key in stage.offloadable:
        stage.offloadable[key] += own
    elif not spread.offload_params or rules.matches((seen.name, seen.parameter), spread.offload_params):
        stage.offloadable[key] = own


def _parts(tensor: Tensor, seen: rules.Traits, spread: Spread, heads: int | None) -> int:
    """In how many parts a tensor is divided."""
    if seen.expert and len(tensor.shape) >= 2:
        return spread.tensor * spread.data  # routed experts are shared by data-parallel replicas too
    if seen.replicated or len(tensor.shape) < 2:
        return 1
    if heads is not None and seen.key_value:
        return min(spread.tensor, heads)
    return spread.tensor
