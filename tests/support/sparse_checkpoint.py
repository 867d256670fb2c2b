"""Checkpoints with real headers and no data: safetensors files whose tensors are holes (sparse files)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

BITS = {"BF16": 16, "F32": 32, "U8": 8, "I8": 8}
#: The deployment of two 8-GPU nodes: what its report says, in bytes.
D4_BYTES = 1_560_936_091_448
D4_LAYERS, D4_STAGE_0 = 93, 48
D4_SHARDS = 96
HIDDEN = 7168
#: 400 x 3568: 4-bit experts whose first 18 layers make 32.16 GiB a GPU at TP8.
EXPERTS, INNER = 400, 3568

Shape = tuple[str, tuple[int, ...]]


def size_of(dtype: str, shape: tuple[int, ...]) -> int:
    return math.prod(shape) * BITS[dtype] // 8


def header(tensors: Mapping[str, Shape]) -> bytes:
    """The header of a file that holds these tensors one after another."""
    at, entries = 0, {}
    for name, (dtype, shape) in tensors.items():
        end = at + size_of(dtype, shape)
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, end]}
        at = end
    return json.dumps({"__metadata__": {"format": "pt"}, **entries}).encode()


def write_shard(path: Path, tensors: Mapping[str, Shape], *, extra_bytes: int = 0, pad: int = 0) -> int:
    """Write one file as a hole after its header; its length. `pad` blanks lengthen the header."""
    text = header(tensors) + b" " * pad
    size = 8 + len(text) + sum(size_of(*shape) for shape in tensors.values()) + extra_bytes
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(size)
    return size


def write_checkpoint(
    folder: Path, shards: Mapping[str, Mapping[str, Shape]], config: Mapping[str, Any] | None = None
) -> None:
    """Files, index and config."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, tensors in shards.items():
        write_shard(folder / name, tensors)
    weights = {tensor: name for name, tensors in shards.items() for tensor in tensors}
    total = sum(size_of(*shape) for tensors in shards.values() for shape in tensors.values())
    write_index(folder, weights, total)
    (folder / "config.json").write_text(json.dumps(config or small_config()))


def write_index(folder: Path, weights: Mapping[str, str], total: int) -> None:
    data = {"metadata": {"total_size": total}, "weight_map": dict(weights)}
    (folder / "model.safetensors.index.json").write_text(json.dumps(data))


def small_config(**changes: Any) -> dict[str, Any]:
    """A dense model of four layers."""
    config = {
        "num_hidden_layers": 4,
        "hidden_size": 1024,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "dtype": "bfloat16",
        "max_position_embeddings": 4096,
    }
    return config | changes


def small_layer(layer: int) -> dict[str, Shape]:
    name = f"model.layers.{layer}"
    return {
        f"{name}.self_attn.q_proj.weight": ("BF16", (1024, 1024)),
        f"{name}.self_attn.k_proj.weight": ("BF16", (512, 1024)),
        f"{name}.mlp.gate_proj.weight": ("BF16", (4096, 1024)),
        f"{name}.input_layernorm.weight": ("BF16", (1024,)),
    }


def small_shards() -> dict[str, dict[str, Shape]]:
    """Four layers in two files, with embedding and head."""
    names = [f"model-{n:05d}-of-00002.safetensors" for n in (1, 2)]
    first = {"model.embed_tokens.weight": ("BF16", (2048, 1024)), **small_layer(0), **small_layer(1)}
    tail = {"model.norm.weight": ("BF16", (1024,)), "lm_head.weight": ("BF16", (2048, 1024))}
    return {names[0]: first, names[1]: {**small_layer(2), **small_layer(3), **tail}}


def d4_layer(layer: int, rest_rows: int) -> dict[str, Shape]:
    """One layer: 4-bit experts with a scale for every 32 values, the rest as one matrix, a router, norms."""
    name = f"language_model.model.layers.{layer}"
    moe = f"{name}.block_sparse_moe"
    values = HIDDEN // 2  # two to a byte
    return {
        f"{moe}.experts.gate_up_proj": ("U8", (EXPERTS, 2 * INNER, values)),
        f"{moe}.experts.down_proj": ("U8", (EXPERTS, HIDDEN, INNER // 2)),
        f"{moe}.experts.gate_up_proj_scales": ("U8", (EXPERTS, 2 * INNER, HIDDEN // 32)),
        f"{moe}.experts.down_proj_scales": ("U8", (EXPERTS, HIDDEN * INNER // 32)),
        f"{moe}.gate.weight": ("BF16", (EXPERTS, HIDDEN)),
        f"{name}.self_attn.o_proj.weight": ("BF16", (rest_rows, HIDDEN)),
        f"{name}.input_layernorm.weight": ("BF16", (HIDDEN,)),
    }


def d4_config() -> dict[str, Any]:
    """One layer in four attends in full; latent attention. Made up but for the number of layers."""
    full = list(range(4, D4_LAYERS + 1, 4))
    text = {
        "num_hidden_layers": D4_LAYERS,
        "hidden_size": HIDDEN,
        "kv_lora_rank": 512,
        "qk_rope_head_dim": 64,
        "num_attention_heads": 64,
        "num_key_value_heads": 64,
        "linear_attn_config": {"full_attn_layers": full},
        "dtype": "bfloat16",
        "quantization_config": {"quant_method": "mxfp4"},
    }
    return {"architectures": ["Made"], "text_config": text}


def d4_shards() -> dict[str, dict[str, Shape]]:
    """The tensors by file: stage 0 in the first 51 files, stage 1 in the last 48, three shared."""
    stage_files = (range(51), range(48, D4_SHARDS))
    layers = (range(D4_STAGE_0), range(D4_STAGE_0, D4_LAYERS))
    shards: dict[str, dict[str, Shape]] = {_d4_name(n): {} for n in range(D4_SHARDS)}
    for files, numbers in zip(stage_files, layers, strict=True):
        tensors = [item for layer in numbers for item in d4_layer(layer, 29_500).items()]
        for at, (name, shape) in enumerate(tensors):
            shards[_d4_name(files[at * len(files) // len(tensors)])][name] = shape
    shards[_d4_name(0)]["language_model.model.embed_tokens.weight"] = ("BF16", (163_840, HIDDEN))
    shards[_d4_name(95)]["language_model.lm_head.weight"] = ("BF16", (163_840, HIDDEN))
    shards[_d4_name(95)]["language_model.model.norm.weight"] = ("BF16", (HIDDEN,))
    return shards


def _d4_name(number: int) -> str:
    return f"model-{number + 1:05d}-of-{D4_SHARDS:05d}.safetensors"


def write_d4(folder: Path) -> None:
    """The checkpoint to the byte: what the shapes leave open goes into one more tensor."""
    shards = d4_shards()
    written = sum(8 + len(header(t)) + sum(size_of(*s) for s in t.values()) for t in shards.values())
    last = shards[_d4_name(95)]
    name = "language_model.model.layers.92.self_attn.rest.weight"
    left, entry = D4_BYTES - written, 0
    for _ in range(3):  # its own entry in the header has a length too
        size = (left - entry) // 16
        entry = len(header({**last, name: ("I8", (size, 16))})) - len(header(last))
    last[name] = ("I8", (size, 16))
    write_checkpoint(folder, shards, d4_config())
    pad = D4_BYTES - sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    write_shard(folder / _d4_name(95), last, pad=pad)
