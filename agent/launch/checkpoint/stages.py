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
    parts = list(spread.partition or rules.even_split(layers, spread.pipeline))
    if sum(parts) != layers:
        raise LaunchError(
            f"{PARTITION} sums up to {sum(parts)} layers and config.json has {layers}; make them equal"
        )
    return list(rules.ranges(parts))


def stage_of(name: str, spread: Spread, stages: list[range], layers: int | None) -> int | None:
    """The stage that loads a tensor, None for one that no stage loads."""
    last = len(stages) - 1
    layer = rules.layer_of(name)
    if layer is None:
        if rules.is_vision(name) and spread.language_only:
            return None
        return last if rules.is_head(name) and not rules.is_vision(name) else 0
    if layers is not None and layer >= layers:
        return last if spread.drafts else None  # layers beyond the model's own draft tokens ahead
    return next((stage for stage, span in enumerate(stages) if layer in span), None)


def weigh(tensors: Iterable[Tensor], spread: Spread, config: ModelConfig | None) -> list[StageWeights]:
    """The weights of every stage, from all the tensors that are known."""
    layers = config.layers if config else None
    spans = layer_ranges(spread, layers)
    stages = [StageWeights(span) for span in spans]
    has_head = False
    embedding: list[Tensor] = []
    for tensor in tensors:
        stage = stage_of(tensor.name, spread, spans, layers)
        if stage is None:
            continue
        has_head = has_head or "lm_head" in tensor.name
        if rules.is_embedding(tensor.name):
            embedding.append(tensor)
        _count(stages[stage], tensor, spread, config)
    if len(stages) > 1 and not has_head and (config is None or config.tied):
        for tensor in embedding:  # the last stage needs it as its output head
            _count(stages[-1], tensor, spread, config)
    return stages


def _count(stage: StageWeights, tensor: Tensor, spread: Spread, config: ModelConfig | None) -> None:
    """Add one tensor to a stage."""
    size = float(tensor.size_bytes)
    if tensor.dtype == "F32" and not spread.float32 and rules.halves_as_float32(tensor.name):
        size /= 2
    own = stage.add(size, _parts(tensor, spread, config))
    layer = rules.layer_of(tensor.name)
    if layer is None or spread.offload_gib <= 0:
        return  # vLLM offloads parameters of layers only
    fused = rules.parameter(tensor.name)
    if not spread.offload_params or rules.matches((tensor.name, fused), spread.offload_params):
        key = (layer, fused)
        stage.offloadable[key] = stage.offloadable.get(key, 0.0) + own


def _parts(tensor: Tensor, spread: Spread, config: ModelConfig | None) -> int:
    """In how many parts a tensor is divided."""
    if rules.is_expert(tensor.name) and len(tensor.shape) >= 2:
        return spread.tensor * spread.data  # routed experts are shared by data-parallel replicas too
    if rules.is_replicated(tensor.name, tensor.shape):
        return 1
    heads = config.first("num_key_value_heads") if config else None
    if heads is not None and rules.is_key_value(tensor.name):
        return min(spread.tensor, heads)
    return spread.tensor
