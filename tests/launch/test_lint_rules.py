"""Flags that contradict each other or the GPUs of the engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake_h200 import h200_node, h200_profile, uuid_of
from hypothesis import given, settings
from hypothesis import strategies as st
from lint_kit import launch_of, linted, plan_of, told, vllm_site

from agent.launch.lint import lint
from agent.launch.lint.given import take_apart
from agent.launch.lint.installed import EngineSource, read_package
from agent.launch.lint.names import Names
from agent.launch.lint.rules import rule_problems
from agent.launch.lint.settings import Gpus, Settings
from agent.launch.lint.values import repeated, value_problems
from agent.launch.lint.variables import gpu_problems
from agent.sources.launch_reading import LaunchReport, Severity


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return vllm_site(tmp_path_factory.mktemp("venv"))


def on_gpus(program: Path, args: str, env: dict[str, str] | None = None, **launch: Any) -> LaunchReport:
    """The engine glm of the H200 node, with its four GPUs."""
    part = {"command": [str(program), "serve"], "args": args.split(), "env": env or {}, **launch}
    profile = h200_profile({"engines": {"glm": {"launch": part}}})
    node = h200_node()
    node.set("files:sys/class/net/eth0/operstate", "up")
    plan = plan_of(profile, node, "glm")
    engine = profile.engines["glm"]
    return lint(plan, engine, tree=node.sources.tree, fabric=profile.fabric, home="/home/e")


RULES = [
    ("--gpu-memory-utilization 1.5", "--gpu-memory-utilization", "1.5 is no share of memory"),
    ("--gpu-memory-utilization 0", "--gpu-memory-utilization", "0 is no share of memory"),
    ("--gpu-memory-utilization 90%", "--gpu-memory-utilization", "90% is no share of memory"),
    (
        "--max-num-batched-tokens 2048 --max-model-len 4096 --no-enable-chunked-prefill",
        "--max-num-batched-tokens",
        "2048 is below --max-model-len 4096 and chunked prefill is off",
    ),
    (
        "--max-num-batched-tokens 8 --max-num-seqs 16",
        "--max-num-batched-tokens",
        "8 is less than --max-num-seqs 16",
    ),
    ("--nnodes 2 --master-addr 192.0.2.1 -tp 2", "--nnodes", "every node takes itself for rank 0"),
    ("--nnodes 2 --node-rank 0 -tp 2", "--nnodes", "every rank waits for itself"),
    ("--nnodes 2 --node-rank 2 --master-addr 192.0.2.1 -tp 2", "--node-rank", "2 is not below --nnodes 2"),
    ("--nnodes 2 --node-rank 0 --master-addr 192.0.2.1 -tp 3", "--nnodes", "do not divide by --nnodes 2"),
    ("--headless --api-server-count 2", "--headless", "a headless rank has no API server"),
    (
        "--numa-bind-nodes 0 0",
        "--numa-bind-nodes",
        "the engine refuses it without --numa-bind; add --numa-bind",
    ),
    (
        "--cpu-offload-params w13_weight",
        "--cpu-offload-params",
        "nothing is offloaded without --cpu-offload-gb",
    ),
    ("--cpu-offload-params w13_weight --cpu-offload-gb 0", "--cpu-offload-params", "nothing is offloaded"),
    ("--offload-backend uva", "--offload-backend", "uva offloads nothing without --cpu-offload-gb"),
    ("--offload-backend prefetch", "--offload-backend", "prefetch offloads nothing without"),
    (
        "--enforce-eager --cudagraph-capture-sizes 1 2",
        "--enforce-eager",
        "contradicts --cudagraph-capture-sizes",
    ),
]
FINE = [
    "--gpu-memory-utilization 1.0 --max-num-batched-tokens 2k --max-model-len 4K",
    "--max-num-batched-tokens 4K --max-model-len 4096 --no-enable-chunked-prefill",
    "--nnodes 2 --node-rank 1 --master-addr 192.0.2.1 -tp 2 --headless",
    "--offload-backend uva --cpu-offload-gb 32 --cpu-offload-params w13_weight w2_weight",
    "--no-enforce-eager --cudagraph-capture-sizes 1 2",
    "--headless --api-server-count 0",
]


@pytest.mark.parametrize(("args", "where", "text"), RULES, ids=[row[0] for row in RULES])
def test_contradictions_are_named(program: Path, args: str, where: str, text: str) -> None:
    found = told(linted(launch_of(program, *args.split())))
    assert text in found[where]
    assert len(found) == 1


@pytest.mark.parametrize("args", FINE)
def test_what_goes_together_is_not_complained_of(program: Path, args: str) -> None:
    assert linted(launch_of(program, *args.split())).problems == ()


def test_eager_mode_and_a_compilation_are_told_of(program: Path) -> None:
    warned = told(linted(launch_of(program, "--enforce-eager", "-O3", "-cc.mode", "3")), Severity.WARNING)
    assert warned["--enforce-eager"].startswith("contradicts --")


def test_ray_is_warned_of(program: Path) -> None:
    found = linted(launch_of(program, "--distributed-executor-backend", "ray"))
    assert "use mp" in told(found, Severity.WARNING)["--distributed-executor-backend"]


SPREADS = [
    ("--tensor-parallel-size 4", None, ""),
    ("-tp 2 -pp 2", None, ""),
    ("-tp 2 --data-parallel-size 2", None, ""),
    ("-tp 8 --nnodes 2 --node-rank 0 --master-addr 192.0.2.1", None, ""),
    ("-tp 4 --data-parallel-size 4 --data-parallel-rank 1", None, ""),
    ("-tp 2", Severity.WARNING, "tensor x pipeline 2 uses 2 of the engine's 4 GPUs"),
    (
        "-tp 4 --data-parallel-size 2",
        Severity.ERROR,
        "tensor x pipeline 4 x data 2 needs 8 GPUs on this node and",
    ),
]


@pytest.mark.parametrize(("args", "severity", "text"), SPREADS, ids=[row[0] for row in SPREADS])
def test_the_sizes_must_fit_the_gpus(program: Path, args: str, severity: Severity | None, text: str) -> None:
    found = on_gpus(program, args)
    said = {p.severity: p.text for p in found.problems if p.where == "--tensor-parallel-size"}
    assert list(said) == ([severity] if severity else [])
    assert text in "".join(said.values())


WORDS = st.sampled_from(
    [
        "--max-num-seqs",
        "--enforce-eager",
        "-tp",
        "--",
        "-",
        "--=",
        "--a.b.c",
        "-O",
        "-O3",
        "--no-",
        "--x=y=z",
        "8",
        "-1",
        "--numa-bind-nodes",
        "nan",
        "1e999",
        "--compilation-config.",
        "--gpu-memory-utilization",
        "--nnodes=0",
        "--enable-",
        "999999999999999999999",
    ]
)


@given(st.lists(st.one_of(WORDS, st.text(max_size=8)), max_size=8))
@settings(max_examples=80, deadline=None)
def test_no_command_line_is_a_defect(program: Path, words: list[str]) -> None:
    """Whatever is written, it is told of or taken; the report is made of single lines."""
    source = read_package("vllm", program.parents[1] / "lib/python3.11/site-packages/vllm")
    names, used = Names(source), []
    for one in take_apart(words)[1]:
        found, problems = names.find(one)
        assert found is not None or problems
        if found is not None:
            used.append(found)
            value_problems(found)
    repeated(used)
    rule_problems(source, Settings(used), Gpus([uuid_of(0)]))


def rules(program: Path, args: str, gpus: int) -> list[tuple[Severity, str]]:
    """What the rules alone say of a command line; the plan itself refuses some of these before."""
    source = read_package("vllm", program.parents[1] / "lib/python3.11/site-packages/vllm")
    used = [Names(source).find(one)[0] for one in take_apart(args.split())[1]]
    found = rule_problems(source, Settings(filter(None, used)), Gpus([uuid_of(slot) for slot in range(gpus)]))
    return [(problem.severity, problem.where) for problem in found]


NUMA = [
    ("0 0", 4, "error"),
    ("0 0 0 x", 4, "error"),
    ("0 0 0 0 1", 4, "warning"),
    ("0 0 1", 3, ""),
    ("0", 0, ""),
]


@pytest.mark.parametrize(("nodes", "gpus", "severity"), NUMA)
def test_one_numa_node_for_each_gpu(program: Path, nodes: str, gpus: int, severity: str) -> None:
    found = rules(program, f"-tp {gpus or 1} --numa-bind --numa-bind-nodes {nodes}", gpus)
    assert found == ([(Severity(severity), "--numa-bind-nodes")] if severity else [])


def test_uuids_need_a_version_that_reads_them(program: Path, tmp_path: Path) -> None:
    old = vllm_site(tmp_path, "0.22.0", "entrypoints/openai/cli_args.py")
    words = told(on_gpus(old, "-tp 4"))["CUDA_VISIBLE_DEVICES"]
    assert words.startswith("vllm 0.22.0 cannot read GPU UUIDs")
    assert words.endswith("install vllm 0.24 or newer")
    assert told(on_gpus(program, "-tp 4")) == {}


def test_a_shortened_uuid_is_refused(program: Path) -> None:
    source = EngineSource("vllm", "0.32.0", "/x", {}, frozenset())
    env = {"CUDA_VISIBLE_DEVICES": f"{uuid_of(0)},GPU-0000"}
    (problem,) = gpu_problems(source, env)
    assert problem.text.startswith("GPU-0000 is no full GPU UUID")
    assert gpu_problems(source, {"CUDA_VISIBLE_DEVICES": "0,1"}) == []


def test_several_engines_versions_are_told_apart() -> None:
    releases = {
        text: EngineSource("vllm", text, "/x", {}, frozenset()).release
        for text in ("0.32.0+cpu", "0.24.0rc1", "", "dev")
    }
    assert releases == {"0.32.0+cpu": (0, 32, 0), "0.24.0rc1": (0, 24), "": (), "dev": ()}
