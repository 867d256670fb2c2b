"""launch.flags as arguments, the group's flags, and flags that are given twice."""

from __future__ import annotations

from typing import Any

import pytest

from agent.errors import ConfigError, LaunchError
from agent.launch.arguments import Parallel, flag_value, flags_argv, parallel_sizes
from agent.launch.engine_argv import engine_argv, served_name
from agent.profile_loader import profile_from_dict


def engine(launch: dict[str, Any], **more: Any) -> Any:
    data = {"gpus": list(range(8)), "port": 8000, "launch": {"model": "/m", **launch}, **more}
    rank = more.get("group", {}).get("rank", 0)
    node = {"node": ("a", "b")[rank], "mode": "manage", "fabric": {"kind": "none"}}
    return profile_from_dict({**node, "engines": {"x": data}}).profile.engines["x"]


def argv(launch: dict[str, Any], **more: Any) -> tuple[str, ...]:
    return engine_argv("x", engine(launch, **more))[0]


def test_each_kind_of_value_has_its_form() -> None:
    flags = {"a": True, "b": False, "c": 0.92, "d": 8, "e": [0, 0, 1], "f": '{"x": 1}', "g": "-1"}
    assert flags_argv(flags) == [
        "--a", "--no-b", "--c", "0.92", "--d", "8", "--e", "0", "0", "1", "--f", '{"x": 1}', "--g=-1",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "text"), [([], "is an empty list; write null"), (["-x"], "has the item '-x'")]
)
def test_a_list_that_cannot_be_given_is_refused(value: list[Any], text: str) -> None:
    with pytest.raises(LaunchError, match=rf"launch\.flags\.p {text}"):
        flags_argv({"p": value})


@pytest.mark.parametrize(
    ("given", "sizes"),
    [
        ([], Parallel()),
        (["--tensor-parallel-size", "8", "--pipeline_parallel_size=2"], Parallel(8, 2)),
        (["-tp", "4", "-dp", "2", "-tp", "8"], Parallel(8, 1, 2)),
        (["--tp-size", "8", "--dp", "2"], Parallel(8, 1, 2)),
    ],
)
def test_the_sizes_are_read_by_every_name(given: list[str], sizes: Parallel) -> None:
    assert parallel_sizes(given) == sizes


@pytest.mark.parametrize("text", ["0", "x", "", "-1"])
def test_a_size_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(LaunchError, match="write a whole number"):
        parallel_sizes([f"--tensor-parallel-size={text}"])


def test_flags_stand_before_the_args() -> None:
    found = argv({"flags": {"max-num-seqs": 8}, "args": ["--seed", "1"]})
    assert found[2:] == ("/m", "--host", "127.0.0.1", "--port", "8000", "--max-num-seqs", "8", "--seed", "1")


@pytest.mark.parametrize(
    ("flags", "args", "text"),
    [
        ({"max-num-seqs": 8}, ["--max_num_seqs=4"], "max-num-seqs and --max_num_seqs in launch.args"),
        ({"a-b": True}, ["--no-a-b"], "a-b and --no-a-b in launch.args"),
        ({"tensor-parallel-size": 8}, ["-tp", "8"], "tensor-parallel-size and -tp in launch.args"),
        ({"a": True, "no-a": True}, [], "no-a and launch.flags.a are the same flag"),
        ({"port": 9}, [], "launch.flags has --port 9 and engines.x.port is 8000; make them equal"),
    ],
)  # fmt: skip
def test_what_is_given_twice_is_refused(flags: dict[str, Any], args: list[str], text: str) -> None:
    with pytest.raises((ConfigError, LaunchError)) as refused:  # by the profile, or by the plan
        argv({"flags": flags, "args": args})
    assert text in str(refused.value) and "\n" not in str(refused.value)


def test_the_name_can_be_a_flag() -> None:
    assert served_name(engine({"flags": {"served-model-name": "kimi"}})) == "kimi"


def test_sglang_takes_its_model_by_a_flag() -> None:
    found = argv({"kind": "sglang", "command": ["python3", "-m", "sglang.launch_server"]})
    assert found[3:] == ("--model-path", "/m", "--host", "127.0.0.1", "--port", "8000")


def group(rank: int, **more: Any) -> dict[str, Any]:
    members = [
        {"node": "a", "address": "10.0.0.1", "data_address": "10.9.0.1"},
        {"node": "b", "address": "10.0.0.2"},
    ]
    return {"rank": rank, "members": members, "key_file": "/k", **more}


def test_each_rank_of_a_group_gets_its_flags() -> None:
    flags = {"tensor-parallel-size": 8, "pipeline-parallel-size": 2}
    found = [argv({"flags": flags}, group=group(rank))[7:] for rank in (0, 1)]
    same = ("--nnodes", "2", "--node-rank")
    head = ("--master-addr", "10.9.0.1", "--master-port", "29501")
    tail = ("--tensor-parallel-size", "8", "--pipeline-parallel-size", "2")
    assert found == [(*same, "0", *head, *tail), (*same, "1", *head, "--headless", *tail)]


def test_a_group_flag_in_the_profile_must_agree() -> None:
    assert argv({"flags": {"nnodes": 2}}, group=group(0)).count("--nnodes") == 1
    with pytest.raises(LaunchError, match=r"--nnodes 3 and what engines\.x\.group gives is 2"):
        argv({"flags": {"nnodes": 3}}, group=group(0))


def test_a_model_over_more_gpus_than_there_are_is_refused() -> None:
    flags = {"tensor-parallel-size": 8, "pipeline-parallel-size": 2}
    with pytest.raises(LaunchError, match=r"needs 16 GPUs and there are 8; .* engines\.x\.group"):
        argv({"flags": flags})
    assert argv({"flags": {**flags, "distributed-executor-backend": "ray"}})


def test_another_flag_is_no_value() -> None:
    """So a secret behind a flag without its value is not shown as that value."""
    given = ["--port", "--hf-token=hf_abc", "-tp", "--api-key=k"]
    assert flag_value(given, "--port") == ""
    with pytest.raises(LaunchError, match="--tensor-parallel-size is ''"):
        parallel_sizes(given)
