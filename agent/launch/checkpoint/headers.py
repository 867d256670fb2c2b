"""Headers of safetensors files: the names, types and sizes of their tensors; no tensor is read.

The format (huggingface/safetensors): 8 bytes little-endian length N, N bytes of JSON, then the tensors, which
fill the rest of the file without a hole or an overlap.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from agent.launch.checkpoint.fault import CheckpointFault, unreadable
from agent.launch.checkpoint.regular import open_regular

#: The format's own bound.
MAX_HEADER_BYTES = 100_000_000
LENGTH_BYTES = 8
#: Bits of one element.
DTYPE_BITS = {
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 64),
    **dict.fromkeys(("F32", "I32", "U32"), 32),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 16),
    **dict.fromkeys(("I8", "U8", "BOOL", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    "F4": 4,
}


class Tensor(NamedTuple):
    """One tensor as the header describes it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Shard:
    """One safetensors file."""

    path: Path
    file_bytes: int
    tensors: tuple[Tensor, ...]

    @property
    def tensor_bytes(self) -> int:
        """Bytes of its tensors, the header left out."""
        return sum(tensor.size_bytes for tensor in self.tensors)


def read_shard(path: Path) -> Shard:
    """Read one header. CheckpointFault for a wrong file, SourceUnavailable for one that cannot be read."""
    try:
        with open_regular(path) as file:
            file_bytes = os.fstat(file.fileno()).st_size
            text = _header_text(path, file.read(LENGTH_BYTES), file_bytes)
            raw = file.read(text)
    except OSError as cause:
        raise unreadable(path, cause) from cause
    if len(raw) < text:
        raise CheckpointFault(path, f"ends within its header, after {len(raw)} of {text} bytes")
    tensors = _tensors(path, _parse(path, raw), file_bytes - LENGTH_BYTES - text)
    return Shard(path, file_bytes, tensors)


def _header_text(path: Path, length: bytes, file_bytes: int) -> int:
    """The header's length, proven to be possible."""
    if len(length) < LENGTH_BYTES:
        raise CheckpointFault(path, f"has {file_bytes} bytes, too short for a safetensors file")
    size = int.from_bytes(length, "little")
    if size > MAX_HEADER_BYTES:
        raise CheckpointFault(
            path, f"claims a header of {size} bytes, more than the format's {MAX_HEADER_BYTES}"
        )
    if size > file_bytes - LENGTH_BYTES:
        raise CheckpointFault(path, f"has {file_bytes} bytes and claims a header of {size}")
    return size


def _parse(path: Path, raw: bytes) -> dict[str, Any]:
    """The header's JSON."""
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError) as cause:
        raise CheckpointFault(path, f"has a header that is no JSON ({str(cause)[:80]})") from cause
    if not isinstance(found, dict):
        raise CheckpointFault(path, "has a header that is no JSON object")
    found.pop("__metadata__", None)
    return found


def _tensors(path: Path, header: dict[str, Any], data_bytes: int) -> tuple[Tensor, ...]:
    """The tensors in order of their place, proven to fill the rest of the file."""
    placed = sorted((_place(path, name, entry) for name, entry in header.items()), key=itemgetter(0, 1))
    at = 0
    for begin, end, tensor in placed:
        if begin != at:
            what = "overlaps the one before it" if begin < at else "leaves a hole before it"
            raise CheckpointFault(path, f"tensor {tensor.name[:200]} {what} (byte {begin}, expected {at})")
        at = end
    if at > data_bytes:
        text = f"is cut short: its header describes {at} bytes of tensors and {data_bytes} follow"
        raise CheckpointFault(path, text)
    if at < data_bytes:
        text = f"is too long: its header describes {at} bytes of tensors and {data_bytes} follow"
        raise CheckpointFault(path, text)
    return tuple(tensor for _, _, tensor in placed)


def _place(path: Path, name: str, entry: Any) -> tuple[int, int, Tensor]:
    """Begin, end and description of one tensor."""
    try:
        dtype, shape = entry["dtype"], entry["shape"]
        begin, end = entry["data_offsets"]
        good = type(dtype) is str and type(shape) is list and type(begin) is int and type(end) is int
        good = good and all(type(n) is int and n >= 0 for n in shape)
    except (TypeError, KeyError, ValueError) as cause:
        raise CheckpointFault(path, f"does not describe tensor {name[:200]} as the format has it") from cause
    if not good or not 0 <= begin <= end:
        raise CheckpointFault(path, f"does not describe tensor {name[:200]} as the format has it")
    bits = DTYPE_BITS.get(dtype)
    if bits is not None and math.prod(shape) * bits != (end - begin) * 8:
        text = f"tensor {name[:200]}: {dtype} of shape {shape} takes other than its {end - begin} bytes"
        raise CheckpointFault(path, text)
    return begin, end, Tensor(name, dtype, tuple(shape), end - begin)
