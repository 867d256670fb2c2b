"""Every fault is one line: file, line, problem, remedy; all of them in one run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from profile_cases import GOOD, faults, write
from pydantic import Field

from agent.checks import registry
from agent.errors import ConfigError
from agent.model import ServingClass
from agent.profile_loader import examine, load_profile, profile_from_dict

UUID = "GPU-892f902b-d23f-4824-928b-2f330c5c7fd0"


class DemoLimits(registry.Limits):
    margin_c: float = Field(5.0, ge=0)
    fatal: tuple[int, ...] = (79,)
    word: str = "x"


@pytest.fixture
def demo_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry with one check, as the real checks are tested elsewhere."""
    monkeypatch.setattr(registry, "REGISTRY", {})

    @registry.check(
        "gpu.demo_margin", title="Demo", source="none", serving_class=ServingClass.HARD, limits=DemoLimits
    )
    def demo(sources: Any, profile: Any, limits: Any) -> list[Any]:
        return []

    monkeypatch.setattr(registry, "load_all", lambda: dict(registry.REGISTRY))


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("gpus:\n  powr_limit_w: 1\n", 2, "gpus.powr_limit_w: unknown key; did you mean power_limit_w?"),
        ("gpus:\n  power_limit_kw: 1\n", 2, "unknown key; the unit of this value is W; write power_limit_w"),
        ("gpus:\n  power_limit: 1\n", 2, "the unit of this value is W; write power_limit_w"),
        ("api:\n  max_age_ms: 1\n", 2, "the unit of this value is s; write max_age_s"),
        ("nvlink:\n  speed_gb_s: 1\n", 2, "the unit of this value is MB/s; write speed_mb_s"),
        ("gpu: {}\n", 1, "gpu: unknown key; did you mean gpus?"),
        ("zzzzzz: 1\n", 1, "zzzzzz: unknown key; keys here: admission, api, bmc"),
        ("gpus:\n  power_limit_w: 700W\n", 2, "`700W` has its unit in the value; write 700, the unit (W)"),
        ("gpus:\n  power_limit_w: 700 W\n", 2, "`700 W` has its unit in the value; write 700"),
        ("gpus:\n  power_limit_w: 0.7kW\n", 2, "`0.7kW` is in kW, this value is in W; write the number"),
        ("api:\n  max_age_s: 5000ms\n", 2, "is in ms, this value is in s; write the number alone, in s"),
        ("gpus:\n  count: 8 GPUs\n", 2, "`8 GPUs` has a unit; write a whole number"),
        ("gpus:\n  power_limit_w: lots\n", 2, "`lots` is not a number; write the number alone, in W"),
        ("gpus:\n  power_limit_w: '700'\n", 2, "`700` is text, not a number; remove the quotes"),
        ("gpus:\n  power_limit_w: -1\n", 2, "`-1`: must be greater than 0"),
        ("gpus:\n  power_limit_w: true\n", 2, "`true` is not a number"),
        ("gpus:\n  power_limit_w: .inf\n", 2, "`.inf` is not a number"),
        ("gpus:\n  count: 8.5\n", 2, "`8.5` is not a whole number"),
        ("gpus:\n  count: 0x8\n", 2, "`0x8` is read as different numbers by YAML versions"),
        ("gpus:\n  count: 010\n", 2, "`010` is octal in some versions of YAML and decimal in others; remove"),
        ("api:\n  port: 9_470\n", 2, "`9_470` is read as different numbers"),
        ("gpus:\n  count: 1:30\n", 2, "`1:30` is read as different numbers"),
        ("gpus:\n  count: 99\n", 2, "`99`: must be less than or equal to 64"),
        ("gpus:\n  ecc: on\n", 2, "`on` is a boolean in some versions of YAML and text in others; write"),
        ("gpus:\n  ecc: NO\n", 2, "`NO` is a boolean in some versions"),
        ("gpus:\n  ecc: 'true'\n", 2, "`true` is not a boolean; write true or false"),
        ("gpus:\n  ecc: 1\n", 2, "`1` is not a boolean; write true or false"),
        ("mode: mange\n", 1, "`mange` is not allowed; did you mean manage?"),
        ("mode: zzz\n", 1, "`zzz` is not allowed; write observe, gate or manage"),
        ("fabric:\n  roce: {trust: off}\n", 2, "`off` is not allowed; write dscp or pcp"),
        ("gpus: 8\n", 1, "gpus: must be a map of keys, not `8`"),
        ("engines: [a]\n", 1, "engines: must be a map of keys, not a list"),
        ("nvlink:\n  domains: [0, 1]\n", 2, "nvlink.domains.0: must be a list, not `0`"),
        (
            "engines:\n  glm:\n    launch:\n      command: vllm serve\n",
            4,
            "engines.glm.launch.command: must be a list, not `vllm serve`; write [vllm, serve]",
        ),
        ("node: [a]\n", 1, "node: must be text, not a list"),
        ("gpus:\n  pins: {0: {uuid: GPU-1}}\n", 2, "`GPU-1` is not a full GPU UUID; copy it from"),
        (
            "engines:\n  glm:\n    launch: {container: {image: vllm:latest}}\n",
            3,
            "`vllm:latest` does not have the form that is asked for; Image by digest: name@sha256: and",
        ),
        (
            "engines:\n  glm:\n    launch: {flags: {--max_num_seqs: 4}}\n",
            3,
            "`--max_num_seqs` is not a flag's name as a profile has it; write it without --, with - for _: "
            "max-num-seqs",
        ),
        ("gpus:\n  pins: {x: {uuid: 1}}\n", 2, "`x` must be a GPU slot"),
        ("gpus:\n  numa_node: {00: 1}\n", 2, "`00` must be a GPU slot"),
        ("gpus:\n  numa_node: {64: 1}\n", 2, "`64` must be a GPU slot"),
        ("engines:\n  A b: {gpus: [], port: 1}\n", 2, "`A b` must be lower-case letters"),
        ("engines:\n  a: {gpus: []}\n", 2, "engines.a.port: is missing; write it: Port at which the engine"),
        ("schema_version: 2\n", 1, "`2` is not allowed; write 1"),
    ],
)  # fmt: skip
def test_one_fault_is_one_line_with_place_and_remedy(
    tmp_path: Path, text: str, line: int, words: str
) -> None:
    path = write(tmp_path, text)
    found = [str(fault) for fault in faults(path)]
    assert any(fault.startswith(f"{path}:{line}: ") and words in fault for fault in found), found
    for fault in found:
        assert "\n" not in fault
        assert "; " in fault or "`" in fault


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "engines:\n  a: {gpus: [0, 1], port: 1}\n  b:\n    gpus: [1, 2]\n    port: 2\n",
            "{path}:4: engines.b.gpus.0: GPU slot 1 already belongs to engine a ({path}:2); give each slot",
        ),
        (
            "engines:\n  a: {gpus: [0, 0], port: 1}\n",
            "{path}:2: engines.a.gpus.1: GPU slot 0 already belongs to engine a ({path}:2)",
        ),
        (
            "gpus:\n  count: 2\nengines:\n  a: {gpus: [1, 2, 3], port: 1}\n",
            "{path}:4: engines.a.gpus.1: GPU slot 2 does not exist: gpus.count is 2 ({path}:2); slots",
        ),
        (
            "engines:\n  a: {gpus: [], port: 8000}\n  b:\n    gpus: []\n    port: 8000\n",
            "{path}:5: engines.b.port: port 8000 is already used by engines.a.port ({path}:2); choose",
        ),
        (
            "engines:\n  a:\n    gpus: []\n    port: 1\n    agent_check_port: 9470\n",
            "{path}:5: engines.a.agent_check_port: port 9470 is already used by api.port (",
        ),
        (
            f"gpus:\n  pins:\n    0: {{uuid: {UUID}}}\n    1: {{uuid: {UUID}}}\n",
            "{path}:4: gpus.pins.1.uuid: " + UUID + " is also pinned to slot 0 ({path}:3)",
        ),
        ("gpus:\n  numa_node: {9: 1}\n", "{path}:2: gpus.numa_node.9: GPU slot 9 does not exist"),
        (
            "nvlink:\n  domains: [[0, 1], [1]]\n",
            "{path}:2: nvlink.domains.1.0: GPU slot 1 is in two NVLink domains",
        ),
        (
            "fabric:\n  kind: roce\n  ports:\n    - {device: mlx5_0, rate_gbps: 1}\n",
            "{path}:4: fabric.ports.0.netdev: the roce port mlx5_0/1 needs its network interface; add e.g.",
        ),
        (
            "fabric:\n  ports:\n    - {device: a, rate_gbps: 1}\n    - {device: a, rate_gbps: 1}\n",
            "{path}:4: fabric.ports.1: a port 1 is listed twice ({path}:3)",
        ),
        (
            "fabric:\n  ports:\n"
            "    - {device: a, netdev: e, rate_gbps: 1}\n    - {device: b, netdev: e, rate_gbps: 1}\n",
            "{path}:4: fabric.ports.1.netdev: interface e belongs to two ports ({path}:3)",
        ),
        (
            "fabric:\n  ports:\n    - {device: a, rate_gbps: 1, gpu: 8}\n",
            "{path}:3: fabric.ports.0.gpu: GPU slot 8 does not exist",
        ),
    ],
)
def test_contradictions_show_both_places(tmp_path: Path, text: str, words: str) -> None:
    path = write(tmp_path, text)
    found = [str(fault) for fault in faults(path)]
    assert len(found) == 1, found
    assert found[0].startswith(words.replace("{path}", str(path))), found


def test_a_fault_in_a_layer_is_shown_in_that_layer(tmp_path: Path) -> None:
    overlay = write(tmp_path, "api:\n  port: 8000\ngpus: {powr: 1}\n", "rack.yaml")
    file = write(tmp_path, "engines:\n  a:\n    gpus: []\n    port: 8000\n")
    found = [str(fault) for fault in faults(file, overlay)]
    assert found[0].startswith(f"{overlay}:3: gpus.powr")
    assert found[1].startswith(
        f"{file}:4: engines.a.port: port 8000 is already used by api.port ({overlay}:2)"
    )
    (fault,) = faults(write(tmp_path, "platform: h200\ngpus:\n  count: 4\n", "four.yaml"))
    assert "h200.yaml:" in str(fault.where), "the NVLink domains come from the platform layer"
    assert "four.yaml:3" in str(fault)
    assert "set nvlink.domains" in str(fault)


def test_all_faults_of_all_kinds_in_one_run_in_the_order_of_the_file(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "gpus: {power_limit_kw: 1}\nmode: x\nengines:\n  a: {gpus: [0], port: 1, drain: 1}\n"
        "  b: {gpus: [0], port: 1}\napi: {port: 80000}\nlimits: {nope: {}}\n",
    )
    found = faults(path)
    assert [fault.where for fault in found] == [f"{path}:{line}" for line in (1, 2, 4, 5, 5, 6, 7)], found


def test_load_raises_the_first_and_says_how_many_more(tmp_path: Path) -> None:
    path = write(tmp_path, "gpus: {a: 1}\nb: 1\nc: 1\n")
    with pytest.raises(ConfigError) as caught:
        load_profile(path)
    said = str(caught.value)
    assert said.startswith(f"{path}:1: gpus.a")
    assert said.endswith(f"and 2 more faults: `nodegate profile validate {path}` lists them")
    with pytest.raises(ConfigError) as one:
        load_profile(write(tmp_path, "b: 1\n"))
    assert "more fault" not in str(one.value)


def test_a_wrong_platform_lists_those_there_are(tmp_path: Path) -> None:
    path = write(tmp_path, "node: x\nplatform: h2000\nzz: 1\n")
    found = [str(fault) for fault in faults(path)]
    assert found[0] == (
        f"{path}:2: platform: there is no platform `h2000`; did you mean h200? "
        "platforms: b300, gb10, generic-8gpu, h20, h200"
    )
    assert found[1].startswith(f"{path}:3: zz: unknown key")
    for bad in ("../profiles/h200", "base", "[h200]", "{a: 1}", "5"):
        (fault, *_) = faults(write(tmp_path, f"platform: {bad}\n"))
        assert "platform" in str(fault)


def test_faults_of_every_file_that_cannot_be_read(tmp_path: Path) -> None:
    bad = write(tmp_path, "a: [\n", "bad.yaml")
    found = [str(fault) for fault in faults(tmp_path / "none.yaml", bad)]
    assert len(found) == 2
    assert "bad.yaml" in found[0]
    assert "none.yaml: cannot read" in found[1]


@pytest.mark.usefixtures("demo_check")
def test_limits_and_overrides_are_checked_against_the_checks_there_are(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "limits:\n  gpu.demo_margin:\n    margin_c: -1\n    margin: 3\n"
        "  gpu.demo_margn: {}\n  other: {a: 1}\n"
        "checks:\n  gpu.demo: {}\n  gpu.demo_margin:\n    period_ms: 5\n    serving_class: hrd\n",
    )
    found = [str(fault).removeprefix(f"{path}:") for fault in faults(path)]
    assert found == [
        "3: limits.gpu.demo_margin.margin_c: `-1`: must be greater than or equal to 0; margin_c",
        "4: limits.gpu.demo_margin.margin: unknown key; the unit of this value is C; write margin_c",
        "5: limits.gpu.demo_margn: there is no check gpu.demo_margn; did you mean gpu.demo_margin?",
        "6: limits.other: there is no check other; `nodegate check` shows them all",
        "8: checks.gpu.demo: there is no check gpu.demo; did you mean gpu.demo_margin?",
        "10: checks.gpu.demo_margin.period_ms: unknown key; the unit of this value is s; write period_s",
        "11: checks.gpu.demo_margin.serving_class: `hrd` is not allowed; did you mean hard?",
    ]


@pytest.mark.usefixtures("demo_check")
def test_good_limits_are_kept_as_the_check_wants_them(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "limits: {gpu.demo_margin: {margin_c: 3, fatal: [79, 119], word: 580.10}}\nchecks: {gpu.x: ~}\n",
    )
    profile = load_profile(path).profile
    assert profile.limits == {"gpu.demo_margin": {"margin_c": 3, "fatal": [79, 119], "word": "580.10"}}
    assert DemoLimits(**profile.limits["gpu.demo_margin"]) == DemoLimits(
        margin_c=3, fatal=(79, 119), word="580.10"
    )


def test_the_defaults_of_every_real_check_are_valid_limits() -> None:
    checks = registry.load_all()
    limits = {
        name: check.limits().model_dump(mode="json", exclude_none=True) for name, check in checks.items()
    }
    limits = {name: values for name, values in limits.items() if values}
    assert profile_from_dict({"limits": limits}).profile.limits == limits


def test_odd_keys_and_values_stay_on_one_line(tmp_path: Path) -> None:
    path = write(tmp_path, '"a\\nb\\u2028": 1\nmode: "x\\ny"\ndriver_version: ["' + "z" * 5000 + '"]\n')
    for fault in faults(path):
        assert len(str(fault).splitlines()) == 1
        assert len(str(fault)) < 600


def test_examine_gives_the_tree_even_of_a_bad_profile(tmp_path: Path) -> None:
    examined = examine(write(tmp_path, GOOD + "x: 1\n"))
    assert examined.loaded is None
    assert examined.tree is not None
