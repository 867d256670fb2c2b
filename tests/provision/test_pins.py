"""Pins: recorded on first use, a difference accepted by its own name only."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from cli_words import in_process

from agent.errors import ConfigError
from agent.node_parts import ExpectedGpu, ExpectedTopology
from agent.node_profile import GpuPin
from agent.pins import Seen, layer_text
from agent.pins_decide import decide
from agent.profile_loader import load_profile
from agent.provision.pins_record import names_of, refuse_standing, seen_from, settle_pins
from agent.provision.profile_vars import profile_vars

NODE = Path(__file__).parents[2] / "agent/demo_nodes/h200-roce"


def _uuid(number: int) -> str:
    return f"GPU-00000000-0000-0000-0000-{number:012x}"


def _pins(*numbers: int) -> dict[int, GpuPin]:
    return {
        slot: GpuPin(uuid=_uuid(number), serial=str(number), pci_bus_id=f"0000:{slot + 1:02x}:00.0")
        for slot, number in enumerate(numbers)
    }


def _topology(*numbers: int, numa: int = 0) -> ExpectedTopology:
    gpus = {slot: ExpectedGpu(uuid=_uuid(number), numa_node=numa) for slot, number in enumerate(numbers)}
    return ExpectedTopology(gpus=gpus)


FRESH = Seen({}, _pins(1, 2), _topology(1, 2), ExpectedTopology(), (), ())
SAME = replace(FRESH, pinned=_pins(1, 2), recorded=_topology(1, 2))
CHANGED = replace(
    SAME,
    found=_pins(1, 9),
    topology=_topology(1, 9),
    topology_problems=("gpu1: another GPU is in its place",),
)


def test_first_use_needs_a_word(tmp_path: Path) -> None:
    file = tmp_path / "profiles/n1.pins.yaml"
    refused = settle_pins(FRESH, "n1", file, accept=False)
    assert refused.problem == (
        "pins and topology: not recorded yet; look at playbooks/pins.yml --limit n1 --check --diff"
        " -e accept_pins=true, then run it without --check"
    )
    told = settle_pins(FRESH, "n1", file, accept=True, check=True)
    assert told.changed and not file.exists()
    done = settle_pins(FRESH, "n1", file, accept=True)
    assert done == told and file.read_text() == done.after and done.before == ""
    pins = yaml.safe_load(file.read_text())["gpus"]["pins"]
    assert pins[1] == {"uuid": _uuid(2), "serial": "2", "pci_bus_id": "0000:02:00.0"}


def test_what_is_as_recorded_is_left_alone(tmp_path: Path) -> None:
    assert not settle_pins(SAME, "n1", tmp_path / "f", accept=True).changed
    assert not settle_pins(SAME, "n1", tmp_path / "f", accept=False).problem
    assert not (tmp_path / "f").exists()


def test_a_difference_is_accepted_by_its_own_name_only(tmp_path: Path) -> None:
    file = tmp_path / "f"
    for replaced in ((), ("0",), ("topology",)):
        refused = settle_pins(CHANGED, "n1", file, accept=True, replace=replaced)
        assert refused.problem == (
            f"slot 1: pinned {_uuid(2)}, found {_uuid(9)} (serial 9); put it back, or, if it was changed on"
            " purpose, run playbooks/pins.yml --limit n1 -e accept_pins=true -e replace_pins=1"
        )
    assert not file.exists()
    assert settle_pins(CHANGED, "n1", file, accept=True, replace=["1"]).changed
    assert _uuid(9) in file.read_text() and _uuid(2) not in file.read_text(), "its topology goes with it"


def test_a_swap_names_both_slots() -> None:
    swapped = replace(SAME, found=_pins(2, 1))
    assert decide(swapped).names == ("0", "1")
    assert decide(swapped, ["0"]).names == ("1",)
    assert len(decide(swapped, ["all"]).changes) == 2


def test_another_topology_is_not_accepted_with_a_gpu() -> None:
    moved = replace(CHANGED, topology=_topology(1, 9, numa=1))
    decision = decide(moved, ["1"])
    assert decision.names == ("topology",) and "topology is not as recorded" in decision.refusals[0]
    assert not decide(moved, ["1", "topology"]).refusals


def test_addresses_and_serial_numbers_count_where_they_are_pinned() -> None:
    bare = {slot: GpuPin(uuid=pin.uuid) for slot, pin in _pins(1, 2).items()}
    assert not decide(replace(SAME, pinned=bare)).refusals
    moved = {**_pins(1, 2), 1: GpuPin(uuid=_uuid(2), serial="2", pci_bus_id="0000:44:00.0")}
    assert (
        "pinned with pci_bus_id 0000:02:00.0, found 0000:44:00.0"
        in decide(replace(SAME, found=moved)).refusals[0]
    )


def test_what_cannot_be_read_is_never_recorded(tmp_path: Path) -> None:
    lost = replace(FRESH, faults=("slot 1: NVML says GPU_IS_LOST",))
    outcome = settle_pins(lost, "n1", tmp_path / "f", accept=True, replace=["all"])
    assert outcome.problem == "nothing can be recorded: slot 1: NVML says GPU_IS_LOST"


def test_names() -> None:
    assert names_of("3,5") == names_of([3, 5]) == ("3", "5")
    assert (
        names_of(3) == ("3",)
        and names_of("") == names_of(None) == ()
        and names_of("topology") == ("topology",)
    )
    for bad in (True, "true", "gpu3"):
        with pytest.raises(ConfigError, match="names no slot"):
            names_of(bad)


def test_what_a_node_tells_is_checked() -> None:
    told = json.loads(json.dumps(CHANGED.to_json()))
    assert seen_from(told) == CHANGED
    told["found"]["0"]["uuid"] = "x"
    with pytest.raises(ConfigError, match="cannot be understood"):
        seen_from(told)


def test_recorded_pins_are_in_force_at_once(tmp_path: Path) -> None:
    data = yaml.safe_load((NODE / "profile.yaml").read_text())
    pins = {int(slot): GpuPin.model_validate(pin) for slot, pin in data["gpus"].pop("pins").items()}
    (tmp_path / "n1.yaml").write_text(yaml.safe_dump(data))
    before = profile_vars(tmp_path, "n1", [])
    assert before["profile"]["gpus"]["pins"] == {}
    seen = replace(FRESH, found=pins, topology=None)
    settle_pins(seen, "n1", Path(before["pins_file"]), accept=True)
    after = profile_vars(tmp_path, "n1", [])
    assert after["profile"]["gpus"]["pins"]["3"]["uuid"] == pins[3].uuid and after["hash"] != before["hash"]


def test_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "pins.yaml"
    ended = in_process(capsys, "pins", "record", "--node", str(NODE), "--out", str(out))
    assert ended.returncode == 0, ended.stderr
    loaded = load_profile(NODE / "profile.yaml", overlays=[out]).profile
    assert loaded.gpus.pins[0].serial == "1650623040150" and len(loaded.topology.expected.gpus) == 8
    other = tmp_path / "profile.yaml"
    text = (NODE / "profile.yaml").read_text()
    other.write_text(text.replace("0d15ea5e3333", "0d15ea5effff"))
    words = ["--node", str(NODE), "--profile", str(other)]
    shown = in_process(capsys, "pins", "show", *words)
    assert shown.returncode == 1 and "slot 3: pinned GPU-a4c402f1-4e2d-5b7a-9c3f-0d15ea5effff" in shown.stdout
    refused = in_process(capsys, "pins", "record", *words)
    assert refused.returncode == 1 and "nodegate pins accept 3 --out FILE" in refused.stderr
    accepted = in_process(capsys, "pins", "accept", "3", *words)
    assert (
        accepted.returncode == 0
        and "accepted: slot 3" in accepted.stderr
        and "0d15ea5e3333" in accepted.stdout
    )
    assert in_process(capsys, "pins", "accept", "gpu3", *words).returncode == 3


def test_a_layer_without_pins_is_one(tmp_path: Path) -> None:
    assert yaml.safe_load(layer_text({}, None, "n")) == {"gpus": {"pins": {}}}


def test_a_replacement_is_for_one_run_and_not_for_the_inventory() -> None:
    for extra in ({}, {"accept_pins": "true"}):
        with pytest.raises(ConfigError, match="would accept every later change"):
            refuse_standing("all", extra)
    refuse_standing("3", {"replace_pins": "3"})
    refuse_standing("", {})
