"""The memory ledger: weights, offload and what is left, line by line with the arithmetic; what is impossible.

It refuses only what cannot be: weights that do not fit the engine's share of the device, offload that does
not fit the host. Activations, CUDA graphs and communication buffers are not reckoned; the cache is an
estimate.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from agent.launch.checkpoint.cache_estimate import CacheEstimate, estimate
from agent.launch.checkpoint.host_room import host_lines
from agent.launch.checkpoint.ledger_lines import Book, gib
from agent.launch.checkpoint.model_config import ModelConfig
from agent.launch.checkpoint.room import Room
from agent.launch.checkpoint.spread import Spread
from agent.launch.checkpoint.stages import GIB, StageWeights

_REMEDY = (
    "more GPUs, a smaller quantisation, a higher share of the memory, or weights in host memory "
    "(cpu-offload-gb) make it fit"
)


class Outcome(StrEnum):
    """What the ledger says of a launch."""

    POSSIBLE = "possible"
    IMPOSSIBLE = "impossible"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Weights:
    """What is known of the weights: by stage, and which stages are known as a whole."""

    stages: tuple[StageWeights, ...]
    complete: frozenset[int]
    total_bytes: int | None
    files: int
    config: ModelConfig | None = None


@dataclass(frozen=True, slots=True)
class Ledger:
    """Lines for people, figures for programs, problems, and what is not known."""

    book: Book
    unknown: tuple[str, ...] = ()
    facts: dict[str, float] = field(default_factory=dict)

    @property
    def outcome(self) -> Outcome:
        """Impossible counts more than unknown: what is known suffices to say no."""
        if self.book.errors:
            return Outcome.IMPOSSIBLE
        return Outcome.UNKNOWN if self.unknown else Outcome.POSSIBLE


def make_ledger(weights: Weights, spread: Spread, room: Room, reserve_gib: float) -> Ledger:
    """Reckon it (pure)."""
    uncertain = spread.prefetch_offload or spread.config_file or _converted(spread, weights.config)
    book = Book(certain=not uncertain)
    unknown = list(room.unknown)
    _total(book, weights, spread, room)
    moved: dict[int, float] = {}
    for number, stage in enumerate(weights.stages):
        here = number in spread.stages_here
        if number in weights.complete:
            moved[number] = _stage(book, number, stage, spread, room, weights.config, here=here)
        elif here:
            unknown.append(f"weights of stage {number}: files of it are not on this node")
        else:
            book.note(f"stage {number}: its files are not on this node, so its own ledger is made there")
    if spread.offload_gib > 0:
        host_lines(book, moved, spread, room, reserve_gib)
    _told(book, spread, weights.config)
    return Ledger(book, tuple(dict.fromkeys(unknown)), book.facts)


def _converted(spread: Spread, config: ModelConfig | None) -> bool:
    """Whether the engine quantises the weights itself while it loads them."""
    return spread.converts and config is not None and not config.quantised


def _told(book: Book, spread: Spread, config: ModelConfig | None) -> None:
    """What people must know of how it was reckoned."""
    for note in spread.notes:
        book.warn("launch", note, "correct engines.*.gpus or the parallel sizes")
    if _converted(spread, config):
        book.note("the engine quantises these weights while it loads them: their size then is not known here")
    if spread.config_file is not None:
        book.note(
            f"--config {spread.config_file} is not read here: sizes and shares that it sets are not reckoned"
        )
    if spread.prefetch_offload:
        book.note("offload by prefetch is not reckoned: weights are counted as if none were offloaded")
    if config is not None and config.first("index_topk") is not None:
        book.note("the cache of the sparse attention's indexer is not in the estimate")
    book.note(
        "weights a GPU are an average over the ranks of a stage: norms, routers and 1-D tensors whole, "
        "the rest / TP"
    )
    book.note("not reckoned: activations, CUDA graphs, communication buffers (some GiB a GPU)")


def _total(book: Book, weights: Weights, spread: Spread, room: Room) -> None:
    """The whole checkpoint over all ranks, as a report would give it."""
    if weights.total_bytes is None:
        book.note(
            "the size of the whole checkpoint is not known: not all files are here, and no index says it"
        )
        return
    total = weights.total_bytes
    book.line("checkpoint", f"{total} bytes in {weights.files} files", total / GIB)
    ranks = spread.tensor * spread.pipeline
    average = total / GIB / ranks
    book.line(
        "average a GPU",
        f"{gib(total / GIB)} / {ranks} ranks (TP {spread.tensor} x PP {spread.pipeline})",
        average,
    )
    book.facts["average_gib"] = average
    if not room.device_bytes:
        return
    smallest = min(room.device_bytes.values())
    book.line(
        "device memory",
        f"{smallest / (1 << 20):.0f} MiB, the smallest of {len(room.device_bytes)}",
        smallest / GIB,
    )
    left = smallest / GIB - average
    book.line(
        "left of the device", f"{gib(smallest / GIB)} - {gib(average)}, all of the device counted", left
    )
    book.facts |= {"device_gib": smallest / GIB, "left_gib": left}


def _stage(
    book: Book,
    number: int,
    stage: StageWeights,
    spread: Spread,
    room: Room,
    config: ModelConfig | None,
    *,
    here: bool,
) -> float:
    """One stage: weights, offload, room. What is moved to the host, in GiB a GPU."""
    prefix = f"stage {number}" if spread.pipeline > 1 else "weights"
    layers = (
        f"layers {stage.layers.start}-{stage.layers.stop - 1}"
        if len(stage.layers) < 1 << 20
        else "all layers"
    )
    parts = [f"{gib(size / GIB)} / {count}" for count, size in sorted(stage.by_parts.items())]
    parts.append(f"{gib(stage.whole_bytes / GIB)} whole")
    weight = stage.per_gpu_bytes / GIB
    book.line(f"{prefix}: a GPU", f"{layers}: {' + '.join(parts)}", weight)
    book.facts[f"stage{number}_weights_gib"] = weight
    moved = 0.0
    if spread.offload_gib > 0 and not spread.prefetch_offload:
        moved = _offload(book, prefix, stage, spread)
        book.facts[f"stage{number}_offload_gib"] = moved
    slots = [rank.slot for rank in spread.ranks if rank.stage == number] if here else list(room.device_bytes)
    devices = [room.device_bytes[slot] for slot in slots if slot in room.device_bytes]
    if devices:
        _room(book, prefix, number, weight - moved, min(devices) / GIB, spread, here=here)
        _cache(book, prefix, number, stage, spread, config)
    return moved


def _offload(book: Book, prefix: str, stage: StageWeights, spread: Spread) -> float:
    """What moves to host memory."""
    eligible = stage.offloadable_bytes / GIB
    moved = stage.offloaded_bytes(spread.offload_gib) / GIB
    names = " ".join(sorted(spread.offload_params)) or "any parameter of a layer"
    book.line(
        f"{prefix}: to the host",
        f"whole parameters until {spread.offload_gib:g} GiB are reached; {gib(eligible)} match {names}",
        moved,
    )
    if eligible == 0:
        book.warn(
            "cpu-offload-params", f"no tensor of {prefix} matches {names}: nothing is offloaded",
            "name parameters as the engine does, e.g. w13_weight w2_weight",
        )  # fmt: skip
    return moved


def _room(
    book: Book, prefix: str, number: int, weight: float, device: float, spread: Spread, *, here: bool
) -> None:
    """Whether the weights fit the engine's share, and what is left of it."""
    usable = device * spread.utilisation
    share = f"{spread.utilisation:g} ({spread.utilisation_from})"
    book.line(f"{prefix}: usable", f"{gib(device)} x {share}", usable)
    left = usable - weight
    book.line(f"{prefix}: left", f"{gib(usable)} - {gib(weight)} of weights on the GPU", left)
    book.facts[f"stage{number}_left_gib"] = left
    if left > 0:
        return
    text = f"{gib(weight)} of weights do not fit the {gib(usable)} that the engine may use of a GPU"
    if here:
        book.refuse(prefix, text, _REMEDY)
    else:
        book.warn(f"{prefix} (another node)", f"{text} as large as this node's", _REMEDY)


def _cache(
    book: Book, prefix: str, number: int, stage: StageWeights, spread: Spread, config: ModelConfig | None
) -> None:
    """The estimate of the cache."""
    left = book.facts[f"stage{number}_left_gib"]
    found = estimate(config, stage.layers, spread.tensor, spread.cache_dtype)
    if not isinstance(found, CacheEstimate):
        book.note(f"{prefix}: no estimate of the key-value cache: {found}")
        return
    if found.token_bytes == 0:
        book.note(f"{prefix}: no layer of it keeps keys and values that grow")
        return
    tokens = int(max(left, 0) * GIB / found.token_bytes)
    book.facts[f"stage{number}_estimated_tokens"] = tokens
    book.line(
        f"{prefix}: ESTIMATE of cache", f"{found.arithmetic} = {found.token_bytes:.0f} bytes a token", None
    )
    book.line(
        f"{prefix}: ESTIMATE of room",
        f"{gib(max(left, 0))} / {found.token_bytes:.0f} bytes = {tokens} tokens",
        None,
    )
    longest = spread.max_model_len or (config.first("max_position_embeddings") if config else None)
    if longest is None:
        return
    need = longest * found.token_bytes / GIB
    book.line(
        f"{prefix}: ESTIMATE, longest request", f"{longest} tokens x {found.token_bytes:.0f} bytes", need
    )
    book.facts[f"stage{number}_estimated_longest_gib"] = need
    if 0 < left < need:
        book.warn(
            prefix, f"one request of {longest} tokens needs an estimated {gib(need)} of cache of {gib(left)}",
            "lower --max-model-len, or free memory as above; the engine refuses at start what does not fit",
        )  # fmt: skip
