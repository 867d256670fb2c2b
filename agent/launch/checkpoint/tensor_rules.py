"""Simple rules, by name and shape alone: where a tensor goes when a model is split over GPUs (pure).

They are read off vLLM's layers and meant to be honest, not exact: what comes out is an average over the ranks
of a tensor-parallel group. Norms, one-dimensional tensors, routers and the compressing projections of
multi-head latent attention are on every rank; everything else is divided.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.(\d{1,6})\.")
_VISION = re.compile(r"(?:^|\.)(?:vision\w*|visual|image_\w+|mm_projector|multi_modal_projector|audio\w*)\.")
_REPLICATED = re.compile(
    r"norm|(?:^|\.)(?:mlp|ffn|moe|feed_forward|block_sparse_moe)\.gate\.|(?:^|\.)router\.|shared_expert_gate\.|_a_proj"
)
_EXPERT = re.compile(r"(?:^|\.)experts\.")
_FIRST = re.compile(r"(?:^|\.)(?:embed_tokens|wte|wpe|word_embeddings|tok_embeddings|embed_in)\.")
_LAST = re.compile(
    r"(?:^|\.)(?:lm_head|output|embed_out|norm|ln_f|final_layernorm|final_layer_norm|model_norm)\.[^.]+$"
)
_KEY_VALUE = re.compile(r"\.(?:k_proj|v_proj)\.")
_SCALE = re.compile(r"scale|zero|bias")
#: Projections that vLLM loads into one parameter.
_FUSED = {
    "gate_proj": "gate_up_proj", "up_proj": "gate_up_proj",
    "q_proj": "qkv_proj", "k_proj": "qkv_proj", "v_proj": "qkv_proj",
}  # fmt: skip
_EXPERT_PART = {
    **dict.fromkeys(("gate_proj", "up_proj", "gate_up_proj", "w1", "w3", "w13"), "w13"),
    **dict.fromkeys(("down_proj", "w2"), "w2"),
}
_EXPERT_NAME = re.compile(
    r"^(?P<before>.*\bexperts)\.(?:\d+\.)?(?P<part>gate_up_proj|gate_proj|up_proj|down_proj|w13|w1|w2|w3)"
    r"(?:[._](?P<kind>[\w.]+))?$"
)
#: How checkpoints call what is a weight: packed 4-bit values in bytes or words.
_WEIGHTS = frozenset({"weight", "weight_packed", "qweight", "blocks", None})


class Traits(NamedTuple):
    """What the name of a tensor says. `parameter` is what the engine loads it into; `name` has expert 0."""

    name: str
    layer: int | None
    vision: bool
    expert: bool
    embedding: bool
    head: bool
    replicated: bool
    key_value: bool
    #: A float32 tensor of this name is converted to the model's 16-bit type when it is loaded.
    converted: bool
    parameter: str


def traits(name: str) -> Traits:
    """The traits of a tensor. Experts of one layer are alike, and there are many: they are looked at once."""
    before, mark, after = name.partition(".experts.")
    if mark:
        number, dot, rest = after.partition(".")
        if dot and number.isdecimal():
            return _traits(f"{before}.experts.0.{rest}")
    return _traits(name)


@lru_cache(maxsize=1 << 16)
def _traits(name: str) -> Traits:
    match = _LAYER.search(name)
    vision = _VISION.search(name) is not None
    replicated = _REPLICATED.search(name) is not None
    return Traits(
        name=name,
        layer=int(match[1]) if match and not vision else None,
        vision=vision,
        expert=_EXPERT.search(name) is not None,
        embedding=_FIRST.search(name) is not None,
        head=_LAST.search(name) is not None and not vision,
        replicated=replicated,
        key_value=_KEY_VALUE.search(name) is not None,
        converted=_SCALE.search(name) is None and not replicated,
        parameter=parameter(name),
    )


def parameter(name: str) -> str:
    """The engine's parameter that a tensor is loaded into: experts as one, joined projections as one."""
    match = _EXPERT_NAME.match(name)
    if match is None:
        return ".".join(_FUSED.get(part, part) for part in name.split("."))
    kind = match["kind"]
    if kind in _WEIGHTS:
        kind = "weight"
    elif kind == "scales":
        kind = "weight_scale"
    return f"{match['before']}.{_EXPERT_PART[match['part']]}_{kind}"


@lru_cache(maxsize=1 << 16)
def matches(names: tuple[str, ...], wanted: frozenset[str]) -> bool:
    """Whether one of these names holds one of the wanted ones as whole segments, as vLLM compares them."""
    return any(f".{want}." in f".{name}." for name in names for want in wanted)


def even_split(layers: int, stages: int) -> list[int]:
    """vLLM's own split: what does not divide goes to the last stages but the very last."""
    parts = [layers // stages] * stages
    for back in range(2, layers % stages + 2):
        parts[-back] += 1
    return parts


def ranges(parts: list[int]) -> Iterator[range]:
    """The layers of each stage."""
    begin = 0
    for part in parts:
        yield range(begin, begin + part)
        begin += part
