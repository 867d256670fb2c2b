"""The memory ledger: the numbers of a real deployment on sparse files, and each rule by itself."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from fake_h200 import h200_node, h200_profile
from fake_sources import FakeNode
from sparse_checkpoint import (
    D4_BYTES,
    small_config,
    small_shards,
    write_checkpoint,
    write_d4,
    write_shard,
)

from agent.errors import LaunchError, SourceUnavailable
from agent.launch.checkpoint import tensor_rules as rules
from agent.launch.checkpoint.cache_estimate import CacheEstimate, estimate
from agent.launch.checkpoint.ledger import Ledger, Outcome, make_ledger
from agent.launch.checkpoint.model_config import ModelConfig
from agent.launch.checkpoint.reports import ledger_of, ledger_report
from agent.launch.checkpoint.room import Room
from agent.launch.checkpoint.scan import Scan, scan
from agent.launch.checkpoint.spread import spread_of
from agent.launch_parts import Checkpoint
from agent.node_profile import Engine, Launch
from agent.sources.launch_reading import Severity

GIB = 1 << 30
H20_MIB = 97_871
D4 = {
    "tensor-parallel-size": 8,
    "pipeline-parallel-size": 2,
    "nnodes": 2,
    "node-rank": 0,
    "gpu-memory-utilization": 0.9,
    "max-model-len": 524_288,
    "numa-bind": True,
}
OFFLOAD = {"cpu-offload-gb": 32, "cpu-offload-params": ["w13_weight", "w2_weight"]}
D4_ENV = {"VLLM_PP_LAYER_PARTITION": "48,45"}


@pytest.fixture(scope="module")
def d4(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("d4")
    write_d4(folder)
    return folder


@pytest.fixture
def small(tmp_path: Path) -> Path:
    write_checkpoint(tmp_path / "small", small_shards(), small_config())
    return tmp_path / "small"


def node_of(device_mib: int = H20_MIB, phase: str = "absent") -> FakeNode:
    node = h200_node()
    for slot in range(8):
        node.set(f"nvml.gpus.{slot}.memory.total_b", device_mib << 20)
    node.set("engines.glm.phase", phase)
    return node


def reckon(
    folder: Path,
    flags: dict[str, Any],
    node: FakeNode | None = None,
    *,
    env: dict[str, str] | None = None,
    gpus: list[int] | None = None,
    profile: dict[str, Any] | None = None,
    checkpoint: dict[str, Any] | None = None,
) -> tuple[Ledger, Scan]:
    """Scan and ledger of engine glm with these flags."""
    launch = {"model": str(folder), "flags": flags, "env": env or {}, "checkpoint": checkpoint or {}}
    slots = list(range(8)) if gpus is None else gpus
    engines = {"kimi": None, "glm": {"gpus": slots, "launch": launch}}
    made = h200_profile({"engines": engines, **(profile or {})})
    engine = made.engines["glm"]
    spread = spread_of("glm", engine)
    found = scan(folder, spread, engine.launch.checkpoint)
    return ledger_of(made, "glm", (node or node_of()).sources, found, spread), found


def lines_of(ledger: Ledger) -> list[str]:
    return [f"{line.label} | {line.arithmetic}" for line in ledger.book.lines]


def warnings_of(ledger: Ledger) -> str:
    return "\n".join(str(p) for p in ledger.book.problems if p.severity is Severity.WARNING)


def test_the_numbers_of_two_nodes_of_eight_h20(d4: Path) -> None:
    assert sum(path.stat().st_size for path in d4.glob("*.safetensors")) == D4_BYTES
    began_s = time.monotonic()
    ledger, found = reckon(d4, D4, env=D4_ENV)
    assert time.monotonic() - began_s < 5
    assert found.problems == ()
    assert len(found.sizes) == 51
    assert ledger.outcome is Outcome.IMPOSSIBLE
    facts = {key: round(value, 3) for key, value in ledger.facts.items()}
    assert facts["average_gib"] == 90.858
    assert facts["device_gib"] == 95.577
    assert facts["left_gib"] == 4.719
    assert "average a GPU | 1453.735 GiB / 16 ranks (TP 8 x PP 2)" in lines_of(ledger)
    text = str(ledger.book.errors[0])
    assert text.startswith("stage 0: 94.001 GiB of weights do not fit the 86.019 GiB that the engine may use")


def test_with_offload_it_fits(d4: Path) -> None:
    ledger, _ = reckon(d4, D4 | OFFLOAD, env=D4_ENV)
    assert ledger.outcome is Outcome.POSSIBLE
    assert round(ledger.facts["stage0_offload_gib"], 2) == 32.16
    assert round(ledger.facts["stage1_offload_gib"], 2) == 32.16
    assert round(ledger.facts["host_offload_gib"], 1) == 257.2
    assert ledger.facts["stage0_estimated_longest_gib"] >= 6
    assert "ESTIMATE" in "\n".join(lines_of(ledger))
    assert "24.174 GiB left" in ledger_report(ledger).summary
    other, found = reckon(d4, D4 | OFFLOAD | {"node-rank": 1}, env=D4_ENV)
    assert len(found.sizes) == 48
    assert other.outcome is Outcome.POSSIBLE


def test_a_node_that_holds_only_its_stage_reckons_that_stage(d4: Path, tmp_path: Path) -> None:
    _, found = reckon(d4, D4, env=D4_ENV)
    for path in d4.iterdir():
        if path.name in found.sizes or path.suffix == ".json":
            (tmp_path / path.name).symlink_to(path)
    ledger, here = reckon(
        tmp_path, D4 | OFFLOAD, env=D4_ENV, checkpoint={"total_bytes": D4_BYTES, "shards": 96}
    )
    assert here.problems == ()
    assert ledger.outcome is Outcome.POSSIBLE
    assert round(ledger.facts["average_gib"], 3) == 90.858
    assert "stage1_weights_gib" not in ledger.facts
    (tmp_path / "model-00002-of-00096.safetensors").unlink()
    _, broken = reckon(tmp_path, D4 | OFFLOAD, env=D4_ENV)
    assert "model-00002-of-00096.safetensors" in str(broken.problems[0])


def test_host_memory_can_make_it_impossible(d4: Path) -> None:
    node = node_of()
    node.set("files:proc/meminfo", "MemTotal: 276824064 kB\nMemFree: 1 kB\nMemAvailable: 270532608 kB")
    ledger, _ = reckon(d4, D4 | OFFLOAD, node, env=D4_ENV)  # 264 GiB, of which 257.2 and 16 are needed
    assert "257.245 GiB of offloaded weights do not fit 264.000 GiB with 16 GiB left free" in str(
        ledger.book.errors[0]
    )
    smaller, _ = reckon(d4, D4 | OFFLOAD, node, env=D4_ENV, checkpoint={"host_reserve_gib": 0.5})
    assert smaller.outcome is Outcome.POSSIBLE


def test_the_limit_of_a_container_counts(d4: Path) -> None:
    box = {"image": f"x@sha256:{'0' * 64}", "memory_gib": 256}
    flags = D4 | OFFLOAD
    launch = {"model": str(d4), "flags": flags, "env": D4_ENV, "runtime": "podman", "container": box}
    spread = spread_of("e", Engine(gpus=list(range(8)), port=8000, launch=Launch(**launch)))
    found = scan(d4, spread, Checkpoint())
    ledger = make_ledger(found.weights, spread, Room(dict.fromkeys(range(8), H20_MIB << 20)), 16)
    assert "257.245 GiB of offloaded weights do not fit its limit of 256 GiB" in str(ledger.book.errors[0])


def test_memory_that_others_hold_counts_until_the_engine_runs(d4: Path) -> None:
    node = node_of()
    node.set("files:proc/meminfo", "MemTotal: 2113929216 kB\nMemAvailable: 209715200 kB")
    ledger, _ = reckon(d4, D4 | OFFLOAD, node, env=D4_ENV)
    assert "do not fit the 200.000 GiB that are available now" in str(ledger.book.errors[0])
    node.set("engines.glm.phase", "warm")
    assert reckon(d4, D4 | OFFLOAD, node, env=D4_ENV)[0].outcome is Outcome.POSSIBLE


def test_workers_that_are_bound_need_the_memory_of_their_node(d4: Path) -> None:
    node = node_of()
    node.set("files:sys/devices/system/node/node1/meminfo", "Node 1 MemTotal:       104857600 kB")
    ledger, _ = reckon(d4, D4 | OFFLOAD, node, env=D4_ENV)
    assert "NUMA node 1: 128.622 GiB of offloaded weights do not fit its 100.000 GiB" in str(
        ledger.book.errors[0]
    )


@pytest.mark.parametrize(
    ("path", "told"),
    [("nvml.gpus.3.memory.total_b", "device memory"), ("files:proc/meminfo", "host memory")],
)
def test_what_cannot_be_read_is_unknown_never_possible(small: Path, path: str, told: str) -> None:
    node = node_of()
    node.set(path, {"error": "NOT_SUPPORTED"})
    ledger, _ = reckon(small, {"tensor-parallel-size": 8}, node)
    assert ledger.outcome is Outcome.UNKNOWN
    assert told in ledger.unknown[0]
    with pytest.raises(SourceUnavailable, match=told):
        ledger_report(ledger)


def test_no_driver_is_unknown(small: Path) -> None:
    node = node_of()
    node.data["nvml"] = {"error": "LIBRARY_NOT_FOUND"}
    assert reckon(small, {}, node, gpus=[0])[0].outcome is Outcome.UNKNOWN


def test_a_group_that_leaves_its_nvlink_domain_is_warned_of(small: Path) -> None:
    two = {"nvlink": {"domains": [[0, 1, 2, 3], [4, 5, 6, 7]]}}
    ledger, _ = reckon(small, {"tensor-parallel-size": 8}, profile=two)
    assert "group 0 (GPUs 0 1 2 3 4 5 6 7) crosses the NVLink domains 0 1 2 3 and 4 5 6 7" in warnings_of(
        ledger
    )
    split, _ = reckon(small, {"tensor-parallel-size": 4, "data-parallel-size": 2}, profile=two)
    assert "NVLink" not in warnings_of(split)
    nodes, _ = reckon(small, {"tensor-parallel-size": 16, "nnodes": 2})
    assert "a group of 16 GPUs leaves its NVLink domain: it is on 2 nodes" in warnings_of(nodes)


def test_a_group_over_numa_nodes_is_warned_of_unless_each_worker_is_bound(small: Path) -> None:
    ledger, _ = reckon(small, {"tensor-parallel-size": 8})
    assert "crosses NUMA nodes 0 1, and its workers are not bound" in warnings_of(ledger)
    bound, _ = reckon(small, {"tensor-parallel-size": 8, "numa-bind": True})
    assert "NUMA" not in warnings_of(bound)
    assert any("binds each worker to the node of its GPU" in note for note in bound.book.notes)
    wrong, _ = reckon(small, {"tensor-parallel-size": 8, "numa-bind": True, "numa-bind-nodes": [0] * 8})
    assert "does not fit the GPUs, which sit on 0 0 0 0 1 1 1 1" in warnings_of(wrong)
    assert warnings_of(reckon(small, {"tensor-parallel-size": 4}, gpus=[0, 1, 2, 3])[0]) == ""


def test_gpus_that_are_not_enough_are_told(small: Path) -> None:
    assert "takes 4 GPUs here, not 3" in warnings_of(
        reckon(small, {"tensor-parallel-size": 4}, gpus=[0, 1, 2])[0]
    )
    many, _ = reckon(small, {"tensor-parallel-size": 2, "cpu-offload-gb": 1}, gpus=[0, 1, 2, 3])
    assert "TP 2 x PP 1 x DP 1 over 1 node(s) takes 2 GPUs here, not 4" in warnings_of(many)
    assert many.facts["host_offload_gib"] == pytest.approx(2 * many.facts["stage0_offload_gib"])


def test_experts_are_shared_by_replicas(tmp_path: Path) -> None:
    tensors = {
        "model.layers.0.mlp.experts.0.up_proj.weight": ("BF16", (1024, 1024)),
        "model.layers.0.mlp.shared_experts.up_proj.weight": ("BF16", (1024, 1024)),
    }
    write_shard(tmp_path / "model.safetensors", tensors)
    (tmp_path / "config.json").write_text('{"num_hidden_layers": 1}')
    ledger, _ = reckon(tmp_path, {"tensor-parallel-size": 4, "data-parallel-size": 2})
    assert ledger.facts["stage0_weights_gib"] == ((2 << 20) / 8 + (2 << 20) / 4) / GIB
    assert warnings_of(ledger) == ""


def test_unified_memory_is_that_of_the_host(small: Path) -> None:
    node = node_of()
    node.set("nvml.gpus.0.memory.total_b", {"error": "NOT_SUPPORTED"})
    ledger, _ = reckon(small, {}, node, gpus=[0], profile={"gpus": {"unified_memory": True}})
    assert ledger.outcome is Outcome.POSSIBLE
    assert ledger.facts["device_gib"] == 2113929216 / (1 << 20)


@pytest.mark.parametrize(
    ("flags", "share"),
    [({}, 0.92), ({"gpu-memory-utilization": 0.5}, 0.5), ({"kv-cache-memory-bytes": 1 << 30}, 1.0)],
)
def test_the_share_of_the_device_is_the_engines(flags: dict[str, Any], share: float) -> None:
    assert spread_of("e", Engine(gpus=[0], port=1, launch=Launch(flags=flags))).utilisation == share
    sglang = Launch(kind="sglang", command=["sglang"], flags={"mem-fraction-static": 0.8, "tp": 2})
    spread = spread_of("e", Engine(gpus=[0, 1], port=1, launch=sglang))
    assert (spread.utilisation, spread.tensor) == (0.8, 2)


def test_a_config_without_layers_cannot_be_split(small: Path) -> None:
    (small / "config.json").write_text('{"hidden_size": 8}')
    ledger, _ = reckon(small, {"pipeline-parallel-size": 2}, gpus=[0, 1])
    assert ledger.outcome is Outcome.UNKNOWN
    assert "config.json names no number of layers" in ledger.unknown[0]
    assert reckon(small, {}, gpus=[0])[0].outcome is Outcome.POSSIBLE


def test_a_partition_must_fit_the_model(small: Path) -> None:
    flags = {"pipeline-parallel-size": 2}
    ledger, _ = reckon(small, flags, gpus=[0, 1], env={"VLLM_PP_LAYER_PARTITION": "3,2"})
    assert "sums up to 5 layers and config.json has 4" in ledger.unknown[0]
    with pytest.raises(LaunchError, match="write 2 whole numbers"):
        reckon(small, flags, gpus=[0, 1], env={"VLLM_PP_LAYER_PARTITION": "4"})


@pytest.mark.parametrize(("flag", "value"), [("gpu-memory-utilization", 1.5), ("cpu-offload-gb", "many")])
def test_a_value_that_cannot_be_is_one_line(small: Path, flag: str, value: Any) -> None:
    with pytest.raises(LaunchError, match=f"--{flag} is"):
        reckon(small, {flag: value}, gpus=[0])


def test_offload_that_matches_nothing_is_warned_of(small: Path) -> None:
    ledger, _ = reckon(small, {"cpu-offload-gb": 4, "cpu-offload-params": ["w13"]}, gpus=[0])
    assert "no tensor of weights matches w13" in warnings_of(ledger)
    assert ledger.facts["host_offload_gib"] == 0


def test_weights_that_are_quantised_while_they_load_refuse_nothing(small: Path) -> None:
    assert reckon(small, {}, node_of(device_mib=16), gpus=[0])[0].outcome is Outcome.IMPOSSIBLE
    ledger, _ = reckon(small, {"quantization": "fp8"}, node_of(device_mib=16), gpus=[0])
    assert ledger.outcome is Outcome.POSSIBLE
    assert any("quantises these weights while it loads" in note for note in ledger.book.notes)


def test_flags_of_the_engines_own_file_are_not_reckoned_and_refuse_nothing(small: Path) -> None:
    ledger, _ = reckon(small, {"config": "/etc/vllm.yaml"}, node_of(device_mib=16), gpus=[0])
    assert ledger.outcome is Outcome.POSSIBLE
    assert "do not fit" in warnings_of(ledger)
    assert any("--config /etc/vllm.yaml is not read here" in note for note in ledger.book.notes)


def test_flags_behind_the_program_count_like_any_other() -> None:
    launch = {"command": ["vllm", "serve", "-tp", "4"], "flags": {"cpu-offload-gb": 2}}
    spread = spread_of("e", Engine.model_validate({"gpus": [0, 1, 2, 3], "port": 1, "launch": launch}))
    assert (spread.tensor, len(spread.ranks), spread.offload_gib, spread.notes) == (4, 4, 2, ())


@pytest.mark.parametrize("size", ["1000000000", "9" * 5000])
def test_sizes_that_no_model_has_are_refused_before_lists_of_them_are_made(small: Path, size: str) -> None:
    for flag in ("tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size"):
        with pytest.raises(LaunchError, match="whole number from 1 to 65536"):
            reckon(small, {flag: size})
    with pytest.raises(LaunchError, match="write 2 whole numbers"):
        reckon(small, {"pipeline-parallel-size": 2}, env={"VLLM_PP_LAYER_PARTITION": f"1,{'9' * 5000}"})
    assert (
        spread_of("e", Engine(gpus=[0], port=1, launch=Launch(args=["--max-model-len", "9" * 5000]))).tensor
        == 1
    )


def test_a_config_with_a_billion_layers_is_refused(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "x", small_shards(), small_config(num_hidden_layers=(1 << 31) - 1))
    ledger, _ = reckon(tmp_path / "x", {}, gpus=[0])
    assert "2147483647 layers, which no model has" in ledger.unknown[0]


def test_tied_embeddings_are_on_both_ends(tmp_path: Path) -> None:
    shards = small_shards()
    del shards["model-00002-of-00002.safetensors"]["lm_head.weight"]
    write_checkpoint(tmp_path, shards, small_config(tie_word_embeddings=True))
    ledger, _ = reckon(tmp_path, {"pipeline-parallel-size": 2}, gpus=[0, 1])
    layers = ledger.facts["stage0_weights_gib"] - 2048 * 1024 * 2 / GIB
    assert ledger.facts["stage1_weights_gib"] == pytest.approx(layers + (2048 * 1024 * 2 + 1024 * 2) / GIB)


@pytest.mark.parametrize(
    ("layers", "stages", "parts"),
    [(93, 2, [47, 46]), (61, 4, [15, 15, 16, 15]), (10, 4, [2, 3, 3, 2]), (8, 4, [2] * 4), (5, 3, [2, 2, 1])],
)
def test_the_even_split_is_that_of_vllm(layers: int, stages: int, parts: list[int]) -> None:
    assert rules.even_split(layers, stages) == parts


@pytest.mark.parametrize(
    ("name", "parameter"),
    [
        ("model.layers.3.mlp.experts.17.gate_proj.weight", "model.layers.3.mlp.experts.w13_weight"),
        ("model.layers.3.mlp.experts.17.w3.weight_packed", "model.layers.3.mlp.experts.w13_weight"),
        (
            "model.layers.3.mlp.experts.17.down_proj.weight_scale_inv",
            "model.layers.3.mlp.experts.w2_weight_scale_inv",
        ),
        ("model.layers.3.mlp.experts.gate_up_proj_blocks", "model.layers.3.mlp.experts.w13_weight"),
        ("model.layers.3.mlp.experts.down_proj_scales", "model.layers.3.mlp.experts.w2_weight_scale"),
        ("model.layers.3.mlp.experts.down_proj", "model.layers.3.mlp.experts.w2_weight"),
        ("model.layers.3.mlp.up_proj.weight", "model.layers.3.mlp.gate_up_proj.weight"),
        ("model.layers.3.self_attn.k_proj.weight", "model.layers.3.self_attn.qkv_proj.weight"),
    ],
)
def test_parameters_are_named_as_the_engine_does(name: str, parameter: str) -> None:
    assert rules.parameter(name) == parameter


def test_names_match_as_whole_segments() -> None:
    names = ("model.layers.3.mlp.experts.w2_weight",)
    assert rules.matches(names, frozenset({"w2_weight"}))
    assert rules.matches(names, frozenset({"experts"}))
    assert not rules.matches(names, frozenset({"expert"}))
    assert not rules.matches(("a.experts.w2_weight_scale",), frozenset({"w2_weight"}))


@pytest.mark.parametrize(
    ("config", "token_bytes"),
    [
        ({}, 2 * 1 * 128 * 2 * 4),
        ({"num_key_value_heads": 8}, 2 * 2 * 128 * 2 * 4),
        ({"kv_lora_rank": 512, "qk_rope_head_dim": 64}, 576 * 2 * 4),
        ({"layer_types": ["full_attention", "sliding_attention"] * 2}, 2 * 1 * 128 * 2 * 2),
        ({"full_attention_interval": 4}, 2 * 1 * 128 * 2 * 1),
        ({"linear_attn_config": {"full_attn_layers": [4]}}, 2 * 1 * 128 * 2 * 1),
    ],
)
def test_the_cache_is_estimated(config: dict[str, Any], token_bytes: int) -> None:
    found = estimate(ModelConfig(Path("x"), small_config(**config), False), range(4), 4, "auto")
    assert isinstance(found, CacheEstimate)
    assert found.token_bytes == token_bytes


@pytest.mark.parametrize(
    ("config", "dtype"),
    [
        ({"mamba_d_state": 128}, "auto"),
        ({"sliding_window": 4096}, "auto"),
        ({"layer_types": ["something_new"] * 4}, "auto"),
        ({"linear_attn_config": {}}, "auto"),
        ({"num_attention_heads": None, "num_key_value_heads": None}, "auto"),
        ({"dtype": None}, "auto"),
        ({}, "turboquant_k8v4"),
    ],
)
def test_a_form_that_is_not_known_is_not_estimated(config: dict[str, Any], dtype: str) -> None:
    assert isinstance(
        estimate(ModelConfig(Path("x"), small_config(**config), False), range(4), 4, dtype), str
    )


def test_no_endless_row_of_layers_is_counted() -> None:
    text = small_config(num_hidden_layers="many", full_attention_interval=4)
    found = estimate(ModelConfig(Path("x"), text, False), range(1 << 30), 4, "auto")
    assert found == "config.json names no number of layers"


def test_what_no_stage_loads_is_not_counted(tmp_path: Path) -> None:
    big = ("BF16", (1024, 1024))
    tensors = {
        "vision_tower.blocks.3.weight": big,
        "model.layers.0.mlp.up_proj.weight": big,
        "model.layers.4.mtp.weight": big,  # beyond the four layers: drafts
        "model.layers.1.mlp.gate.weight": big,
        "model.layers.1.self_attn.f32.weight": ("F32", (1024, 1024)),
    }
    write_shard(tmp_path / "model.safetensors", tensors)
    (tmp_path / "config.json").write_text('{"num_hidden_layers": 4}')
    one = 2 << 20
    plain, _ = reckon(tmp_path, {"tensor-parallel-size": 2}, gpus=[0, 1])
    assert plain.facts["stage0_weights_gib"] == (one / 2 + one / 2 + one + one / 2) / GIB
    less, _ = reckon(tmp_path, {"tensor-parallel-size": 2, "language-model-only": True}, gpus=[0, 1])
    assert less.facts["stage0_weights_gib"] == (one / 2 + one + one / 2) / GIB
    more, _ = reckon(tmp_path, {"tensor-parallel-size": 2, "speculative-config": "{}"}, gpus=[0, 1])
    assert more.facts["stage0_weights_gib"] == (4 * one / 2 + one) / GIB
