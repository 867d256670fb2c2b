"""config.json of a checkpoint: the few facts that say how a model is split and what its cache takes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.launch.checkpoint.fault import CheckpointFault, unreadable
from agent.launch.checkpoint.regular import open_regular

NAME = "config.json"
MAX_CONFIG_BYTES = 16 << 20
_LAYERS = ("num_hidden_layers", "n_layer", "num_layers")


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The language model's part of config.json, and whether its weights are quantised."""

    path: Path
    text: Mapping[str, Any]
    quantised: bool

    @property
    def layers(self) -> int | None:
        """Number of decoder layers."""
        return self.first(*_LAYERS)

    @property
    def tied(self) -> bool:
        """Whether the output head is the embedding."""
        return self.text.get("tie_word_embeddings") is True

    @property
    def dtype(self) -> str | None:
        """The model's own data type, e.g. bfloat16."""
        found = self.text.get("dtype") or self.text.get("torch_dtype")
        return found.removeprefix("torch.") if isinstance(found, str) else None

    def first(self, *names: str) -> int | None:
        """The first of these that is a positive whole number."""
        for name in names:
            value = self.text.get(name)
            if type(value) is int and 0 < value < 1 << 31:
                return value
        return None


def read_config(folder: Path) -> ModelConfig:
    """Read config.json. CheckpointFault for a wrong one, SourceUnavailable for one that cannot be read."""
    path = folder / NAME
    whole = read_object(path, MAX_CONFIG_BYTES)
    text = whole
    # A model of several modalities keeps its language model under a key of its own.
    for key in ("text_config", "llm_config", "language_config"):
        if isinstance(whole.get(key), dict):
            text = {**{k: v for k, v in whole.items() if k.endswith("dtype")}, **whole[key]}
            break
    if "tie_word_embeddings" in whole and "tie_word_embeddings" not in text:
        text = {**text, "tie_word_embeddings": whole["tie_word_embeddings"]}
    quantised = any(isinstance(part.get("quantization_config"), dict) for part in (whole, text))
    return ModelConfig(path, text, quantised)


def read_object(path: Path, most_bytes: int) -> dict[str, Any]:
    """A JSON object from a file of bounded size."""
    try:
        with open_regular(path) as file:
            raw = file.read(most_bytes + 1)
    except FileNotFoundError as cause:
        raise CheckpointFault(path, "is missing") from cause
    except OSError as cause:
        raise unreadable(path, cause) from cause
    if len(raw) > most_bytes:
        raise CheckpointFault(path, f"is larger than {most_bytes >> 20} MiB, which no such file is")
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError) as cause:
        raise CheckpointFault(path, f"is no JSON ({str(cause)[:80]})") from cause
    if not isinstance(found, dict):
        raise CheckpointFault(path, "is no JSON object")
    return found
