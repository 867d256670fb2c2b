"""Shipped presets: their golden launches, their form, and what a profile makes of them."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
from preset_golden import GOLDEN, MODEL, golden, plan_of, stems
from typer.testing import CliRunner

from agent.commands.launch_presets import presets_command
from agent.errors import ConfigError, LaunchError
from agent.launch.arguments import flag_value, has_flag, parallel_sizes
from agent.launch.engine_argv import engine_argv
from agent.launch.preset import FOLDER, preset, preset_names
from agent.profile_loader import LoadedProfile, examine, load_profile, profile_from_dict
from agent.profile_render import differences, render

#: The flags that the reports of the deployments give, word by word.
REPORTED = {
    "d1-kimi-k3-awq-b300": "--quantization awq --max-model-len 32768 --max-num-seqs 2048 --block-size 16 "
    "--gpu-memory-utilization 0.92 --enforce-eager --disable-custom-all-reduce "
    "--enable-expert-aware-scheduling --ndma-enabled",
    "d3-glm52-nvfp4-b300": "--max-model-len 131072 --max-num-seqs 768 --max-num-batched-tokens 6144 "
    "--gpu-memory-utilization 0.91 --enable-prefix-caching --trust-remote-code --swap-space 8",
    "d3-kimi-k3-nvfp4-b300": "--max-model-len 65536 --max-num-seqs 512 --max-num-batched-tokens 5120 "
    "--gpu-memory-utilization 0.9 --enable-prefix-caching --trust-remote-code --swap-space 8",
    "d4-kimi-k3-mxfp4-h20": "--distributed-executor-backend mp --nnodes 2 --max-model-len 524288 "
    "--max-num-seqs 1 --max-num-batched-tokens 8192 --gpu-memory-utilization 0.9 --no-async-scheduling "
    "--enable-prefix-caching --mamba-cache-mode align --language-model-only --moe-backend marlin "
    "--offload-backend uva --cpu-offload-gb 32 --cpu-offload-params w13_weight w2_weight --numa-bind "
    "--numa-bind-nodes 0 0 0 0 1 1 1 1",
    "d5-glm52-nvfp4-b300": "--max-model-len 131072 --max-num-seqs 256 --gpu-memory-utilization 0.92 "
    "--kv-cache-dtype fp8 --enforce-eager --enable-prefix-caching --disable-log-requests",
}


def flags(argv: tuple[str, ...] | list[str]) -> set[tuple[str, ...]]:
    """Each flag with its values."""
    found: list[list[str]] = []
    for word in argv:
        if word.startswith("--"):
            found.append([])
        if found:
            found[-1].append(word)
    return {tuple(flag) for flag in found}


@pytest.mark.parametrize("stem", stems())
def test_the_golden_launches_are_current(stem: str) -> None:
    """`python -m tests.support.preset_golden` writes them anew."""
    assert (GOLDEN / f"{stem}.txt").read_text() == golden(stem)


def test_every_golden_file_has_its_preset() -> None:
    assert sorted(file.stem for file in GOLDEN.glob("*.txt")) == stems()


@pytest.mark.parametrize("stem", sorted(REPORTED))
def test_the_reported_flags_are_all_there(stem: str) -> None:
    given = flags(shlex.split(REPORTED[stem]))
    assert given <= flags(plan_of(f"{stem}/as-reported").argv)


def test_what_current_versions_refuse_is_only_in_the_reported_form() -> None:
    for name in preset_names():
        if not name.endswith("/as-reported"):
            argv = plan_of(name).argv
            assert not has_flag(argv, "--swap-space") and not has_flag(argv, "--disable-log-requests")
            assert flag_value(argv, "--shutdown-timeout") == "20"


@pytest.mark.parametrize("name", preset_names())
def test_each_preset_says_where_its_numbers_come_from(name: str) -> None:
    one = preset(name)
    assert one.title and one.notes
    known = ("report of deployment D", "nodegate default", "vLLM docs", "from the machine")
    assert all(any(word in source for word in known) for source in one.sources)
    text = one.file.read_text()
    assert "http" not in text.replace("http-", "") and str(Path.home()) not in text


def test_both_ranks_of_d4_are_headed_by_the_first() -> None:
    head, other = (plan_of("d4-kimi-k3-mxfp4-h20", rank) for rank in (0, 1))
    assert (head.headless, other.headless) == (False, True)
    assert flag_value(other.argv, "--master-addr") == "198.51.100.1"
    assert (head.env["VLLM_HOST_IP"], other.env["VLLM_HOST_IP"]) == ("198.51.100.1", "198.51.100.2")
    assert parallel_sizes(head.argv).world == 16
    assert (head.runtime, head.max_run_s, head.container_name) == ("podman", 43200, "nodegate-model-rank0")
    assert head.checkpoint == MODEL
    assert has_flag(plan_of("d4-kimi-k3-mxfp4-h20/eager").argv, "--enforce-eager")
    assert not has_flag(head.argv, "--enforce-eager")


def test_d4_without_its_group_is_refused() -> None:
    engine = {
        "launch": {"preset": "d4-kimi-k3-mxfp4-h20", "model": "/m", "runtime": "host", "container": None}
    }

    loaded = profile_from_dict({"platform": "h20", "fabric": {"kind": "none"}, "engines": {"x": engine}})
    with pytest.raises(LaunchError, match=r"needs 16 GPUs and there are 8; list its nodes under engines\.x"):
        engine_argv("x", loaded.profile.engines["x"])


def written(folder: Path, text: str) -> Path:
    file = folder / "profile.yaml"
    file.write_text(f"platform: b300\nmode: manage\nfabric: {{kind: none}}\nengines:\n  kimi:\n{text}")
    return file


def loaded(folder: Path, text: str) -> LoadedProfile:
    return load_profile(written(folder, text))


CHOSEN = """\
    launch:
      preset: d1-kimi-k3-awq-b300
      model: /models/kimi
      flags: {max-num-seqs: 64, ndma-enabled: null}
      env: null
"""


def test_the_profile_wins_and_null_takes_back(tmp_path: Path) -> None:
    profile = loaded(tmp_path, CHOSEN)
    launch = profile.profile.engines["kimi"].launch
    assert launch.flags["max-num-seqs"] == 64 and launch.flags["block-size"] == 16
    assert "ndma-enabled" not in launch.flags and launch.env == {}
    assert profile.profile.engines["kimi"].port == 8000
    assert profile.layers[:3] == ("base", "b300", "d1-kimi-k3-awq-b300")
    assert FOLDER / "d1-kimi-k3-awq-b300.yaml" in profile.files


def test_the_hash_covers_what_the_preset_gives(tmp_path: Path) -> None:
    hashes = {
        loaded(tmp_path, CHOSEN.replace("awq-b300", f"awq-b300{variant}")).hash
        for variant in ("", "/block-32", "/as-reported")
    }
    assert len(hashes) == 3


def test_rendering_names_the_preset_and_loads_back(tmp_path: Path) -> None:
    before = loaded(tmp_path, CHOSEN)
    text = render(before, before.tree)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert any(line.startswith("block-size: 16 # d1-kimi-k3-awq-b300:") for line in lines)
    assert any(line.startswith("ndma-enabled: null # default, unset by") for line in lines)
    assert any(line.startswith("env: null # default, unset by") for line in lines)
    (tmp_path / "rendered.yaml").write_text(text)
    after = load_profile(tmp_path / "rendered.yaml")
    assert after.hash == before.hash and differences(before.profile, after.profile) == []


def test_an_overlay_may_choose_and_the_file_take_back(tmp_path: Path) -> None:
    overlay = tmp_path / "rack.yaml"
    overlay.write_text("engines: {kimi: {launch: {preset: d1-kimi-k3-awq-b300, model: /m}}}\n")
    file = written(tmp_path, "    gpus: [0]\n    port: 1\n    launch: {preset: null}\n")
    launch = load_profile(file, overlays=[overlay]).profile.engines["kimi"].launch
    assert launch.preset is None and launch.flags == {} and launch.model == "/m"


def faults(folder: Path, text: str) -> list[str]:
    return [str(fault) for fault in examine(written(folder, text)).faults]


def test_an_unknown_preset_is_one_line_with_near_names(tmp_path: Path) -> None:
    found = faults(tmp_path, "    launch: {preset: d1-kimi-awq-b300}\n")
    assert len(found) == 1
    assert "profile.yaml:6: engines.kimi.launch.preset: there is no preset `d1-kimi-awq-b300`" in found[0]
    assert "did you mean d1-kimi-k3-awq-b300" in found[0]


@pytest.mark.parametrize("name", ["", "..", "../profiles/base", "d1-kimi-k3-awq-b300/", "zzz", "7"])
def test_odd_names_are_no_presets(tmp_path: Path, name: str) -> None:
    found = faults(tmp_path, f'    launch: {{preset: "{name}"}}\n')
    assert len(found) == 1 and "there is no preset" in found[0]


def test_what_a_preset_gives_is_shown_where_it_stands(tmp_path: Path) -> None:
    found = faults(tmp_path, "    launch: {preset: d3-kimi-k3-nvfp4-b300, model: /m}\n")
    assert len(found) == 1
    assert "presets/d3-kimi-k3-nvfp4-b300.yaml:12: engines.kimi.gpus.0: GPU slot 8 does not exist" in found[0]


def test_d4_needs_its_image_from_the_profile(tmp_path: Path) -> None:
    found = faults(tmp_path, "    launch: {preset: d4-kimi-k3-mxfp4-h20, model: /m}\n")
    assert len(found) == 1
    assert "engines.kimi.launch.container.image: is missing; write it: Image by digest" in found[0]


def said(*arguments: str) -> str:
    app = typer.Typer()
    app.command()(presets_command)
    answer = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert answer.exit_code == 0
    return answer.stdout


def test_the_command_lists_presets_and_shows_one() -> None:
    assert [line.split()[0] for line in said().splitlines()[1:] if line] == preset_names()
    shown = said("d4-kimi-k3-mxfp4-h20/eager")
    assert "launch.flags.cpu-offload-params" in shown and "[w13_weight, w2_weight]" in shown
    assert "source: all flags" in shown and "note: The first form of the bring-up." in shown
    (one,) = json.loads(said("d4-kimi-k3-mxfp4-h20", "--json"))["presets"]
    assert one["engine"]["launch"]["container"]["max_run_s"] == 43200
    with pytest.raises(ConfigError, match="there is no preset `d4`; "):
        said("d4")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("title: x\nsources: [y]\n", "a preset needs the map `engine`"),
        ("title: x\nengine: {}\n", "a preset needs `title` and `sources`"),
        ("title: x\nsources: [y]\nengine: {}\nengin: {}\n", "engin: unknown key of a preset"),
        ("title: x\nsources: [y]\nengine: {}\nvariants: {v: 1}\n", "a preset needs the map `v`"),
    ],
)
def test_a_file_that_is_no_preset_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, problem: str
) -> None:
    from agent.launch import preset as module

    (tmp_path / "own.yaml").write_text(text)
    monkeypatch.setattr(module, "FOLDER", tmp_path)
    name: Any = "own/v" if "variants" in text else "own"
    module._file.cache_clear()
    try:
        with pytest.raises(ConfigError, match=problem):
            module.preset(name)
    finally:
        module._file.cache_clear()
