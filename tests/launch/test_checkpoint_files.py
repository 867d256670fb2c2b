"""Files of a checkpoint: headers, index, config; every wrong one is named in one line."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sparse_checkpoint import (
    small_config,
    small_shards,
    write_checkpoint,
    write_index,
    write_shard,
)

from agent.errors import SourceUnavailable
from agent.launch.checkpoint.checksums import read_sums
from agent.launch.checkpoint.fault import CheckpointFault
from agent.launch.checkpoint.headers import read_shard
from agent.launch.checkpoint.inventory import INDEX, read_inventory
from agent.launch.checkpoint.model_config import read_config
from agent.launch.checkpoint.scan import fingerprint, scan
from agent.launch.checkpoint.spread import spread_of
from agent.launch_parts import Checkpoint
from agent.node_profile import Engine

ONE = {"a.weight": ("BF16", (4, 8)), "b.weight": ("F32", (3,))}


def raw(path: Path, text: bytes, data_bytes: int = 0, *, claimed: int | None = None) -> Path:
    """A file with this header, whatever it is."""
    length = len(text) if claimed is None else claimed
    path.write_bytes(length.to_bytes(8, "little") + text + bytes(data_bytes))
    return path


def entries(**tensors: Any) -> bytes:
    return json.dumps(tensors).encode()


def entry(begin: int, end: int, dtype: str = "U8", shape: list[Any] | None = None) -> dict[str, Any]:
    return {"dtype": dtype, "shape": [end - begin] if shape is None else shape, "data_offsets": [begin, end]}


def problems_of(folder: Path, wanted: dict[str, Any] | None = None) -> list[str]:
    """What a scan for one GPU finds wrong, as lines."""
    engine = Engine(gpus=[0], port=8000)
    found = scan(folder, spread_of("e", engine), Checkpoint(**(wanted or {})))
    lines = [f"{problem.severity}: {problem}" for problem in found.problems]
    assert not any("\n" in line for line in lines)
    return lines


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_checkpoint(tmp_path / "weights", small_shards())
    return tmp_path / "weights"


def test_a_header_tells_names_types_and_sizes(tmp_path: Path) -> None:
    size = write_shard(tmp_path / "x.safetensors", ONE)
    found = read_shard(tmp_path / "x.safetensors")
    assert [(t.name, t.dtype, t.shape, t.size_bytes) for t in found.tensors] == [
        ("a.weight", "BF16", (4, 8), 64),
        ("b.weight", "F32", (3,), 12),
    ]
    assert (found.file_bytes, found.tensor_bytes) == (size, 76)


BAD_FILES: dict[str, tuple[Callable[[Path], Path], str]] = {
    "empty": (lambda p: raw(p, b"", claimed=0), "no JSON"),
    "five bytes": (lambda p: (p.write_bytes(b"12345"), p)[1], "has 5 bytes, too short"),
    "truncated header": (lambda p: raw(p, b'{"a": ', claimed=900), "has 14 bytes and claims a header of 900"),
    "header of 1 GB": (lambda p: raw(p, b"{}", claimed=1 << 30), "claims a header of 1073741824 bytes, more"),
    "absurd length": (lambda p: raw(p, b"{}", claimed=(1 << 64) - 1), "more than the format's"),
    "no JSON": (lambda p: raw(p, b"\x80\x00garbage"), "a header that is no JSON"),
    "a list": (lambda p: raw(p, b"[1]"), "no JSON object"),
    "deep": (lambda p: raw(p, b"[" * 100_000), "no JSON"),
    "too short": (lambda p: raw(p, entries(a=entry(0, 64)), 63), "cut short: its header describes 64 bytes"),
    "too long": (lambda p: raw(p, entries(a=entry(0, 64)), 65), "too long: its header describes 64 bytes"),
    "overlap": (lambda p: raw(p, entries(a=entry(0, 8), b=entry(4, 12)), 12), "tensor b overlaps"),
    "hole": (lambda p: raw(p, entries(a=entry(0, 8), b=entry(9, 12)), 12), "tensor b leaves a hole"),
    "shape": (lambda p: raw(p, entries(a=entry(0, 8, "BF16", [5])), 8), "BF16 of shape [5] takes other than"),
    "negative": (lambda p: raw(p, entries(a=entry(-8, 0)), 0), "does not describe tensor a"),
    "backwards": (lambda p: raw(p, entries(a=entry(8, 0, shape=[0])), 8), "does not describe tensor a"),
    "text in shape": (lambda p: raw(p, entries(a=entry(0, 8, shape=["8"])), 8), "does not describe tensor a"),
    "no offsets": (lambda p: raw(p, entries(a={"dtype": "U8", "shape": [1]}), 1), "does not describe tensor"),
    "terminal codes": (lambda p: raw(p, entries(**{"a\n\x1b[2J": 7}), 1), "tensor a??[2J as the format"),
    "fifo": (lambda p: (os.mkfifo(p), p)[1], "is no plain file"),
    "folder": (lambda p: (p.mkdir(), p)[1], "is no plain file"),
    "device": (lambda p: (p.symlink_to("/dev/zero"), p)[1], "is no plain file"),
    "a number": (lambda p: raw(p, entries(a=7), 1), "does not describe tensor a"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_file_is_one_line_with_its_name(name: str, tmp_path: Path) -> None:
    make, text = BAD_FILES[name]
    path = make(tmp_path / "model.safetensors")
    with pytest.raises(CheckpointFault) as caught:
        read_shard(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_read_is_no_verdict(tmp_path: Path) -> None:
    loop = tmp_path / "loop.safetensors"
    loop.symlink_to(loop)
    with pytest.raises(SourceUnavailable, match="cannot be read"):
        read_shard(loop)
    with pytest.raises(SourceUnavailable, match="cannot be read"):
        read_inventory(tmp_path / "not there")
    with pytest.raises(SourceUnavailable, match="holds no"):
        (tmp_path / "config.json").write_text("{}")
        read_inventory(tmp_path)


def test_a_whole_checkpoint_has_no_problems(folder: Path) -> None:
    assert problems_of(folder, {"shards": 2}) == []
    inventory = read_inventory(folder)
    assert inventory.count == 2
    assert inventory.config is not None
    assert inventory.config.layers == 4


def test_one_file_needs_no_index(tmp_path: Path) -> None:
    write_shard(tmp_path / "model.safetensors", ONE)
    (tmp_path / "config.json").write_text(json.dumps(small_config()))
    assert problems_of(tmp_path) == []


def test_a_missing_file_is_named(folder: Path) -> None:
    (folder / "model-00002-of-00002.safetensors").unlink()
    assert problems_of(folder) == [
        f"error: {folder}: 1 of 2 files that this node needs are missing: model-00002-of-00002.safetensors; "
        "copy them; the index names them"
    ]


def test_a_link_to_nothing_is_a_missing_file(folder: Path) -> None:
    path = folder / "model-00002-of-00002.safetensors"
    path.unlink()
    path.symlink_to(folder / "blobs" / "gone")
    assert "1 of 2 files that this node needs are missing" in problems_of(folder)[0]
    assert (path.name, -1, 0) in fingerprint(folder, None)


def test_a_tensor_in_two_files_is_named(folder: Path) -> None:
    shards = small_shards()
    first, second = shards
    shards[second]["model.norm.weight"] = ("BF16", (1024,))
    shards[first] = {**shards[first], "model.norm.weight": ("BF16", (1024,))}
    write_shard(folder / first, shards[first])
    lines = problems_of(folder)
    assert f"tensors are in two files: model.norm.weight (in {first} and {second})" in lines[0]
    assert lines[0].startswith("error: ")


def test_a_file_that_lacks_a_tensor_of_the_index_is_named(folder: Path) -> None:
    name = "model-00001-of-00002.safetensors"
    tensors = small_shards()[name]
    del tensors["model.embed_tokens.weight"]
    write_shard(folder / name, tensors)
    assert "lacks tensors that the index has there: model.embed_tokens.weight" in problems_of(folder)[0]


def test_a_file_of_another_length_is_named(folder: Path) -> None:
    path = folder / "model-00001-of-00002.safetensors"
    with path.open("ab") as file:
        file.write(b"x")
    assert f"error: {path}: is too long" in problems_of(folder)[0]
    with path.open("rb+") as file:
        file.truncate(path.stat().st_size - 2)
    assert f"error: {path}: is cut short" in problems_of(folder)[0]


def test_count_and_size_are_compared_with_the_profile(folder: Path) -> None:
    size = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    assert problems_of(folder, {"total_bytes": size}) == []
    assert "has 2 files, launch.checkpoint.shards is 96" in problems_of(folder, {"shards": 96})[0]
    wrong = problems_of(folder, {"total_bytes": size - 1})
    assert f"has {size} bytes, launch.checkpoint.total_bytes is {size - 1}" in wrong[0]


def test_an_index_with_another_sum_is_a_warning(folder: Path) -> None:
    shards = small_shards()
    weights = {tensor: name for name, tensors in shards.items() for tensor in tensors}
    write_index(folder, weights, 7)
    lines = problems_of(folder)
    assert len(lines) == 1
    assert lines[0].startswith("warning: ")
    assert "total_size of 7 bytes" in lines[0]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "is no JSON"),
        ("[]", "is no JSON object"),
        ("{}", "has no weight_map"),
        ('{"weight_map": {"a": "../../etc/x.safetensors"}}', "which is no .safetensors file of this folder"),
        ('{"weight_map": {"a": 7}}', "names '7'"),
    ],
)
def test_a_bad_index_is_one_line(folder: Path, text: str, told: str) -> None:
    (folder / INDEX).write_text(text)
    lines = problems_of(folder)
    assert lines[0].startswith(f"error: {folder / INDEX}: ")
    assert told in lines[0]


def test_the_same_weights_in_another_layout_are_left_out(tmp_path: Path) -> None:
    for name in ("model.safetensors", "consolidated.safetensors"):
        write_shard(tmp_path / name, ONE)
    (tmp_path / "config.json").write_text("{}")
    assert list(read_inventory(tmp_path).shards) == ["model.safetensors"]


def test_numbered_files_without_an_index_must_be_a_whole_set(folder: Path) -> None:
    (folder / INDEX).unlink()
    assert problems_of(folder)[0].startswith(f"warning: {folder / INDEX}: is missing")
    (folder / "model-00001-of-00002.safetensors").unlink()
    assert "not a whole set" in problems_of(folder)[0]


@pytest.mark.parametrize(
    ("text", "told"), [("{", "is no JSON"), ("7", "is no JSON object"), (None, "is missing")]
)
def test_a_bad_config_is_one_line(folder: Path, text: str | None, told: str) -> None:
    path = folder / "config.json"
    path.unlink()
    if text is not None:
        path.write_text(text)
    with pytest.raises(CheckpointFault, match=told):
        read_config(folder)
    assert problems_of(folder)[0].startswith(f"error: {path}: {told}")


def test_what_would_hang_its_reader_is_a_fault(folder: Path) -> None:
    (folder / "config.json").unlink()
    os.mkfifo(folder / "config.json")
    sums = folder / "SHA256SUMS"
    os.mkfifo(sums)
    assert problems_of(folder)[0].startswith(f"error: {folder / 'config.json'}: is no plain file")
    with pytest.raises(CheckpointFault, match="is no plain file"):
        read_sums(sums)


def test_a_stage_without_any_file_is_no_whole_checkpoint(folder: Path) -> None:
    """An index of the other node's stage in the place of the whole one."""
    shards = small_shards()
    name, tensors = list(shards.items())[1]
    write_index(folder, dict.fromkeys(tensors, name), 7)
    flags = {"pipeline-parallel-size": 2, "nnodes": 2, "node-rank": 0}
    spread = spread_of("e", Engine.model_validate({"gpus": [0], "port": 8000, "launch": {"flags": flags}}))
    lines = [str(problem) for problem in scan(folder, spread, Checkpoint()).problems]
    assert any("no tensor of it belongs to stage 0" in line for line in lines), lines


def test_the_language_model_of_several_modalities_is_found(tmp_path: Path) -> None:
    data = {"dtype": "bfloat16", "tie_word_embeddings": True, "text_config": {"num_hidden_layers": 9}}
    (tmp_path / "config.json").write_text(json.dumps(data))
    config = read_config(tmp_path)
    assert (config.layers, config.dtype, config.tied, config.quantised) == (9, "bfloat16", True, False)
