"""`nodegate launch plan`: exit codes, the ledger as text and JSON, the stage index."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from sparse_checkpoint import small_config, small_shards, write_checkpoint, write_d4

from agent.cli import run_command_line

H20 = Path(__file__).parents[1] / "nodes" / "h20-roce"
OFFLOAD = {"cpu-offload-gb": 32, "cpu-offload-params": ["w13_weight", "w2_weight"]}


@pytest.fixture(scope="module")
def d4(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("d4")
    write_d4(folder)
    return folder


def overlay(folder: Path, **launch: Any) -> str:
    """A site layer over the H20 node's profile: one of two nodes, TP 8 x PP 2."""
    flags = {
        "tensor-parallel-size": 8,
        "pipeline-parallel-size": 2,
        "nnodes": 2,
        "node-rank": 0,
        "gpu-memory-utilization": 0.9,
        "numa-bind": True,
    }
    part = {"env": {"VLLM_PP_LAYER_PARTITION": "48,45"}, **launch, "flags": flags | launch.get("flags", {})}
    path = folder / "site.yaml"
    path.write_text(yaml.safe_dump({"engines": {"kimi": {"launch": part}}}))
    return str(path)


def plan(*words: str) -> int:
    return run_command_line(["launch", "plan", "kimi", "--node", str(H20), *words])


def test_without_offload_it_is_impossible(
    d4: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plan("--overlay", overlay(tmp_path), "--checkpoint", str(d4)) == 1
    text = capsys.readouterr().out
    assert "SIMULATED" in text
    for figure in ("90.858", "95.577", "4.719", "1560936091448 bytes in 96 files", "IMPOSSIBLE"):
        assert figure in text
    assert "error: stage 0: " in text


def test_with_offload_it_is_possible(d4: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    site = overlay(tmp_path, flags=OFFLOAD)
    assert plan("--overlay", site, "--checkpoint", str(d4), "--format", "json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["outcome"] == "possible"
    assert report["simulated"] is True
    assert round(report["facts"]["stage0_offload_gib"], 2) == 32.16
    assert {"label", "arithmetic", "gib"} == set(report["lines"][0])
    assert any("ESTIMATE" in line["label"] for line in report["lines"])


def test_the_stage_index_is_written(d4: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    index = tmp_path / "stage0.json"
    site = overlay(tmp_path, flags=OFFLOAD, checkpoint={"stage_index": str(index)})
    assert plan("--overlay", site, "--checkpoint", str(d4)) == 1
    assert "the stage index is missing" in capsys.readouterr().out
    assert plan("--overlay", site, "--checkpoint", str(d4), "--write-stage-index") == 0
    assert "names 51 files" in capsys.readouterr().err
    assert len(set(json.loads(index.read_text())["weight_map"].values())) == 51


def test_a_checkpoint_that_is_not_whole_is_impossible(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_checkpoint(tmp_path / "w", small_shards(), small_config())
    (tmp_path / "w" / "model-00001-of-00002.safetensors").write_bytes(b"\0" * 7)
    site = overlay(tmp_path, env={}, flags={"pipeline-parallel-size": 1, "nnodes": 1})
    assert plan("--overlay", site, "--checkpoint", str(tmp_path / "w")) == 1
    assert "has 7 bytes, too short for a safetensors file" in capsys.readouterr().out


def test_what_cannot_be_read_is_unknown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "config.json").write_text("{}")
    assert plan("--overlay", overlay(tmp_path), "--checkpoint", str(tmp_path / "w")) == 2
    assert capsys.readouterr().err.startswith("unknown: ")
    words = ("--overlay", overlay(tmp_path), "--checkpoint", str(tmp_path / "w"), "--format", "json")
    assert plan(*words) == 2
    told = json.loads(capsys.readouterr().out)
    assert (told["outcome"], told["simulated"]) == ("unknown", True) and told["reason"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--checkpoint", "/no/such/folder"], "/no/such/folder: is not a folder"),
        ([], "the model kimi is no folder on this host; set launch.checkpoint.path"),
        (["--checkpoint", str(H20), "--write-stage-index"], "has no launch.checkpoint.stage_index"),
    ],
)
def test_bad_usage_is_one_line(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert plan(*words) == 3
    said = capsys.readouterr().err
    assert told in said
    assert said.count("\n") == 1


def test_an_engine_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["launch", "plan", "nope", "--node", str(H20)]) == 3
    assert "no engine nope; it has: kimi" in capsys.readouterr().err
