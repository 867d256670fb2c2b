"""An estimate of the key-value cache: bytes a token on one GPU, from config.json alone (pure).

Known are the two common forms: keys and values by head, and the one latent vector of multi-head latent
attention. A model that mixes in other layers is reckoned only where config.json says which layers attend in
full.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agent.launch.checkpoint.model_config import ModelConfig

#: Bytes of one element; auto is the model's own type.
CACHE_BYTES = {
    **dict.fromkeys(("float32", "float"), 4.0),
    **dict.fromkeys(("bfloat16", "bf16", "float16", "half"), 2.0),
    **dict.fromkeys(("fp8", "fp8_e4m3", "fp8_e5m2"), 1.0),
}
#: config.json of a model whose layers do not all keep keys and values has such keys.
_MIXED = (
    "mamba",
    "ssm",
    "linear_attn",
    "linear_conv",
    "linear_num",
    "layers_block_type",
    "hybrid",
    "recurrent",
)


@dataclass(frozen=True, slots=True)
class CacheEstimate:
    """Bytes that one token takes on one GPU of a stage, and how that was reckoned."""

    token_bytes: float
    arithmetic: str


def estimate(config: ModelConfig | None, layers: range, tensor: int, cache_dtype: str) -> CacheEstimate | str:
    """The estimate for the layers of one stage, or why there is none."""
    if config is None:
        return "config.json could not be read"
    if config.layers is None:  # the range of all layers is then as good as endless
        return "config.json names no number of layers"
    element = CACHE_BYTES.get(config.dtype or "" if cache_dtype == "auto" else cache_dtype)
    if element is None:
        name = (
            f"auto ({config.dtype or 'config.json names no dtype'})" if cache_dtype == "auto" else cache_dtype
        )
        return f"the size of a cache element of type {name} is not known"
    attending = _attending(config.text, layers)
    if attending is None:
        return "config.json does not say which of its layers keep keys and values"
    one = _layer(config, tensor)
    if one is None:
        return "config.json has none of the forms of attention that are known"
    values, words = one
    return CacheEstimate(
        attending * values * element, f"{attending} attending layers x {words} x {element:g} bytes"
    )


def _layer(config: ModelConfig, tensor: int) -> tuple[int, str] | None:
    """Elements of one token in one layer on one GPU."""
    latent, rope = config.first("kv_lora_rank"), config.first("qk_rope_head_dim")
    if latent is not None:
        # A model without rotary part says 0 or nothing.
        return latent + (rope or 0), f"({latent} kv_lora_rank + {rope or 0} qk_rope_head_dim)"
    heads = config.first("num_attention_heads", "n_head")
    kv_heads = config.first("num_key_value_heads") or heads
    hidden = config.first("hidden_size", "n_embd")
    width = config.first("head_dim") or (hidden // heads if hidden and heads else None)
    if not kv_heads or not width:
        return None
    own = max(1, kv_heads // tensor)
    return 2 * own * width, f"2 (key, value) x {own} of {kv_heads} heads x {width} head_dim"


def _attending(text: Mapping[str, Any], layers: range) -> int | None:
    """Layers of a stage that attend in full; None where that is not told."""
    kinds = text.get("layer_types")
    if isinstance(kinds, list) and all(isinstance(kind, str) for kind in kinds):
        known = {"full_attention", "sliding_attention", "linear_attention", "chunked_attention"}
        if set(kinds) <= known and "chunked_attention" not in kinds:
            # Sliding and linear layers keep a bounded state, which does not grow with the request.
            return int(sum(kind == "full_attention" for kind in kinds[layers.start : layers.stop]))
        return None
    linear = text.get("linear_attn_config")
    if isinstance(linear, dict):
        full = linear.get("full_attn_layers")
        if isinstance(full, list) and all(type(n) is int for n in full):
            return sum(n - 1 in layers for n in full)  # counted from 1
        return None
    every = text.get("full_attention_interval")
    if type(every) is int and every > 0:
        return sum((n + 1) % every == 0 for n in layers)
    if any(mark in key for key in text for mark in _MIXED):
        return None
    if isinstance(text.get("sliding_window"), int) and text.get("use_sliding_window", True) is not False:
        return None
    return len(layers)
