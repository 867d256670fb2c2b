"""Flags of a launch against the installed engine: unknown, gone, abbreviated, twice, without value."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lint_kit import launch_of, linted, sglang_site, told, vllm_site

from agent.sources.launch_reading import LaunchReport, Severity


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return vllm_site(tmp_path_factory.mktemp("venv"))


def report(program: Path, *args: str, **more: Any) -> LaunchReport:
    return linted(launch_of(program, *args, **more))


def error(program: Path, *args: str, **more: Any) -> tuple[str, str]:
    """The one error, and nothing else."""
    found = report(program, *args, **more)
    (problem,) = found.problems
    assert problem.severity is Severity.ERROR, problem
    return problem.where, f"{problem.text}; {problem.remedy}"


GOOD = [
    ["--dtype", "bfloat16", "--max-model-len", "256", "--enforce-eager"],
    ["--max_model_len=8K", "--no-enable-prefix-caching"],
    ["-tp", "1", "-O3", "--compilation-config.mode", "0", "--compilation-config.level=3"],
    ["--middleware", "a", "--middleware", "b", "--served-model-name", "a", "b"],
    ["--max-num-seqs", "4", "--max-num-seqs", "4"],
    ["-O", "3", "--max-num-batched-tokens", "8k", "--max-model-len", "auto", "-asc", "1_0"],
    ["--gpu-memory-utilization", ".9", "--cpu-offload-gb", "1e0", "--data-parallel-rank", "None"],
    [
        "--hf-token",
        "--allowed-origins",
        '["*"]',
        "--unclear",
        "a",
        "b",
        "--distributed-executor-backend",
        "own",
    ],
    ["--enable-log-requests", "--disable-log-stats", "-cc", '{"mode": 0}', "--master-port", "-1"],
]


@pytest.mark.parametrize("args", GOOD, ids=" ".join)
def test_what_the_engine_takes_is_not_complained_of(program: Path, args: list[str]) -> None:
    found = report(program, *args)
    assert found.problems == ()
    assert found.summary.endswith("for vllm 0.32.0: nothing wrong")
    assert found.facts["flags_given"] > 2


WRONG = [
    ("--swap-space 8", "--swap-space", "no longer has it, it is gone since 0.18.0; remove it: preemption"),
    ("--disable-log-requests", "--disable-log-requests", "remove it: logging requests is off by default"),
    ("--device cuda", "--device", "it is gone since 0.10.0"),
    ("--guided_decoding_backend x", "--guided_decoding_backend", "use --structured-outputs-config.backend"),
    ("--num-scheduler-steps 8", "--num-scheduler-steps", "steps overlap by themselves"),
    ("--worker-use-ray", "--worker-use-ray", "use --distributed-executor-backend ray"),
    ("--cache-block-size 16", "--cache-block-size", "no released vllm has it"),
    (
        "--max-num-sequences 4",
        "--max-num-sequences",
        "vllm 0.32.0 has no such flag; did you mean --max-num-seqs?",
    ),
    ("--max-num-seqs abc", "--max-num-seqs", "'abc' is no whole number; write a whole number"),
    ("--max-num-seqs 4.5", "--max-num-seqs", "'4.5' is no whole number"),
    ("-asc x", "-asc", "'x' is no whole number"),
    ("--cpu-offload-gb 4GB", "--cpu-offload-gb", "'4GB' is no number"),
    ("-tp8", "-tp8", "has no such flag"),
    ("--qqq 4", "--qqq", "has no such flag; remove it"),
    ("-zz 4", "-zz", "has no such flag"),
    (
        "--data-parallel 2",
        "--data-parallel",
        "could be --data-parallel-rank, --data-parallel-size: the engine",
    ),
    ("--no-e", "--no-e", "could be --no-enable-chunked-prefill, --no-enable-log-requests, "),
    ("--max-num-seqs", "--max-num-seqs", "needs a value and has none"),
    ("--cudagraph-capture-sizes --headless", "--cudagraph-capture-sizes", "needs a value and has none"),
    (
        "--enforce-eager true",
        "--enforce-eager",
        "takes no value and 'true' follows it; remove 'true'; write --no-",
    ),
    (
        "--enforce-eager=true",
        "--enforce-eager",
        "takes no value and is given 'true'; write --enforce-eager alone",
    ),
    ("--no-headless", "--no-headless", "--headless has no form that turns it off; leave --headless out"),
    ("--api-key opensesame --api-key swordfish", "--api-key", "is given twice, with '***' and '***'"),
    ("--headless=1", "--headless", "leave it out to turn it off"),
    ("--max-num-seqs 4 5", "--max-num-seqs", "takes one value and '5' follows that"),
    (
        "--mamba-cache-mode all",
        "--mamba-cache-mode",
        "'all' is not one of its values; write one of align, none",
    ),
    ("--dtype float32", "--dtype", "write one of auto, bfloat16, float16"),
    ("--max-num-seqs 4 --max_num_seqs 8", "--max_num_seqs", "is given twice, with '4' and '8'"),
    (
        "--enable-prefix-caching --no-enable-prefix-caching",
        "--no-enable-prefix-caching",
        "contradicts --enable-prefix-caching",
    ),
    (
        "--disable-custom-all-reduce --no-disable-custom-all-reduce",
        "--no-disable-custom-all-reduce",
        "contradicts",
    ),
]


@pytest.mark.parametrize(("args", "where", "text"), WRONG, ids=[row[0] for row in WRONG])
def test_what_the_engine_refuses_is_named(program: Path, args: str, where: str, text: str) -> None:
    told_where, told_text = error(program, *args.split())
    assert told_where == where
    assert text in told_text


def test_abbreviations_work_and_are_told(program: Path) -> None:
    found = report(program, "--trust-remote", "--max-num-s", "8", "--no-enable-pre")
    assert told(found) == {}
    warned = told(found, Severity.WARNING)
    assert warned["--trust-remote"].endswith("; write --trust-remote-code")
    assert warned["--max-num-s"].endswith("; write --max-num-seqs")
    assert warned["--no-enable-pre"].endswith("; write --no-enable-prefix-caching")


def test_a_deprecated_flag_is_told_with_the_engines_own_words(program: Path) -> None:
    found = report(program, "--log-config-file", "x")
    (words,) = told(found, Severity.WARNING).values()
    assert words.startswith("vllm 0.32.0 calls it deprecated: --log-config-file is deprecated")
    assert words.endswith("; use --logging-config.pylogging_config_file")


def test_a_patched_build_declares_its_flags_and_variables(program: Path) -> None:
    args = ("--ndma-enabled", "--enable-expert-aware-scheduling")
    env = {"VLLM_ENABLE_NDMA": "1", "VLLM_LOGGING_LEVEL": "INFO", "VLLM_LOGING_LEVEL": "x"}
    bare = report(program, *args, env=env)
    assert set(told(bare)) == set(args)
    assert "declare it in launch.patched.flags" in told(bare)["--ndma-enabled"]
    assert told(bare, Severity.WARNING) == {
        "VLLM_ENABLE_NDMA": "vllm 0.32.0 reads no such variable; remove it, or declare it in "
        "launch.patched.env",
        "VLLM_LOGING_LEVEL": "vllm 0.32.0 reads no such variable; did you mean VLLM_LOGGING_LEVEL?",
    }
    flags = ["enable-expert-aware-scheduling", "--ndma_enabled"]
    patched = report(program, *args, env=env, patched={"flags": flags, "env": ["VLLM_ENABLE_NDMA"]})
    assert told(patched) == {}
    assert set(told(patched, Severity.WARNING)) == {"VLLM_LOGING_LEVEL"}


def test_flags_of_the_profile_are_looked_at_too(program: Path) -> None:
    found = report(program, flags={"swap-space": 8, "max-num-seqs": 4, "enforce-eager": False})
    assert set(told(found)) == {"--swap-space"}


def test_a_word_that_belongs_to_no_flag(program: Path) -> None:
    launch = {**launch_of(program), "command": [str(program), "serve", "tiny"], "model": "other"}
    assert "'other' belongs to no flag" in told(linted(launch))["launch.args"]
    launch = {**launch_of(program, "--enforce-eager", "tiny"), "model": None}
    assert linted(launch).problems == ()  # the model, behind a flag


CONFIG = """max-num-seqs: 4
swap_space: 8
enforce-eager: true
served-model-name: [a, b]
enable-prefix-caching: false
"""


def test_a_configuration_file_is_read_and_gives_way(program: Path) -> None:
    launch = launch_of(program, "--config", "/etc/e.yaml", "--max-num-seqs", "8")
    found = linted(launch, {"etc/e.yaml": CONFIG + "compilation-config: {mode: 0}\nmiddleware: []\n"})
    assert set(told(found)) == {"/etc/e.yaml: --swap_space"}
    # What counts is the command line's: 8 requests fit.
    launch["args"] += ["--max-num-batched-tokens", "6"]
    assert (
        "is less than --max-num-seqs 8"
        in told(linted(launch, {"etc/e.yaml": CONFIG}))["--max-num-batched-tokens"]
    )


FILES = [
    ("--config /e.yaml", {}, "/e.yaml", "there is no such file"),
    ("--config /e.yaml", {"e.yaml": "- a"}, "/e.yaml", "has no keys"),
    ("--config /e.yaml", {"e.yaml": "a: ["}, "/e.yaml", "is no YAML"),
    ("--config /e.txt", {"e.txt": "a: 1"}, "/e.txt", "the engine reads only .yaml"),
    ("--config=/e.yaml", {"e.yaml": "port: 1"}, "--config", "only where its name is an argument of its own"),
]


@pytest.mark.parametrize(("args", "files", "where", "text"), FILES, ids=[f"{r[0]} {r[3]}" for r in FILES])
def test_a_configuration_file_that_cannot_be_used(
    program: Path, args: str, files: dict[str, str], where: str, text: str
) -> None:
    assert text in told(linted(launch_of(program, *args.split()), files))[where]


def test_sglang(tmp_path: Path) -> None:
    program = sglang_site(tmp_path)
    launch = launch_of(program, "--tp", "1", "--trust-remote-code", "--names", "a", "b", kind="sglang")
    good = linted(launch)
    assert good.problems == ()
    assert good.summary == "6 flags for sglang 0.5.23: nothing wrong"
    env = {"SGLANG_LOG_MS": "1", "SGLANG_LOG_US": "1"}
    args = [
        "--rank",
        "1",
        "--hidden",
        "--load-format",
        "x",
        "--no-trust-remote-code",
        "--enable-dp-attention",
    ]
    bad = linted({**launch, "args": args, "env": env})
    assert set(told(bad)) == {"--rank", "--hidden", "--load-format", "--no-trust-remote-code"}
    assert set(told(bad, Severity.WARNING)) == {"--enable-dp-attention", "SGLANG_LOG_US"}


def test_the_kind_must_be_the_programs(program: Path) -> None:
    found = linted(launch_of(program, kind="sglang"))
    assert told(found)["launch.kind"] == "is sglang and the program is vllm; write vllm"


def test_no_word_of_a_launch_breaks_a_line_of_the_report(program: Path) -> None:
    found = report(program, "--gpu-memory-utilization", "\n\x1b[2J", "--x\ny")
    assert found.problems and all(str(problem).isprintable() for problem in found.problems)
